"""Percentiles and the mode.

Percentiles are exact, of any number of values. Where several values are possible, the least is taken, so that
no result depends on the order of arrival.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from math import ceil, floor
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import EvaluationError, NotOnSpark, SourceLocation, WrongType
from headrace.expr.check import check, check_ordered
from headrace.expr.code_runtime import NAN
from headrace.expr.functions.intervals import micros_of, of_micros
from headrace.expr.types import FLOAT64, INTERVAL, DataType, Field, IntervalType, ListType
from headrace.expr.typing_rules import is_integer
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import rank
from headrace.operators.aggregate.aggregation import (
    Accumulator,
    AggregateArguments,
    Aggregation,
    ArgumentRows,
    ArgumentTypes,
    NativeAggregates,
    Target,
    accumulator_of,
    answer_of,
    measure,
    present_values,
    summed_field,
)
from headrace.operators.aggregate.counts import of_distinct
from headrace.operators.aggregate.extremes import Copies, SortedValues, Values
from headrace.requirements import F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema


@dataclass(frozen=True, slots=True)
class Percentile(Aggregation):
    """Percentile of the values, or a list of several; null if there are no values.

    at:         the part, from 0 to 1; several make a list.
    discrete:   the first value that so many do not exceed, of its own type; else interpolated, as a float or
                an interval.
    descending: count from the greatest value.
    frequency:  how often the value of a row counts, an integer from 0 on; 1 by default.
    """

    distinct_on_spark: ClassVar[bool] = True
    expr: Expr
    at: float | tuple[float, ...]
    discrete: bool = False
    descending: bool = False
    frequency: Expr | None = None

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,) if self.frequency is None else (self.expr, self.frequency)

    def field(self, name: str, schema: Schema) -> Field:
        check_percentages(self.at if isinstance(self.at, tuple) else (self.at,))
        each: DataType
        counted = None if self.frequency is None else check(self.frequency, schema)
        if counted is not None and not is_integer(counted.type):
            raise WrongType(
                f"a frequency is an integer, got {counted.type}: {self.frequency}",
                where=[SourceLocation.of_caller()],
                fix="cast(int) it",
            )
        if self.discrete:
            typed = check_ordered(self.expr, schema)
            each, nullable = typed.type, typed.nullable
        else:
            summed = summed_field("percentile", self.expr, schema)
            each = INTERVAL if isinstance(summed.type, IntervalType) else FLOAT64
            nullable = summed.nullable
        # Rows that do not count may be all that there are.
        nullable = nullable or counted is not None
        return Field(name, ListType(each, False) if isinstance(self.at, tuple) else each, nullable)

    def __str__(self) -> str:
        at = list(self.at) if isinstance(self.at, tuple) else self.at
        often = "" if self.frequency is None else f", frequency {self.frequency}"
        return f"percentile({self.expr}, {at}{', discrete' if self.discrete else ''}{often})"


def check_percentages(parts: tuple[float, ...]) -> None:
    """Raise `WrongType` unless all fractions of a percentile are between 0 and 1."""
    wrong = [part for part in parts if not 0 <= part <= 1]
    if wrong or not parts:
        raise WrongType(
            f"a percentile is from 0 to 1, got {wrong[0]}" if wrong else "a percentile of no parts",
            where=[SourceLocation.of_caller()],
            fix="percentile(..., 0.95), say, or a list of such parts",
        )


@dataclass(frozen=True, slots=True)
class Mode(Aggregation):
    """Most frequent value; the least or the greatest, if there are several; null if there are no values."""

    expr: Expr
    greatest: bool = False

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def field(self, name: str, schema: Schema) -> Field:
        typed = check_ordered(self.expr, schema)
        return Field(name, typed.type, typed.nullable)


def percentile(
    expr: Expr,
    at: float | Sequence[float],
    *,
    discrete: bool = False,
    distinct: bool = False,
    frequency: Expr | None = None,
) -> Aggregation:
    """Percentile of a numeric expression, interpolated, or a list of several.

    at:        from 0 to 1; 0.5 is the median.
    discrete:  the first value that so many do not exceed, of any type, instead of an interpolated one.
    frequency: how often the value of a row counts, an integer; a negative one raises `EvaluationError`.

    Raises `WrongType` for an `at` beyond 0 and 1.
    """
    parts = tuple(at) if isinstance(at, Sequence) else (at,)
    check_percentages(parts)
    floats = tuple(map(float, parts))
    made = Percentile(expr, floats if isinstance(at, Sequence) else floats[0], discrete, frequency=frequency)
    return of_distinct(made, distinct)


def median(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Median of a numeric expression: the middle value, or the mean of the two in the middle."""
    return percentile(expr, 0.5, distinct=distinct)


