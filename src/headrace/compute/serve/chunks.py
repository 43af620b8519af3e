"""Encoding of rows in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.compute.protocol import rows

MOST_ROWS = 2_000
MOST_BYTES = 1024 * 1024


def encode_chunks(all_rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[bytes, bool]]:
    """Encode rows, in order, in chunks of at most `MOST_BYTES` (or one row), each with whether more follow.

    No rows make one empty chunk.
    """
    last: bytes | None = None
    for start in range(0, max(len(all_rows), 1), MOST_ROWS):
        for chunk in _halved(all_rows[start : start + MOST_ROWS]):
            if last is not None:
                yield last, True
            last = chunk
    assert last is not None
    yield last, False


def _halved(some: Sequence[tuple[Any, ...]]) -> Iterator[bytes]:
    chunk = rows.encode(some)
    if len(chunk) <= MOST_BYTES or len(some) < 2:
        yield chunk
        return
    half = len(some) // 2
    yield from _halved(some[:half])
    yield from _halved(some[half:])
