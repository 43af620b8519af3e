"""Conversion of column types and values to and from Polars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import singledispatch
from itertools import accumulate
from typing import Any, TypeAlias, cast

import polars as pl
import pyarrow as pa

from headrace.columns import NotLowered
from headrace.expr.code_runtime import NAN
from headrace.expr.decimal_arithmetic import EXACT
from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    FloatingType,
    IntegerType,
    IntervalType,
    ListType,
    StrType,
    TimestampNtzType,
    TimestampType,
)

_arrow: Any = pa
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FEW = 500
"""Number of decimals below which they are made sooner than distinct ones are found."""


@singledispatch
def polars_type(type: DataType) -> pl.DataType | None:
    """Return the Polars type of a column; None for types that stay in rows (nested values, any value)."""
    return None


@polars_type.register(BoolType)
def _bool(type: BoolType) -> pl.DataType:
    return pl.Boolean()


@polars_type.register(IntegerType)
def _integer(type: IntegerType) -> pl.DataType:
    return _OF_BITS[type.bits]()


_OF_BITS: dict[int, type[pl.DataType]] = {8: pl.Int8, 16: pl.Int16, 32: pl.Int32, 64: pl.Int64}


@polars_type.register(Float64Type)
def _float64(type: Float64Type) -> pl.DataType:
    return pl.Float64()


@polars_type.register(Float32Type)
def _float32(type: Float32Type) -> pl.DataType:
    return pl.Float32()


@polars_type.register(DecimalType)
def _decimal(type: DecimalType) -> pl.DataType:
    return pl.Decimal(type.precision, type.scale)


@polars_type.register(StrType)
def _str(type: StrType) -> pl.DataType:
    return pl.String()


@polars_type.register(BytesType)
def _bytes(type: BytesType) -> pl.DataType:
    return pl.Binary()


@polars_type.register(DateType)
def _date(type: DateType) -> pl.DataType:
    return pl.Date()


@polars_type.register(TimestampType)
@polars_type.register(TimestampNtzType)
def _timestamp(type: DataType) -> pl.DataType:
    # All timestamps are UTC; without a zone Polars has none to look up.
    return pl.Datetime("us")


@polars_type.register(IntervalType)
def _interval(type: IntervalType) -> pl.DataType:
    return pl.Duration("us")


def dtype_of(type: DataType) -> pl.DataType:
    """Return a column's Polars type. Raises `NotLowered` if it has none."""
    found = polars_type(type)
    if found is None:
        raise NotLowered(f"values of type {type} stay in rows")
    return found


def carried_dtype(type: DataType) -> pl.DataType:
    """Return the Polars type of a column that no operator compares or holds: also lists of plain values.

    Raises `NotLowered` if it has none.
    """
    if not isinstance(type, ListType):
        return dtype_of(type)
    element = polars_type(type.element)
    if element is None or isinstance(type.element, FloatingType | TimestampType):
        # Of floats in lists, too, there would have to be one zero and one NaN; of moments, one zone.
        raise NotLowered(f"values of type {type} stay in rows")
    return pl.List(element)


def unscaled_bounds(type: DataType) -> tuple[int, int] | None:
    """Return the bounds of an integer type, or of a decimal's unscaled integers; None for other types."""
    if isinstance(type, DecimalType):
        return 1 - 10**type.precision, 10**type.precision - 1
    return type.range if isinstance(type, IntegerType) else None


def bounds_in(type: DataType, series: pl.Series) -> tuple[int, int] | None:
    """Return the bounds that a column's values have, as `unscaled_bounds`."""
    if unscaled_bounds(type) is None:
        return None
    if series.null_count() == len(series):
        return 0, 0
    least, most = cast("Any", series.min()), cast("Any", series.max())
    if isinstance(type, DecimalType):
        # To take a decimal for an integer costs less than to take a column for one.
        return int(least.scaleb(type.scale, EXACT)), int(most.scaleb(type.scale, EXACT))
    return least, most


@singledispatch
def to_series(type: DataType, values: list[Any]) -> pl.Series:
    """Convert internal values to a column.

    Raises Polars' own error for a value it cannot hold (half a surrogate).
    """
    return pl.Series(values=values, dtype=dtype_of(type), strict=True)


@to_series.register(DecimalType)
def _of_decimals(type: DecimalType, values: list[Any]) -> pl.Series:
    return _by_arrow(values, _arrow.decimal128(type.precision, type.scale))


@to_series.register(DateType)
def _of_dates(type: DateType, values: list[Any]) -> pl.Series:
    return _by_arrow(values, _arrow.date32())


def _by_arrow(values: list[Any], type: Any) -> pl.Series:
    # Polars takes five times as long to convert decimals and dates by itself.
    made = pl.from_arrow(_arrow.array(values, type))  # pyright: ignore[reportUnknownMemberType]
    return cast("pl.Series", made)


