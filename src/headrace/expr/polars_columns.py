"""Row types and values as Polars columns, and row expressions lowered to Polars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import accumulate
from typing import Any, TypeAlias, cast

from headrace.expr.code_runtime import EXACT, NAN
from headrace.expr.types import (
    RANGES,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    FloatingType,
    Int8Type,
    Int16Type,
    Int32Type,
    Int64Type,
    IntegerType,
    IntervalType,
    ListType,
    StrType,
    TimestampNtzType,
    TimestampType,
)
from headrace.expr.typing_rules import CallTerm, LiteralTerm, Term
from headrace.requirements import pa, pl

_arrow: Any = pa
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FEW = 500
"""Number of decimals below which they are made sooner than distinct ones are found."""


class NotLowered(Exception):
    """Exception for an expression or type without a columnar form. The message is for `explain`."""


_DTYPES: Mapping[type[DataType], Callable[[Any], pl.DataType]] = {
    BoolType: lambda type: pl.Boolean(),
    BytesType: lambda type: pl.Binary(),
    DateType: lambda type: pl.Date(),
    DecimalType: lambda type: pl.Decimal(type.precision, type.scale),
    Float32Type: lambda type: pl.Float32(),
    Float64Type: lambda type: pl.Float64(),
    Int8Type: lambda type: pl.Int8(),
    Int16Type: lambda type: pl.Int16(),
    Int32Type: lambda type: pl.Int32(),
    Int64Type: lambda type: pl.Int64(),
    IntervalType: lambda type: pl.Duration("us"),
    StrType: lambda type: pl.String(),
    # All timestamps are UTC; without a zone Polars has none to look up.
    TimestampNtzType: lambda type: pl.Datetime("us"),
    TimestampType: lambda type: pl.Datetime("us"),
}


def polars_type(type: DataType) -> pl.DataType | None:
    """Return the Polars type of a column; None for types that stay in rows (nested values, any value)."""
    make = _DTYPES.get(type.__class__)
    return None if make is None else make(type)


def dtype_of(type: DataType) -> pl.DataType:
    """Return a column's Polars type. Raises `NotLowered` if it has none."""
    found = polars_type(type)
    if found is None:
        raise NotLowered(f"values of type {type} stay in rows")
    return found


def carried_dtype(type: DataType) -> pl.DataType:
    """Return the Polars type of a column that no operator compares or keeps, including lists of plain values.

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
    """Return the actual bounds of a column's values, in the form of `unscaled_bounds`."""
    if unscaled_bounds(type) is None:
        return None
    if series.null_count() == len(series):
        return 0, 0
    least, most = cast("Any", series.min()), cast("Any", series.max())
    if isinstance(type, DecimalType):
        # To take a decimal for an integer costs less than to take a column for one.
        return int(least.scaleb(type.scale, EXACT)), int(most.scaleb(type.scale, EXACT))
    return least, most


def to_series(type: DataType, values: list[Any]) -> pl.Series:
    """Convert internal values to a column.

    Raises Polars' own error for a value it cannot hold (half a surrogate).
    """
    convert = _TO_SERIES.get(type.__class__)
    return (
        pl.Series(values=values, dtype=dtype_of(type), strict=True)
        if convert is None
        else convert(type, values)
    )


def _by_arrow(values: list[Any], type: Any) -> pl.Series:
    # Polars takes five times as long to convert decimals and dates by itself.
    made = pl.from_arrow(_arrow.array(values, type))  # pyright: ignore[reportUnknownMemberType]
    return cast("pl.Series", made)


