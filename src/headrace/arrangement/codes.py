"""Codes of keys: 64-bit integers by which batches are sorted and probed.

The code of one integer, date or time that is never null is its own value. All other keys have a hash as their
code; rows that are found by a hash are compared by their keys. Hashes are the same in every process and
release, for they are written into files.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Context, Decimal
from functools import partial
from typing import Any, TypeAlias

from headrace.requirements import np, pl

Codes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
_Hashes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"

_FACTOR = 0x9E3779B97F4A7C15
_NULL = 0xD6E8FEB86659FD93


def is_exact(types: Sequence[pl.DataType], nullable: bool) -> bool:
    """Return whether equal codes imply equal keys for keys of these types."""
    return len(types) == 1 and not nullable and _is_number(types[0])


def _is_number(type: pl.DataType) -> bool:
    """Return whether the values of a type are stored as integers that fit 64 bits."""
    integers = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
    return isinstance(type, (*integers, pl.Date, pl.Datetime, pl.Duration))


def codes_of(keys: Sequence[pl.Series], *, exact: bool) -> Codes:
    """Return the code of each row's key.

    Floats that compare as equal have one code, as have all NaN, and all nulls.

    exact: result of `is_exact` for all rows with codes that are compared.
    """
    if exact:
        return keys[0].cast(pl.Int64).to_numpy()
    hashes = np.full(len(keys[0]), len(keys), np.uint64)
    for key in keys:
        hashes = _mixed(hashes, _words_of(key))
    return hashes.view(np.int64)


def _mixed(hashes: _Hashes, words: _Hashes) -> _Hashes:
    mixed = (hashes ^ words) * np.uint64(_FACTOR)
    return mixed ^ (mixed >> np.uint64(32))


def _words_of(key: pl.Series) -> _Hashes:
    """Return a 64-bit word for each value of a column: its bits, or a hash of its bytes."""
    nulls = key.is_null().to_numpy() if key.null_count() else None
    match key.dtype:
        case pl.String() | pl.Binary():
            words = _hash_of_bytes(key)
        case pl.Float64() | pl.Float32():
            words = _bits_of_floats(_filled(key, 0.0).cast(pl.Float64).to_numpy())
        case pl.Decimal():
            words = _words_of_decimals(_filled(key, 0))
        case pl.Boolean():
            words = _filled(key, False).cast(pl.UInt8).to_numpy().astype(np.uint64)
        case _:
            words = _filled(key.cast(pl.Int64), 0).to_numpy().view(np.uint64)
    return words if nulls is None else np.where(nulls, np.uint64(_NULL), words)


def _filled(key: pl.Series, value: Any) -> pl.Series:
    return key.fill_null(value) if key.null_count() else key


def _bits_of_floats(values: Any) -> _Hashes:
    canonical = values + 0.0  # of -0.0 it makes 0.0
    canonical[np.isnan(canonical)] = np.nan
    return canonical.view(np.uint64)


def _words_of_decimals(key: pl.Series) -> _Hashes:
    """Return words for unscaled values. The upper half is ignored if it is only the sign extension.

    So a value has the same code whatever the precision of its column.
    """
    low, high, long = _halves(key)
    if long.any():
        low[long] = _mixed(low[long], high[long])
    return low


def _halves(key: pl.Series) -> tuple[_Hashes, _Hashes, Any]:
    """Return the lower and upper halves of unscaled values, and where the upper is not a sign extension."""
    unscaled = key.rechunk().to_arrow()
    halves = np.frombuffer(unscaled.buffers()[1], np.uint64)[2 * unscaled.offset :][: 2 * len(unscaled)]
    low, high = halves[::2].copy(), halves[1::2]
    sign = (low.view(np.int64) >> np.int64(63)).view(np.uint64)
    return low, high, high != sign


def numbers_of(column: pl.Series) -> Codes | None:
    """Return integers that sort like a column's values; None for nulls or values beyond 64-bit integers."""
    if column.null_count():
        return None
    if _is_number(column.dtype):
        return column.cast(pl.Int64).to_numpy()
    if isinstance(column.dtype, pl.Decimal):
        low, _, long = _halves(column)
        return None if long.any() else low.view(np.int64)
    return None


