"""Codes of keys: 64-bit integers by which batches are sorted and probed.

The code of one integer, date or time that is never null is its own value. All other keys have a hash as their
code; rows that are found by a hash are compared by their keys. Hashes are the same in every process and
release, for they are written into files. """

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl

Codes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
_Hashes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
"""Masks of the first n bytes of a word."""

_EXACT = (
    pl.Int8,
    pl.Int16,
    pl.Int32,
    pl.Int64,
    pl.UInt8,
    pl.UInt16,
    pl.UInt32,
    pl.Date,
    pl.Datetime,
    pl.Duration,
)


def is_exact(types: Sequence[pl.DataType], nullable: bool) -> bool:
    """Return whether keys of these types are equal where their codes are."""
    return len(types) == 1 and not nullable and isinstance(types[0], _EXACT)


def codes_of(keys: Sequence[pl.Series], *, exact: bool) -> Codes:
    """Return the code of each row's key.

    Floats that compare as equal have one code, as have all NaN, and all nulls.

    exact: as `is_exact` says of all rows that the codes are compared with.
    """
    if exact:
        return keys[0].cast(pl.Int64).to_numpy()
    hashes = np.full(len(keys[0]), len(keys), np.uint64)
    for key in keys:
        for word in _words_of(key):
            hashes = _mixed(hashes, word)
    return hashes.view(np.int64)


def _mixed(hashes: _Hashes, words: _Hashes) -> _Hashes:
    mixed = (hashes ^ words) * _FACTOR
    return mixed ^ (mixed >> _SHIFT)


def _words_of(key: pl.Series) -> list[_Hashes]:
    """Return the words that stand for a column's values: one for most, and more for long decimals."""
    match key.dtype:
        case pl.String() | pl.Binary():
            words = [_hash_of_bytes(key)]
        case pl.Float64():
            words = [_bits_of_floats(key.fill_null(0.0).to_numpy())]
        case pl.Float32():
            words = [_bits_of_floats(key.fill_null(0.0).cast(pl.Float64).to_numpy())]
        case pl.Decimal():
            words = _limbs(key)
        case pl.Boolean():
            words = [key.fill_null(False).cast(pl.UInt8).to_numpy().astype(np.uint64)]
        case _:
            words = [key.cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)]
    if key.null_count():
        words[0] = np.where(key.is_null().to_numpy(), _NULL, words[0])
    return words


def _bits_of_floats(values: Any) -> _Hashes:
    canonical = values + 0.0  # of -0.0 it makes 0.0
    canonical[np.isnan(canonical)] = np.nan
    return canonical.view(np.uint64)


def _limbs(key: pl.Series) -> list[_Hashes]:
    """Return the halves of unscaled values; where the upper one only repeats the sign, it is left out.

    So a value has the same code whatever the precision of its column.
    """
    unscaled = key.fill_null(0).to_arrow()
    both = np.frombuffer(unscaled.buffers()[1], np.uint64)[2 * unscaled.offset :][: 2 * len(unscaled)]
    low, high = both[::2].copy(), both[1::2]
    sign = (low.view(np.int64) >> np.int64(63)).view(np.uint64)
    long = high != sign
    if long.any():
        low[long] = _mixed(low[long], high[long])
    return [low]


def _hash_of_bytes(key: pl.Series) -> _Hashes:
    """Hash texts or bytes, a word of eight bytes at a time of all values that are as long."""
    arrow = key.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets_buffer, data = arrow.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[arrow.offset :][: len(arrow) + 1]
    if data is None or not data.size:
        return np.zeros(len(arrow), np.uint64)
    padded = np.zeros(data.size + 8, np.uint8)
    padded[: data.size] = np.frombuffer(data, np.uint8)
    words = np.ndarray((data.size + 1,), np.uint64, padded, 0, (1,))  # from every byte on
    starts, sizes = offsets[:-1], np.diff(offsets)
    hashes = sizes.astype(np.uint64) * _FACTOR
    going = np.flatnonzero(sizes)
    done = 0
    while len(going):
        left = np.minimum(sizes[going] - done, 8)
        hashes[going] = _mixed(hashes[going], words[starts[going] + done] & _LOW_BYTES[left])
        done += 8
        going = going[sizes[going] > done]
    return hashes