@to_series.register(TimestampType)
def _timestamps(type: TimestampType, values: list[Any]) -> pl.Series:
    # Polars takes five times as long to convert datetimes by itself, in both directions.
    since = [None if value is None else (value - _EPOCH) // _MICROSECOND for value in values]
    return pl.Series(values=since, dtype=pl.Int64(), strict=True).cast(pl.Datetime("us"))


@to_series.register(TimestampNtzType)
def _naive_timestamps(type: TimestampNtzType, values: list[Any]) -> pl.Series:
    return pl.Series(values=values, dtype=pl.Datetime("us"), strict=True)


@to_series.register(IntervalType)
def _intervals(type: IntervalType, values: list[Any]) -> pl.Series:
    # Polars' own conversion passes over what leaves 64 bits.
    micros = [None if value is None else value // _MICROSECOND for value in values]
    return pl.Series(values=micros, dtype=pl.Int64(), strict=True).cast(pl.Duration("us"))


@to_series.register(ListType)
def _lists(type: ListType, values: list[Any]) -> pl.Series:
    flat = to_series(type.element, [each for value in values if value is not None for each in value])
    lengths = [0 if value is None else len(value) for value in values]
    starts = _arrow.array([0, *accumulate(lengths)], _arrow.int64())
    absent = _arrow.array([value is None for value in values], _arrow.bool_())
    lists = _arrow.LargeListArray.from_arrays(starts, flat.to_arrow(), mask=absent)
    made = pl.from_arrow(lists)  # pyright: ignore[reportUnknownMemberType]
    return cast("pl.Series", made).cast(carried_dtype(type))


@singledispatch
def from_series(type: DataType, series: pl.Series) -> list[Any]:
    """Convert a column to internal values."""
    return series.to_list()


@from_series.register(FloatingType)
def _floats(type: FloatingType, series: pl.Series) -> list[Any]:
    values = series.to_list()
    if series.is_nan().any():
        # Rows hold one NaN, so that tuples with it are equal.
        return [NAN if v != v else v for v in values]
    return values


@from_series.register(DecimalType)
def _decimals(type: DecimalType, series: pl.Series) -> list[Any]:
    if len(series) < _FEW:
        return series.to_list()
    distinct = series.unique()
    if len(distinct) > len(series) // 4:
        return series.to_list()
    # A decimal takes ten times as long to make as to look up.
    known = dict(zip(distinct.to_physical().to_list(), distinct.to_list(), strict=True))
    return list(map(known.__getitem__, series.to_physical().to_list()))


@from_series.register(TimestampType)
def _moments(type: TimestampType, series: pl.Series) -> list[Any]:
    since = series.cast(pl.Int64)
    if since.null_count() == 0:
        try:
            # NumPy makes time spans of integers five times as fast as Python.
            spans = since.to_numpy().astype("timedelta64[us]").astype(object)
        except ImportError:
            pass
        else:
            return list(map(_EPOCH.__add__, spans))
    return [None if v is None else _EPOCH + timedelta(0, 0, v) for v in since.to_list()]


@from_series.register(IntervalType)
def _spans(type: IntervalType, series: pl.Series) -> list[Any]:
    return [None if v is None else timedelta(0, 0, v) for v in series.cast(pl.Int64).to_list()]


@from_series.register(ListType)
def _tuples(type: ListType, series: pl.Series) -> list[Any]:
    lengths = series.list.len()
    values = from_series(type.element, series.filter(lengths > 0).explode())
    at, made = 0, list[Any]()
    for length in lengths.to_list():
        made.append(None if length is None else tuple(values[at : at + length]))
        at += length or 0
    return made


def repeated(value: int | None, dtype: pl.DataType, count: int) -> pl.Series:
    """Return a column of one value."""
    # `pl.repeat` plans a query, which takes ten times as long.
    one = _ONE.get((value, dtype))
    if one is None:
        one = _ONE[value, dtype] = pl.Series([value], dtype=dtype)
    return one.new_from_index(0, count) if count else one.clear()


_ONE: dict[tuple[int | None, pl.DataType], pl.Series] = {}


ReadValue: TypeAlias = Callable[[Any], Any]
"""Function from a value that Polars gives to an internal one."""


def value_reader(type: DataType) -> ReadValue | None:
    """Return the conversion of a single value that Polars gives to an internal one; None if it is one."""
    if isinstance(type, FloatingType):
        return lambda value: value if value == value else NAN
    if isinstance(type, TimestampType):
        return lambda value: value.replace(tzinfo=UTC)
    return None


def row_reader(
    readers: Sequence[ReadValue | None],
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return the conversion of one row as `DataFrame.row` gives it, which is cheaper than that of columns.

    readers: of its first columns. What comes after these stays as it is.
    """
    odd = [(at, read) for at, read in enumerate(readers) if read is not None]
    if not odd:
        return tuple

    def convert(found: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(found)
        for at, read in odd:
            if values[at] is not None:
                values[at] = read(values[at])
        return tuple(values)

    return convert