def _hash_of_bytes(key: pl.Series) -> _Hashes:
    """Hash texts or bytes, one 8-byte word at a time, for all sufficiently long values at once."""
    arrow = key.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets_buffer, data = arrow.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[arrow.offset :][: len(arrow) + 1]
    if data is None or not data.size:
        return np.zeros(len(arrow), np.uint64)
    padded = np.zeros(data.size + 8, np.uint8)
    padded[: data.size] = np.frombuffer(data, np.uint8)
    words = np.ndarray((data.size + 1,), np.uint64, padded, 0, (1,))  # from every byte on
    starts, sizes = offsets[:-1], np.diff(offsets)
    hashes = sizes.astype(np.uint64) * np.uint64(_FACTOR)
    going = np.flatnonzero(sizes)
    # Masks of the first n bytes of a word.
    low_bytes = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
    done = 0
    while len(going):
        left = np.minimum(sizes[going] - done, 8)
        hashes[going] = _mixed(hashes[going], words[starts[going] + done] & low_bytes[left])
        done += 8
        going = going[sizes[going] > done]
    return hashes


# --- one key at a time ---------------------------------------------------------------------------

_64_BITS = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.toordinal()
_MICROSECOND = timedelta(microseconds=1)
_ALL_DIGITS = Context(prec=40)


def coder(types: Sequence[pl.DataType], *, exact: bool) -> Callable[[Sequence[Any]], int]:
    """Return a function that maps one Python key to its code, at a hundredth of the cost of `codes_of`.

    Times have no zone, or are in UTC.
    """
    words = [_word_function(type) for type in types]
    if exact:
        (whole,) = words
        return lambda key: whole(key[0])
    start = len(types)

    def code(key: Sequence[Any]) -> int:
        hashed = start
        for word, value in zip(words, key, strict=True):
            hashed = (hashed ^ (_NULL if value is None else word(value) & _64_BITS)) * _FACTOR & _64_BITS
            hashed ^= hashed >> 32
        return hashed - (1 << 64) if hashed >> 63 else hashed

    return code


def _word_function(type: pl.DataType) -> Callable[[Any], int]:
    match type:
        case pl.String():
            return lambda value: _word_of_bytes(value.encode())
        case pl.Binary():
            return _word_of_bytes
        case pl.Float64() | pl.Float32():
            return _word_of_float
        case pl.Decimal():
            return partial(_word_of_decimal, type.scale)
        case pl.Date():
            return lambda value: value.toordinal() - _EPOCH_DAY
        case pl.Datetime():
            return _microseconds
        case pl.Duration():
            return lambda value: value // _MICROSECOND
        case _:
            return int


def _word_of_bytes(value: bytes) -> int:
    hashed = len(value) * _FACTOR & _64_BITS
    for at in range(0, len(value), 8):
        hashed = (hashed ^ int.from_bytes(value[at : at + 8], "little")) * _FACTOR & _64_BITS
        hashed ^= hashed >> 32
    return hashed


def _word_of_float(value: float) -> int:
    return int.from_bytes(struct.pack("<d", math.nan if value != value else value + 0.0), "little")


def _word_of_decimal(scale: int, value: Decimal) -> int:
    unscaled = int(value.scaleb(scale, _ALL_DIGITS))
    low = unscaled & _64_BITS
    if -(1 << 63) <= unscaled < 1 << 63:
        return low
    hashed = (low ^ (unscaled >> 64 & _64_BITS)) * _FACTOR & _64_BITS
    return hashed ^ hashed >> 32


def _microseconds(value: datetime) -> int:
    since = value.replace(tzinfo=None) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
