"""Casts on which Polars agrees with Spark, or whose differing rows can be detected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from penstock.engine.columnar.column_types import NotLowered, dtype_of
from penstock.engine.columnar.functions import decimals
from penstock.engine.columnar.functions.time import cut_to_step
from penstock.engine.columnar.lowered_expression import (
    LoweredExpression,
    Lowering,
    bounds_of,
    lower_bounded_integer,
)
from penstock.expr.functions.arithmetic import RANGES
from penstock.expr.types import (
    INT64,
    BoolType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    StrType,
    TimestampNtzType,
    TimestampType,
)
from penstock.expr.typing_rules import CallTerm

Cast = Callable[[LoweredExpression, DataType], LoweredExpression]
FromDecimal = Callable[[LoweredExpression, DataType, DataType], LoweredExpression]

# Cut to whole numbers, floats below this are far from the ends of int64.
_SAFE64 = 9.2e18


def _widened(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(dtype_of(target)), a.bounds)


def _narrowed(a: LoweredExpression, target: DataType) -> LoweredExpression:
    low, high = RANGES[target]
    narrow = a.value.cast(dtype_of(target), strict=False)
    return lower_bounded_integer(narrow, bounds_of(a), target, lambda: (a.value < low) | (a.value > high))


def _to_float(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(pl.Float64))


def _not_zero(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value != 0)


def _int_of_bool(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(dtype_of(target)), (0, 1))


def _cut(a: LoweredExpression, target: DataType) -> LoweredExpression:
    low, high = RANGES[target]
    whole = a.value.cast(dtype_of(target), strict=False)
    safe = _SAFE64 if target == INT64 else float(high - 1)
    return LoweredExpression(whole, (low, high), ~(a.value.abs() <= safe))


def _text_of_int(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(pl.String))


def _text_of_bool(a: LoweredExpression, target: DataType) -> LoweredExpression:
    text = pl.when(a.value).then(pl.lit("true")).when(~a.value).then(pl.lit("false"))
    return LoweredExpression(text)


def _midnight(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(pl.Datetime("us")))


def _day(a: LoweredExpression, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.dt.date())


def _whole_units(a: LoweredExpression, target: DataType) -> LoweredExpression:
    assert isinstance(target, IntervalType)
    return LoweredExpression(cut_to_step(a.value, target.step))


_TABLE: dict[tuple[type[DataType], type[DataType]], Cast] = {
    (IntegerType, Float64Type): _to_float,
    (BoolType, Float64Type): _to_float,
    (Float32Type, Float64Type): _to_float,
    (Float64Type, Float32Type): lambda a, target: LoweredExpression(a.value.cast(pl.Float32)),
    (IntegerType, DecimalType): decimals.of_integer,
    (BoolType, DecimalType): decimals.of_integer,
    (IntegerType, BoolType): _not_zero,
    (Float64Type, BoolType): _not_zero,
    (BoolType, IntegerType): _int_of_bool,
    (Float64Type, IntegerType): _cut,
    (IntegerType, StrType): _text_of_int,
    (BoolType, StrType): _text_of_bool,
    (DateType, TimestampType): _midnight,
    (TimestampType, DateType): _day,
    (DateType, TimestampNtzType): _midnight,
    (TimestampNtzType, DateType): _day,
    (TimestampNtzType, TimestampType): lambda a, target: a,
    (TimestampType, TimestampNtzType): lambda a, target: a,
    (IntervalType, IntervalType): _whole_units,
}

_OF_DECIMAL: dict[type[DataType], FromDecimal] = {
    DecimalType: decimals.to_decimal,
    IntegerType: decimals.to_integer,
    Float64Type: decimals.to_float,
    BoolType: decimals.to_bool,
    StrType: decimals.to_text,
}


def _kind(of: DataType) -> type[DataType]:
    return IntegerType if isinstance(of, IntegerType) else type(of)


def _cast(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    source, target = call.arguments[0].type, call.type
    if source == target:
        return arguments[0]
    if isinstance(source, IntegerType) and isinstance(target, IntegerType):
        return (_widened if source.bits < target.bits else _narrowed)(arguments[0], target)
    if isinstance(source, DecimalType):
        of_decimal = _OF_DECIMAL.get(_kind(target))
        if of_decimal is not None:
            return of_decimal(arguments[0], source, target)
    cast = _TABLE.get((_kind(source), _kind(target)))
    if cast is None:
        raise NotLowered(f"a cast from {source} to {target} has no columnar form")
    return cast(arguments[0], target)


LOWERINGS: Mapping[str, Lowering] = {"cast": _cast}
