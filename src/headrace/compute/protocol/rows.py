"""Encoding of rows, counted rows and updates, for messages and stashes.

The bytes are those of `headrace.state.codec`: plain data of any size; lists come back as tuples. Bytes from
the network are checked for the requested shape, so that receivers only ever get rows that are tuples.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, cast

from headrace.compute.errors import BadMessage, MessageTooLarge
from headrace.compute.frontier import LAST_TIME
from headrace.compute.protocol.responses import Counted, Update
from headrace.errors import CheckpointDamaged
from headrace.expr.types import Row
from headrace.state import codec

MOST = 10_000_000
"""Limit on the rows of one message; a header that declares more is refused."""
OVERHEAD = 8
"""Assumed bytes per row for its count."""
_FIXED: dict[type, int] = {bool: 1, int: 8, float: 8, type(None): 1, Decimal: 16, date: 8}
VARIABLE = 4
"""Assumed bytes for the length of a variable-size value."""


class _Encoders(threading.local):
    """Per-thread encoders, because their buffers cannot be shared."""

    def __init__(self) -> None:
        self.encode: Callable[[object], bytes] = codec.value_encoder()


_encoders = _Encoders()


def encode(rows: Sequence[Row] | Sequence[Counted] | Sequence[Update] | Mapping[str, Any]) -> bytes:
    """Encode rows, counted rows, updates or named values.

    Raises `NotPlainData` for values that are not plain.
    """
    return _encoders.encode(rows if isinstance(rows, (tuple, dict)) else tuple(rows))


def decode(data: bytes, field: str = "rows") -> tuple[Row, ...]:
    """Decode rows. Raises `BadMessage`, naming `field`, for invalid bytes."""
    rows = _sequence(data, field)
    if not all(type(row) is tuple for row in rows):
        raise _bad(field, "not all of it are rows")
    return rows


def decode_keys(data: bytes, field: str = "keys") -> tuple[Row, ...]:
    """Decode lookup keys, which may hold neither mappings nor signalling NaNs. Raises `BadMessage`."""
    keys = decode(data, field)
    try:
        for key in keys:
            hash(key)
    except TypeError as error:
        raise _bad(field, f"nothing can be looked up by one of them: {error}") from error
    return keys


def decode_counted(data: bytes, field: str = "rows") -> tuple[Counted, ...]:
    """Decode rows with positive counts. Raises `BadMessage`."""
    rows = _sequence(data, field)
    for entry in rows:
        if type(entry) is not tuple or len(cast("tuple[Any, ...]", entry)) != 2:
            raise _bad(field, "not all of it are rows with a count")
        row, count = cast("tuple[Any, Any]", entry)
        if type(row) is not tuple or type(count) is not int or count < 1:
            raise _bad(field, "not all of it are rows with a count")
    return rows


def decode_updates(data: bytes, field: str = "updates") -> tuple[Update, ...]:
    """Decode updates with valid times and non-zero weights. Raises `BadMessage`."""
    rows = _sequence(data, field)
    for entry in rows:
        if type(entry) is not tuple or len(cast("tuple[Any, ...]", entry)) != 3:
            raise _bad(field, "not all of it are updates")
        row, time, weight = cast("tuple[Any, Any, Any]", entry)
        if type(row) is not tuple or type(time) is not int or type(weight) is not int:
            raise _bad(field, "not all of it are updates")
        if not 0 <= time <= LAST_TIME or not weight:
            # Without the numbers: Python refuses to write those of thousands of digits.
            raise _bad(field, "an update has a time that is none, or no weight")
    return rows


def decode_values(data: bytes, field: str = "values") -> dict[str, Any]:
    """Decode named values. Raises `BadMessage`."""
    values = _value(data, field)
    if type(values) is not dict or not all(type(name) is str for name in cast("dict[Any, Any]", values)):
        raise _bad(field, "it is no mapping of names")
    return cast("dict[str, Any]", values)


def declared_row_count(data: bytes) -> int:
    """Return the row count declared in encoded bytes, without decoding them; 0 if they are invalid."""
    if not data:
        return 0
    if 0x90 <= data[0] <= 0x9F:
        return data[0] & 0x0F
    width = {0xDC: 2, 0xDD: 4}.get(data[0], 0)
    return int.from_bytes(data[1 : 1 + width], "big")


def _sequence(data: bytes, field: str) -> tuple[Any, ...]:
    if declared_row_count(data) > MOST:
        raise MessageTooLarge(
            f"{field} has {declared_row_count(data):,} rows, one message may have {MOST:,}",
            fix="ask for less at a time",
            size=declared_row_count(data),
            limit=MOST,
        )
    rows = _value(data, field)
    if type(rows) is not tuple:
        raise _bad(field, "it is no list of rows")
    return cast("tuple[Any, ...]", rows)


def _value(data: bytes, field: str) -> Any:
    try:
        return codec.decode(data)
    except CheckpointDamaged as error:
        raise _bad(field, error.why) from error


def _bad(field: str, why: str) -> BadMessage:
    return BadMessage(f"{field} does not hold rows", why=why, field=field)


def row_size(row: Row) -> int:
    """Estimate the bytes of a row and its count in a message, identically on all replicas."""
    size = OVERHEAD
    for value in row:
        size += _FIXED.get(value.__class__) or _size(value)
    return size


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return VARIABLE + len(value)
    if isinstance(value, tuple | frozenset):
        return VARIABLE + sum(_FIXED.get(v.__class__) or _size(v) for v in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]
    return 8


MAX_ROWS = 2_000
MAX_BYTES = 1024 * 1024


def encode_chunks(all_rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[bytes, bool]]:
    """Encode rows, in order, in chunks of at most `MAX_BYTES` (or one row), each with a flag if more follow.

    No rows make one empty chunk.
    """
    last: bytes | None = None
    for start in range(0, max(len(all_rows), 1), MAX_ROWS):
        for chunk in _halved(all_rows[start : start + MAX_ROWS]):
            if last is not None:
                yield last, True
            last = chunk
    assert last is not None
    yield last, False


def _halved(some: Sequence[tuple[Any, ...]]) -> Iterator[bytes]:
    chunk = encode(some)
    if len(chunk) <= MAX_BYTES or len(some) < 2:
        yield chunk
        return
    half = len(some) // 2
    yield from _halved(some[:half])
    yield from _halved(some[half:])