def mode(expr: Expr, *, greatest: bool = False) -> Mode:
    """Most frequent value; the least or the greatest, if there are several."""
    return Mode(expr, greatest)


# --- accumulators ------------------------------------------------------------------------------------


class WeightedValues(SortedValues):
    """Sorted values with given frequencies."""

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        value, frequency = arguments
        copies = f"x_frequency({frequency}) * ({weight or '1'})"
        to.code.line(f"x_add_ordered_value({to.group}, {to.at}, {value}, {copies})")


@accumulator_of.register(Percentile)
def _accumulate_percentile(aggregation: Percentile, types: ArgumentTypes, append: bool) -> Accumulator:
    how = aggregation.at, aggregation.discrete, aggregation.descending
    kind = SortedValues if aggregation.frequency is None else WeightedValues
    return kind(types, append, "x_percentiles", *how)


@accumulator_of.register(Mode)
def _accumulate_mode(aggregation: Mode, types: ArgumentTypes, append: bool) -> Accumulator:
    return SortedValues(types, append, "x_mode", aggregation.greatest)


def percentiles_of(
    values: Values, copies: Copies, at: float | tuple[float, ...], discrete: bool, descending: bool
) -> Any:
    """Return the percentile of a non-empty multiset, or a tuple of several."""
    ordered = list(values)[:: -1 if descending else 1]
    ends = list(accumulate(copies[value] for value in ordered))

    def at_place(place: int) -> Any:
        return ordered[bisect_right(ends, place)]

    def one(part: float) -> Any:
        if discrete:
            return at_place(max(0, ceil(ends[-1] * part) - 1))
        return interpolate(at_place, (ends[-1] - 1) * part)

    return tuple(map(one, at)) if isinstance(at, tuple) else one(at)


def interpolate(at_place: Callable[[int], Any], place: float) -> float | timedelta:
    """Interpolate between the values before and after a position, as Spark does."""
    before, behind = at_place(floor(place)), at_place(ceil(place))
    if isinstance(before, timedelta):
        # Spark cuts a fraction of a microsecond, and what its floats have beyond the longest interval.
        micros = _between(micros_of(before), micros_of(behind), place)
        return of_micros(max(-(2**63), min(int(micros), 2**63 - 1)))
    return _between(before, behind, place)


def _between(before: Any, behind: Any, place: float) -> float:
    least = float(before)
    if before == behind:
        return least
    found = least + (place - floor(place)) * (float(behind) - least)
    return found if found == found else NAN


def check_frequency(given: int) -> int:
    """Return the frequency of a value. Raises `EvaluationError` if it is negative."""
    if given < 0:
        raise EvaluationError(f"a check_frequency of a percentile is negative: {given}")
    return given


def most_frequent(values: Values, copies: Copies, greatest: bool) -> Any:
    """Return the most frequent value of a non-empty multiset."""
    return max(list(values)[:: -1 if greatest else 1], key=copies.__getitem__)


register_runtime(
    {
        "x_percentiles": percentiles_of,
        "x_frequency": check_frequency,
        "x_mode": most_frequent,
    }
)


# --- on Spark ----------------------------------------------------------------------------------------


