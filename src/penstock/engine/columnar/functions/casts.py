"""Casts on which Polars agrees with Spark, or whose differing rows can be detected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from penstock.engine.columnar.column_types import NotLowered
from penstock.engine.columnar.lowered_expression import (
    LoweredExpression,
    Lowering,
    bounds_of,
    lower_bounded_integer,
)
from penstock.expr.functions.arithmetic import RANGES
from penstock.expr.types import (
    BoolType,
    DataType,
    DateType,
    Float64Type,
    Int32Type,
    Int64Type,
    StrType,
    TimestampType,
)
from penstock.expr.typing_rules import CallTerm

Cast = Callable[[LoweredExpression, DataType], LoweredExpression]

# Cut to whole numbers, floats below this are far from the ends of int64.
_SAFE64, _SAFE32 = 9.2e18, 2147483646.0


def _widened(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(pl.Int64), a.bounds)


def _narrowed(a: LoweredExpression, target: DataType) -> LoweredExpression:
    low, high = RANGES[target]
    narrow = a.value.cast(pl.Int32, strict=False)
    return lower_bounded_integer(narrow, bounds_of(a), target, lambda: (a.value < low) | (a.value > high))


def _to_float(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(pl.Float64))


def _not_zero(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value != 0)


def _int_of_bool(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(pl.Int32 if isinstance(target, Int32Type) else pl.Int64), (0, 1))


def _cut(a: LoweredExpression, target: DataType) -> LoweredExpression:
    wide = isinstance(target, Int64Type)
    whole = a.value.cast(pl.Int64 if wide else pl.Int32, strict=False)
    return LoweredExpression(whole, RANGES[target], ~(a.value.abs() <= (_SAFE64 if wide else _SAFE32)))


def _text_of_int(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(pl.String))


def _text_of_bool(a: LoweredExpression, target: DataType) -> LoweredExpression:
    text = pl.when(a.value).then(pl.lit("true")).when(~a.value).then(pl.lit("false"))
    return LoweredExpression(text)


def _midnight(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(pl.Datetime("us")))


def _day(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.dt.date())


_TABLE: dict[tuple[type[DataType], type[DataType]], Cast] = {
    (Int32Type, Int64Type): _widened,
    (Int64Type, Int32Type): _narrowed,
    (Int32Type, Float64Type): _to_float,
    (Int64Type, Float64Type): _to_float,
    (BoolType, Float64Type): _to_float,
    (Int32Type, BoolType): _not_zero,
    (Int64Type, BoolType): _not_zero,
    (Float64Type, BoolType): _not_zero,
    (BoolType, Int32Type): _int_of_bool,
    (BoolType, Int64Type): _int_of_bool,
    (Float64Type, Int32Type): _cut,
    (Float64Type, Int64Type): _cut,
    (Int32Type, StrType): _text_of_int,
    (Int64Type, StrType): _text_of_int,
    (BoolType, StrType): _text_of_bool,
    (DateType, TimestampType): _midnight,
    (TimestampType, DateType): _day,
}


def _cast(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    source, target = call.arguments[0].type, call.type
    if source == target:
        return arguments[0]
    cast = _TABLE.get((type(source), type(target)))
    if cast is None:
        raise NotLowered(f"a cast from {source} to {target} has no columnar form")
    return cast(arguments[0], target)


LOWERINGS: Mapping[str, Lowering] = {"cast": _cast}
