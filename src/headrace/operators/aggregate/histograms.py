"""Histograms of ordered values by the algorithm of Ben-Haim and Tom-Tov."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.code_runtime import EPOCH, NAN, DecimalSpec, float32, round_to_scale
from headrace.expr.functions.cast_columns import moment_in_utc, without_zone
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import (
    DATE,
    FLOAT32,
    FLOAT64,
    INT64,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import rank
from headrace.operators.aggregate.aggregation import (
    Accumulator,
    AggregateArguments,
    Aggregation,
    ArgumentRows,
    ArgumentTypes,
    NativeAggregates,
    accumulator_of,
    answer_of,
    measure,
    present_values,
)
from headrace.operators.aggregate.counts import of_distinct
from headrace.operators.aggregate.extremes import Copies, SortedValues, Values
from headrace.requirements import F

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema

_WITH_HISTOGRAMS = (
    *(IntegerType, Float32Type, Float64Type, DecimalType),
    *(DateType, TimestampType, TimestampNtzType),
)


@dataclass(frozen=True, slots=True)
class Histogram(Aggregation):
    """List of at most `bins` structs of a center `x` and a count `y`, in order; null if there are no values.

    The bins are those of Ben-Haim and Tom-Tov, of the values in order: where there are too many, the two
    closest ones become one, at their mean weighted by count; of several such pairs, the first one. A time
    counts as its microseconds, a date as its days; a center is cut to be one again, and is the
    greatest value of its type if it would be beyond that.
    """

    distinct_on_spark: ClassVar[bool] = True
    expr: Expr
    bins: int

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def field(self, name: str, schema: Schema) -> Field:
        check_bins(self.bins)
        typed = check(self.expr, schema)
        if not isinstance(typed.type, _WITH_HISTOGRAMS):
            raise WrongType(
                f"histogram_numeric needs numbers or times, got {typed.type}: {self.expr}",
                where=[SourceLocation.of_caller()],
                fix="cast(int) it" if isinstance(typed.type, IntervalType) else "cast(float) it",
            )
        parts = StructType((Field("x", typed.type, False), Field("y", FLOAT64, False)))
        return Field(name, ListType(parts, False), typed.nullable)

    def __str__(self) -> str:
        return f"histogram_numeric({self.expr}, {self.bins})"


def check_bins(bins: object) -> None:
    """Raise `WrongType` unless a number of bins is an integer of at least 2, as Spark requires."""
    if type(bins) is not int or bins < 2:
        raise WrongType(
            f"a histogram has 2 bins or more, got {bins!r}",
            where=[SourceLocation.of_caller()],
            fix="histogram_numeric(..., 10), say",
        )


def histogram_numeric(expr: Expr, bins: int, *, distinct: bool = False) -> Aggregation:
    """Histogram of integers or floats: at most `bins` structs of a center `x` and a count `y`, in order.

    Exact for as many different values as bins. Raises `WrongType` for less than 2 bins.
    """
    check_bins(bins)
    return of_distinct(Histogram(expr, bins), distinct)


# --- accumulator -------------------------------------------------------------------------------------


@accumulator_of.register(Histogram)
def _accumulate(aggregation: Histogram, types: ArgumentTypes, append: bool) -> Accumulator:
    return SortedValues(types, append, "x_histogram", aggregation.bins, *numbers_of(types[0].type))


def histogram_of(
    values: Values,
    copies: Copies,
    bins: int,
    number: Callable[[Any], float],
    value_of: Callable[[float], Any],
) -> tuple[tuple[Any, float], ...]:
    """Return the bins of a non-empty multiset, centers with counts. number, value_of: to floats and back."""
    found: list[tuple[float, float]] = []
    ordered = iter(values)
    pending = next(ordered)
    center, count = number(pending), copies[pending]
    for value in ordered:
        # Several integers may be one float.
        if (at := number(value)) != center:
            _add_bin(found, center, float(count), bins)
            center, count = at, 0
        count += copies[value]
    _add_bin(found, center, float(count), bins)
    return tuple((value_of(center), count) for center, count in found)


def _add_bin(found: list[tuple[float, float]], center: float, count: float, most: int) -> None:
    """Append a bin. If there are now more than `most`, merge the two closest ones."""
    found.append((center, count))
    if len(found) <= most:
        return
    gaps = [after[0] - before[0] for before, after in pairwise(found)]
    at = min(range(most), key=lambda place: (gaps[place] != gaps[place], gaps[place]))
    (x, y), (next_x, next_y) = found[at : at + 2]
    total = y + next_y
    middle = x * (y / total) + next_x / total * next_y
    found[at : at + 2] = [(middle if middle == middle else NAN, total)]


_MAX_INT64 = 2**63 - 1
_FIRST_DAY = EPOCH.date().toordinal()


_MICROSECOND = timedelta(microseconds=1)


LAST_MICROSECOND = (datetime.max - EPOCH.replace(tzinfo=None)) // _MICROSECOND


def greatest_decimal(type: DecimalType) -> Decimal:
    """Return the greatest value of a decimal type."""
    return Decimal((0, (9,) * type.precision, -type.scale))


def numbers_of(type: DataType) -> tuple[Callable[[Any], float], Callable[[float], Any]]:
    """Return the functions that convert values of a type to floats, and back.

    The greatest integers, decimals and times are no floats: those near to them become the greatest value.
    """
    match type:
        case IntegerType():
            return float, lambda number: min(int(number), _MAX_INT64)
        case DecimalType():
            shape, most = DecimalSpec.of(type), greatest_decimal(type)
            least = most.copy_negate()
            return float, lambda number: round_to_scale(min(max(Decimal(repr(number)), least), most), shape)
        case DateType():
            return (
                lambda day: float(day.toordinal() - _FIRST_DAY),
                lambda number: date.fromordinal(int(number) + _FIRST_DAY),
            )
        case TimestampType() | TimestampNtzType():
            start = EPOCH if isinstance(type, TimestampType) else EPOCH.replace(tzinfo=None)
            return (
                lambda moment: float((moment - start) // _MICROSECOND),
                lambda number: start + timedelta(microseconds=min(int(number), LAST_MICROSECOND)),
            )
        case Float32Type():
            return float, float32
        case _:
            return float, float


register_runtime({"x_histogram": histogram_of})


# --- on Spark ------------------------------------------------------------------------------------

_BINS = "array<struct<x:double,y:double>>"


@measure.register(Histogram)
def _measure(aggregation: Histogram, to: AggregateArguments) -> NativeAggregates:
    bins, (type,) = aggregation.bins, to.types

    def histogram(values: Column) -> Column:
        # A bin is pending until a greater value comes, so that equal ones are in it before bins are merged.
        ordered = F.array_sort(F.transform(values, lambda value: _number(value, type).cast("double")))
        nothing = F.struct(
            F.array().cast(_BINS).alias("bins"),
            F.lit(None).cast("double").alias("x"),
            F.lit(0.0).alias("y"),
        )
        found = F.aggregate(ordered, nothing, lambda state, value: _with_value(state, value, bins), finished)
        return F.when(F.size(values) > 0, found)

    def finished(state: Column) -> Column:
        return F.transform(
            _with_pending(state, bins), lambda each: _bin(_value_of(each["x"], type), each["y"])
        )

    return NativeAggregates((to.values(),), histogram)


def _number(value: Column, type: DataType) -> Column:
    if type == DATE:
        return F.unix_date(value)
    if type in (TIMESTAMP, TIMESTAMP_NTZ):
        return F.unix_micros(moment_in_utc(value) if type == TIMESTAMP_NTZ else value)
    return value


def _value_of(x: Column, type: DataType) -> Column:
    """Convert a number to a value of a type."""
    if type == DATE:
        return F.date_from_unix_date(x.cast("int"))
    if type in (TIMESTAMP, TIMESTAMP_NTZ):
        moment = F.timestamp_micros(F.least(x.cast("long"), F.lit(LAST_MICROSECOND)))
        return without_zone(moment) if type == TIMESTAMP_NTZ else moment
    if isinstance(type, DecimalType):
        most = greatest_decimal(type)
        # Spark's minus would round to 34 digits.
        beyond = F.when(x > 0, F.lit(most)).otherwise(F.lit(most.copy_negate()))
        return F.coalesce(x.try_cast(spark_type(type)), beyond)
    # The greatest integers are not floats.
    whole = F.when(x < 2.0**63, x.cast("long")).otherwise(F.lit(2**63 - 1)) if type == INT64 else x
    return whole.cast(spark_type(type))


def _with_value(state: Column, value: Column, bins: int) -> Column:
    more = F.struct(state["bins"].alias("bins"), state["x"].alias("x"), (state["y"] + 1.0).alias("y"))
    other = F.struct(_with_pending(state, bins).alias("bins"), value.alias("x"), F.lit(1.0).alias("y"))
    return F.when(state["x"].eqNullSafe(value), more).otherwise(other)


def _with_pending(state: Column, bins: int) -> Column:
    grown = F.concat(state["bins"], F.array(_bin(state["x"], state["y"])))
    # Within a function of elements, the grown list is computed once.
    merged = F.transform(F.array(grown), lambda each: _merged(each, bins))[0]
    return F.when(state["x"].isNull(), state["bins"]).otherwise(merged)


def _merged(found: Column, bins: int) -> Column:
    """Merge the two closest bins if there are too many."""

    def merge(at: Column) -> Column:
        one, other = F.get(found, at - 1), F.get(found, at)
        total = one["y"] + other["y"]
        x = one["x"] * (one["y"] / total) + other["x"] / total * other["y"]
        behind = F.slice(found, at + 2, F.lit(bins))
        return F.concat(F.slice(found, F.lit(1), at - 1), F.array(_bin(x, total)), behind)

    gaps = F.zip_with(F.slice(found, 1, bins), F.slice(found, 2, bins), lambda a, b: b["x"] - a["x"])
    closest = F.transform(F.array(gaps), lambda each: F.array_position(each, F.array_min(each)).cast("int"))
    return F.when(F.size(found) > bins, F.transform(closest, merge)[0]).otherwise(found)


def _bin(x: Column, y: Column) -> Column:
    return F.struct(x.alias("x"), y.alias("y"))


# --- reference answers -------------------------------------------------------------------------------


@answer_of.register(Histogram)
def _answer(aggregation: Histogram, result: DataType, rows: ArgumentRows) -> Any:
    values = [_as_number(value) for value in present_values(rows)]
    bins: list[tuple[float, float]] = []
    for center in sorted({rank(value): value for value in values}.values(), key=rank):
        bins.append((center, float(sum(rank(value) == rank(center) for value in values))))
        if len(bins) > aggregation.bins:
            at = min(range(len(bins) - 1), key=lambda at: rank(bins[at + 1][0] - bins[at][0]))
            (x, y), (next_x, next_y) = bins[at], bins[at + 1]
            middle = x * (y / (y + next_y)) + next_x / (y + next_y) * next_y
            bins[at : at + 2] = [(NAN if math.isnan(middle) else middle, y + next_y)]
    assert isinstance(result, ListType)
    assert isinstance(result.element, StructType)
    return tuple((_of_number(x, result.element.fields[0].type), y) for x, y in bins) or None


def _as_number(value: Any) -> float:
    if isinstance(value, datetime):
        return float((value - datetime(1970, 1, 1, tzinfo=value.tzinfo)) // timedelta(microseconds=1))
    return float((value - date(1970, 1, 1)).days if isinstance(value, date) else value)


def _of_number(x: float, type: DataType) -> Any:
    if type == FLOAT64:
        return x
    if type == FLOAT32:
        return float32(x)
    if isinstance(type, DecimalType):
        with localcontext(Context(prec=80, rounding=ROUND_HALF_UP)):
            most = (Decimal(10) ** type.precision - 1).scaleb(-type.scale)
            return min(max(Decimal(repr(x)), -most), most).quantize(most)
    if type == DATE:
        return date(1970, 1, 1) + timedelta(days=int(x))
    if type in (TIMESTAMP, TIMESTAMP_NTZ):
        start, micros = datetime(1970, 1, 1), timedelta(microseconds=1)
        found = start + min(int(x), (datetime.max - start) // micros) * micros
        return found.replace(tzinfo=UTC) if type == TIMESTAMP else found
    return min(int(x), 2**63 - 1)
