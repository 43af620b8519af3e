"""Hashes of values of fixed width. Those of texts, bytes and long decimals stay in rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from headrace.engine.columnar.functions.decimals import unscaled
from headrace.engine.columnar.functions.time import count_of
from headrace.expr.functions.hashing import SEED
from headrace.expr.polars_columns import LoweredExpression, Lowering, NotLowered, dtype_of, either_condition
from headrace.expr.types import (
    INT32,
    INT64,
    BoolType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    TimestampNtzType,
    TimestampType,
)
from headrace.expr.typing_rules import CallTerm

_MAX_LONG_DIGITS = 18
_P1, _P2, _P3, _P4, _P5 = (
    *(0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    *(0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)
_C1, _C2 = 0xCC9E2D51, 0x1B873593


Words: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""Unsigned integers, whose arithmetic wraps."""


@dataclass(frozen=True)
class _Family:
    """Hash function of integers, as four or eight bytes, and the type of its hashes."""

    of_int: Callable[[Words, Words], Words]
    of_long: Callable[[Words, Words], Words]
    dtype: type[Any]
    signed: IntegerType


def _rotated(value: Words, by: int) -> Words:
    bits = value.itemsize * 8
    return (value << value.dtype.type(by)) | (value >> value.dtype.type(bits - by))


def _finished(value: Words, steps: Sequence[tuple[int, int]], last: int) -> Words:
    kind = value.dtype.type
    for by, factor in steps:
        value = (value ^ (value >> kind(by))) * kind(factor)
    return value ^ (value >> kind(last))


def _xx_finished(value: Words) -> Words:
    return _finished(value, ((33, _P2), (29, _P3)), 32)


def _xx_int(value: Words, seed: Words) -> Words:
    mixed = (seed + np.uint64(_P5 + 4)) ^ (value.astype(np.uint64) * np.uint64(_P1))
    return _xx_finished(_rotated(mixed, 23) * np.uint64(_P2) + np.uint64(_P3))


def _xx_long(value: Words, seed: Words) -> Words:
    turned = _rotated(value * np.uint64(_P2), 31) * np.uint64(_P1)
    mixed = _rotated((seed + np.uint64(_P5 + 8)) ^ turned, 27)
    return _xx_finished(mixed * np.uint64(_P1) + np.uint64(_P4))


def _murmur_mixed(word: Words, seed: Words) -> Words:
    word = _rotated(word * np.uint32(_C1), 15) * np.uint32(_C2)
    return _rotated(seed ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _murmur_finished(value: Words, length: int) -> Words:
    return _finished(value ^ np.uint32(length), ((16, 0x85EBCA6B), (13, 0xC2B2AE35)), 16)


def _murmur_int(value: Words, seed: Words) -> Words:
    return _murmur_finished(_murmur_mixed(value, seed), 4)


def _murmur_long(value: Words, seed: Words) -> Words:
    low, high = value.astype(np.uint32), (value >> np.uint64(32)).astype(np.uint32)
    return _murmur_finished(_murmur_mixed(high, _murmur_mixed(low, seed)), 8)


_XXHASH64 = _Family(_xx_int, _xx_long, np.uint64, INT64)
_MURMUR3 = _Family(_murmur_int, _murmur_long, np.uint32, INT32)


def _unsigned(a: LoweredExpression, type_: DataType) -> tuple[pl.Expr, bool]:
    """Return the bits that are hashed, unsigned, and whether they are eight bytes."""
    value = a.value
    match type_:
        case BoolType():
            return value.cast(pl.UInt32), False
        case IntegerType() if type_.bits < 64:
            return value.cast(pl.Int32).reinterpret(dtype=pl.UInt32()), False
        case DateType():
            return value.to_physical().reinterpret(dtype=pl.UInt32()), False
        case IntegerType() | TimestampType() | TimestampNtzType() | IntervalType():
            return count_of(value).reinterpret(dtype=pl.UInt64()), True
        case DecimalType() if type_.precision <= _MAX_LONG_DIGITS:
            return unscaled(a).value.cast(pl.Int64).reinterpret(dtype=pl.UInt64()), True
        case Float64Type():
            return _one_zero_and_nan(value, pl.Float64(), 0x7FF8000000000000, pl.UInt64()), True
        case Float32Type():
            return _one_zero_and_nan(value, pl.Float32(), 0x7FC00000, pl.UInt32()), False
        case _:
            raise NotLowered(f"a hash of a {type_} has no columnar form")


def _one_zero_and_nan(value: pl.Expr, dtype: pl.DataType, nan: int, unsigned: pl.DataType) -> pl.Expr:
    bits = value.cast(dtype).reinterpret(dtype=unsigned)
    return (
        pl.when(value.is_nan())
        .then(pl.lit(nan, dtype=unsigned))
        .when(value == 0.0)
        .then(pl.lit(0, dtype=unsigned))
        .otherwise(bits)
    )


def _hashed(family: _Family) -> Lowering:
    """Lower to NumPy: as an expression, each step of a hash would repeat what it is computed of."""

    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        pairs = zip(arguments, call.arguments, strict=True)
        bits = [_unsigned(argument, term.type) for argument, term in pairs]
        dtype = dtype_of(family.signed)

        def of_columns(columns: Sequence[pl.Series]) -> pl.Series:
            seed: Words = np.full(max(map(len, columns)), SEED, family.dtype)
            for column, (_, eight) in zip(columns, bits, strict=True):
                made = (family.of_long if eight else family.of_int)(column.fill_null(0).to_numpy(), seed)
                seed = np.where(column.is_null().to_numpy(), seed, made)
            return pl.Series(seed).reinterpret(dtype=dtype)

        value = pl.map_batches([of for of, _ in bits], of_columns, return_dtype=dtype, is_elementwise=True)
        fails = either_condition(*(a.fails for a in arguments))
        return LoweredExpression(value, family.signed.range, fails)

    return lowering


LOWERINGS: Mapping[str, Lowering] = {"hash": _hashed(_XXHASH64), "murmur3": _hashed(_MURMUR3)}