@measure.register(Percentile)
def _measure_percentile(aggregation: Percentile, to: AggregateArguments) -> NativeAggregates:
    if aggregation.frequency is not None:
        return _measure_with_frequency(aggregation, to)

    def answer(values: Column) -> Column:
        ordered = F.sort_array(values, asc=not aggregation.descending)
        between = _interpolated_interval if isinstance(to.types[0], IntervalType) else _interpolated
        one = _discrete if aggregation.discrete else between
        if isinstance(aggregation.at, tuple):
            several = F.array(*(one(ordered, at) for at in aggregation.at))
            return F.when(F.size(values) > 0, several)
        return one(ordered, aggregation.at)

    return NativeAggregates((to.values(),), answer)


def _measure_with_frequency(aggregation: Percentile, to: AggregateArguments) -> NativeAggregates:
    if aggregation.discrete or aggregation.descending:
        raise NotOnSpark(f"{aggregation} has no form as a batch on Spark")
    several = aggregation.at if isinstance(aggregation.at, tuple) else (aggregation.at,)
    parts = ", ".join(f"{part!r}D" for part in several)
    at = f"array({parts})" if isinstance(aggregation.at, tuple) else parts
    return NativeAggregates((to.sql(f"percentile({{of}} {{0}}, {at}, `{to.names[1]}`)"),))


def _discrete(ordered: Column, at: float) -> Column:
    return F.get(ordered, F.greatest(F.ceil(F.size(ordered) * F.lit(at)).cast("int") - 1, F.lit(0)))


def _interpolated(ordered: Column, at: float) -> Column:
    place = (F.size(ordered) - 1) * F.lit(at)
    before, behind = F.floor(place), F.ceil(place)
    least, most = F.get(ordered, before.cast("int")), F.get(ordered, behind.cast("int"))
    start = least.cast("double")
    between = start + (place - before) * (most.cast("double") - start)
    return F.when(least == most, start).otherwise(between)


def _interpolated_interval(ordered: Column, at: float) -> Column:
    unit = F.lit(timedelta(microseconds=1))
    micros = _interpolated(F.transform(ordered, lambda each: F.call_function("div", each, unit)), at)
    longest = F.lit(2**63 - 1)
    return unit * F.when(micros < 2.0**63, micros.cast("bigint")).when(micros.isNotNull(), longest)


@measure.register(Mode)
def _measure_mode(aggregation: Mode, to: AggregateArguments) -> NativeAggregates:
    order = "DESC" if aggregation.greatest else "ASC"
    return NativeAggregates((to.sql(f"mode() WITHIN GROUP (ORDER BY {{0}} {order})"),))


# --- reference answers -------------------------------------------------------------------------------


@answer_of.register(Percentile)
def _answer_percentile(aggregation: Percentile, result: DataType, rows: ArgumentRows) -> Any:
    if aggregation.frequency is not None:
        rows = [(value,) for value, copies in rows if copies is not None for _ in range(copies)]
    values = sorted(present_values(rows), key=rank, reverse=aggregation.descending)
    if not values:
        return None
    if isinstance(aggregation.at, tuple):
        return tuple(_percentile_at(values, at, discrete=aggregation.discrete) for at in aggregation.at)
    return _percentile_at(values, aggregation.at, discrete=aggregation.discrete)


def _percentile_at(values: list[Any], at: float, *, discrete: bool) -> Any:
    if discrete:
        return next(value for place, value in enumerate(values, 1) if place >= len(values) * at)
    place = (len(values) - 1) * at
    before, behind = values[math.floor(place)], values[math.ceil(place)]
    if isinstance(before, timedelta):
        micros = [each // timedelta(microseconds=1) for each in values]
        found = int(_percentile_at(micros, at, discrete=False))
        return timedelta(microseconds=min(found, 2**63 - 1))
    if before == behind:
        return float(before)
    found = float(before) + (place - math.floor(place)) * (float(behind) - float(before))
    return NAN if math.isnan(found) else found


@answer_of.register(Mode)
def _answer_mode(aggregation: Mode, result: DataType, rows: ArgumentRows) -> Any:
    values = sorted(present_values(rows), key=rank, reverse=aggregation.greatest)
    return max(values, key=values.count, default=None)