def _timestamps(type: DataType, values: list[Any]) -> pl.Series:
    # Polars takes five times as long to convert datetimes by itself, in both directions.
    since = [None if value is None else (value - _EPOCH) // _MICROSECOND for value in values]
    return pl.Series(values=since, dtype=pl.Int64(), strict=True).cast(pl.Datetime("us"))


def _intervals(type: DataType, values: list[Any]) -> pl.Series:
    # Polars' own conversion passes over what leaves 64 bits.
    micros = [None if value is None else value // _MICROSECOND for value in values]
    return pl.Series(values=micros, dtype=pl.Int64(), strict=True).cast(pl.Duration("us"))


def _lists(type: ListType, values: list[Any]) -> pl.Series:
    flat = to_series(type.element, [each for value in values if value is not None for each in value])
    lengths = [0 if value is None else len(value) for value in values]
    starts = _arrow.array([0, *accumulate(lengths)], _arrow.int64())
    absent = _arrow.array([value is None for value in values], _arrow.bool_())
    lists = _arrow.LargeListArray.from_arrays(starts, flat.to_arrow(), mask=absent)
    made = pl.from_arrow(lists)  # pyright: ignore[reportUnknownMemberType]
    return cast("pl.Series", made).cast(carried_dtype(type))


_TO_SERIES: Mapping[type[DataType], Callable[[Any, list[Any]], pl.Series]] = {
    DateType: lambda type, values: _by_arrow(values, _arrow.date32()),
    DecimalType: lambda type, values: _by_arrow(values, _arrow.decimal128(type.precision, type.scale)),
    IntervalType: _intervals,
    ListType: _lists,
    TimestampType: _timestamps,
}


def from_series(type: DataType, series: pl.Series) -> list[Any]:
    """Convert a column to internal values."""
    convert = _FROM_SERIES.get(type.__class__)
    return series.to_list() if convert is None else convert(type, series)


def _floats(type: DataType, series: pl.Series) -> list[Any]:
    values = series.to_list()
    if series.is_nan().any():
        # Rows hold one NaN, so that tuples with it are equal.
        return [NAN if v != v else v for v in values]
    return values


def _decimals(type: DataType, series: pl.Series) -> list[Any]:
    if len(series) < _FEW:
        return series.to_list()
    distinct = series.unique()
    if len(distinct) > len(series) // 4:
        return series.to_list()
    # A decimal takes ten times as long to make as to look up.
    known = dict(zip(distinct.to_physical().to_list(), distinct.to_list(), strict=True))
    return list(map(known.__getitem__, series.to_physical().to_list()))


def _moments(type: DataType, series: pl.Series) -> list[Any]:
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


def _spans(type: DataType, series: pl.Series) -> list[Any]:
    return [None if v is None else timedelta(0, 0, v) for v in series.cast(pl.Int64).to_list()]


def _tuples(type: ListType, series: pl.Series) -> list[Any]:
    lengths = series.list.len()
    values = from_series(type.element, series.filter(lengths > 0).explode())
    at, made = 0, list[Any]()
    for length in lengths.to_list():
        made.append(None if length is None else tuple(values[at : at + length]))
        at += length or 0
    return made


_FROM_SERIES: Mapping[type[DataType], Callable[[Any, pl.Series], list[Any]]] = {
    DecimalType: _decimals,
    Float32Type: _floats,
    Float64Type: _floats,
    IntervalType: _spans,
    ListType: _tuples,
    TimestampType: _moments,
}


def repeated(value: int | None, dtype: pl.DataType, count: int) -> pl.Series:
    """Return a column that repeats a value `count` times."""
    # `pl.repeat` plans a query, which takes ten times as long.
    one = _ONE.get((value, dtype))
    if one is None:
        one = _ONE[value, dtype] = pl.Series([value], dtype=dtype)
    return one.new_from_index(0, count) if count else one.clear()


_ONE: dict[tuple[int | None, pl.DataType], pl.Series] = {}


ReadValue: TypeAlias = Callable[[Any], Any]
"""Function from a value that Polars gives to an internal one."""


def value_reader(type: DataType) -> ReadValue | None:
    """Return the converter of a single Polars value to an internal one; None if none is needed."""
    if isinstance(type, FloatingType):
        return lambda value: value if value == value else NAN
    if isinstance(type, TimestampType):
        return lambda value: value.replace(tzinfo=UTC)
    return None


def row_reader(
    readers: Sequence[ReadValue | None],
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return the converter of one `DataFrame.row`, which is cheaper than converting columns.

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


# -- lowered expressions ------------------------------------------------------------------------

Bounds: TypeAlias = tuple[int, int]
"""Least and greatest integer that a column may hold, ignoring nulls."""


@dataclass(frozen=True, slots=True)
class LoweredExpression:
    """A lowered expression over the columns of a frame.

    bounds: bounds of an integer; None for other types.
    fails:  true on each row on which the row path might raise; None if it cannot.
    once:   of what is not to be repeated, the value, or a struct of the value and the failure, "v" and "f".
    """

    value: pl.Expr
    bounds: Bounds | None = None
    fails: pl.Expr | None = None
    once: pl.Expr | None = None


Lowering: TypeAlias = Callable[[CallTerm, Sequence[LoweredExpression]], LoweredExpression]
"""Function that lowers a call of a catalogue function, given its lowered arguments.

Of a strict function the failures of its arguments are added by the caller; a
lazy one says itself on which rows an argument is evaluated at all.
"""


def either_condition(*conditions: pl.Expr | None) -> pl.Expr | None:
    """Combine conditions by "or"; None if there are none."""
    given = [c for c in conditions if c is not None]
    return reduce(lambda a, b: a | b, given) if given else None


def restrict_failure(condition: pl.Expr, fails: pl.Expr | None) -> pl.Expr | None:
    """Restrict a failure condition to rows where `condition` is true."""
    return None if fails is None else condition & fails


def replace_negative_zero(value: pl.Expr) -> pl.Expr:
    """Replace -0.0 with 0.0 in a float column. (Adding 0.0 does not help: Polars skips it.)"""
    return pl.when(value == 0.0).then(pl.lit(0.0)).otherwise(value)


def spread(value: pl.Expr | float, beside: pl.Expr, dtype: pl.DataType | None = None) -> pl.Expr:
    """Return `value` as a column with one float per row of `beside`, even if it is a single float.

    With one for all rows Polars takes short cuts: it adds no 0.0, which turns -0.0 into 0.0,
    and multiplies by the reciprocal of a divisor, which is off in the last bit.
    """
    return (beside.is_null().cast(dtype or pl.Float64()) * 0.0 + 1.0) * value


def quotient(dividend: pl.Expr, divisor: pl.Expr | float) -> pl.Expr:
    """Divide 64-bit floats by nonzero divisors."""
    return dividend / spread(divisor, dividend)


def constant_value(term: Term) -> object:
    """Return the value of a constant term; None for any other term."""
    return term.value if isinstance(term, LiteralTerm) else None


def bounds_of(lowered: LoweredExpression) -> Bounds:
    """Return the bounds of a lowered integer."""
    assert lowered.bounds is not None
    return lowered.bounds


def bounds_hull(lowered: Sequence[LoweredExpression]) -> Bounds | None:
    """Return the smallest bounds that contain all the given ones; None for non-integers."""
    known = [one.bounds for one in lowered if one.bounds is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def lower_bounded_integer(
    value: pl.Expr, bounds: Bounds, type: DataType, might_leave: Callable[[], pl.Expr]
) -> LoweredExpression:
    """Lower an integer of `type` whose exact value lies within `bounds`.

    might_leave: true on each row where the exact value leaves the type; asked
    only where the bounds do not rule it out.
    """
    low, high = RANGES[type]
    if low <= bounds[0] and bounds[1] <= high:
        return LoweredExpression(value, bounds)
    # Beyond the type nothing is right, and nothing is used: the tick runs in rows.
    return LoweredExpression(value, (low, high), might_leave())
