"""Many rows as messages of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.compute.protocol import rows

MOST_ROWS = 2_000
MOST_BYTES = 1024 * 1024


def chunks(all_rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[bytes, bool]]:
    """The rows in order, in pieces of at most `MOST_BYTES` (or one row), each with whether more follow.

    One empty piece of no rows.
    """
    last: bytes | None = None
    for start in range(0, max(len(all_rows), 1), MOST_ROWS):
        for piece in _halved(all_rows[start : start + MOST_ROWS]):
            if last is not None:
                yield last, True
            last = piece
    assert last is not None
    yield last, False


def _halved(some: Sequence[tuple[Any, ...]]) -> Iterator[bytes]:
    piece = rows.encode(some)
    if len(piece) <= MOST_BYTES or len(some) < 2:
        yield piece
        return
    half = len(some) // 2
    yield from _halved(some[:half])
    yield from _halved(some[half:])
