"""Aggregates over all values of a group in order: percentiles, histogram, mode, joined text, bits.

Percentiles are exact, of any number of values. Where several values are possible, the least is taken, so that
no result depends on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check, check_ordered
from headrace.expr.tree import Expr, Ordering
from headrace.expr.types import (
    FLOAT64,
    INTERVAL,
    STR,
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
from headrace.expr.typing_rules import is_integer
from headrace.operators.aggregates import Aggregation, of_distinct, summed_field
from headrace.operators.window_functions import orderings_of

if TYPE_CHECKING:
    from headrace.expr.types import DataType, Schema


@dataclass(frozen=True, slots=True)
class Percentile(Aggregation):
    """Value below which a part of the values lies, or a list of them; null if there are no values.

    at:         the part, from 0 to 1; several make a list.
    discrete:   the first value that so many do not exceed, of its own type; else interpolated, as a float or
                an interval.
    descending: count from the greatest value.
    frequency:  how often the value of a row counts, an integer from 0 on; 1 by default.
    """

    expr: Expr
    at: float | tuple[float, ...]
    discrete: bool = False
    descending: bool = False
    frequency: Expr | None = None

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,) if self.frequency is None else (self.expr, self.frequency)

    def field(self, name: str, schema: Schema) -> Field:
        check_parts(self.at if isinstance(self.at, tuple) else (self.at,))
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


@dataclass(frozen=True, slots=True)
class Mode(Aggregation):
    """Most frequent value, the least of several, or the greatest; null if there are no values."""

    expr: Expr
    greatest: bool = False

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def field(self, name: str, schema: Schema) -> Field:
        typed = check_ordered(self.expr, schema)
        return Field(name, typed.type, typed.nullable)


@dataclass(frozen=True, slots=True)
class StringAgg(Aggregation):
    """Text of all values, ordered by `by` and then by themselves; null if there are no values."""

    expr: Expr
    separator: str = ""
    by: tuple[Ordering, ...] = ()

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr, *(ordering.expr for ordering in self.by))

    def field(self, name: str, schema: Schema) -> Field:
        typed = check(self.expr, schema)
        if typed.type != STR:
            raise WrongType(
                f"string_agg needs text, got {typed.type}: {self.expr}",
                where=[SourceLocation.of_caller()],
                fix="cast(str) it, or use collect",
            )
        for ordering in self.by:
            check_ordered(ordering.expr, schema)
        return Field(name, STR, typed.nullable)

    def __str__(self) -> str:
        by = f", by {', '.join(map(str, self.by))}" if self.by else ""
        return f"string_agg({self.expr}, {self.separator!r}{by})"


class BitOperation(Enum):
    """How `Bits` combines integers."""

    AND = "and"
    OR = "or"
    XOR = "xor"


@dataclass(frozen=True, slots=True)
class Bits(Aggregation):
    """Bitwise combination of integers; null if there are no values."""

    expr: Expr
    operation: BitOperation

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def field(self, name: str, schema: Schema) -> Field:
        typed = check(self.expr, schema)
        if not is_integer(typed.type):
            raise WrongType(
                f"bit_{self.operation.value} needs integers, got {typed.type}: {self.expr}",
                where=[SourceLocation.of_caller()],
                fix="cast(int) it",
            )
        return Field(name, typed.type, typed.nullable)

    def __str__(self) -> str:
        return f"bit_{self.operation.value}({self.expr})"


def check_parts(parts: tuple[float, ...]) -> None:
    """Raise `WrongType` unless all parts of a percentile are from 0 to 1."""
    wrong = [part for part in parts if not 0 <= part <= 1]
    if wrong or not parts:
        raise WrongType(
            f"a percentile is from 0 to 1, got {wrong[0]}" if wrong else "a percentile of no parts",
            where=[SourceLocation.of_caller()],
            fix="percentile(..., 0.95), say, or a list of such parts",
        )


def check_bins(bins: object) -> None:
    """Raise `WrongType` unless a number of bins is an integer from 2 on, as Spark wants it."""
    if type(bins) is not int or bins < 2:
        raise WrongType(
            f"a histogram has 2 bins or more, got {bins!r}",
            where=[SourceLocation.of_caller()],
            fix="histogram_numeric(..., 10), say",
        )


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
    check_parts(parts)
    floats = tuple(map(float, parts))
    made = Percentile(expr, floats if isinstance(at, Sequence) else floats[0], discrete, frequency=frequency)
    return of_distinct(made, distinct)


def median(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Median of a numeric expression: the middle value, or the mean of the two in the middle."""
    return percentile(expr, 0.5, distinct=distinct)


def histogram_numeric(expr: Expr, bins: int, *, distinct: bool = False) -> Aggregation:
    """Histogram of integers or floats: at most `bins` structs of a center `x` and a count `y`, in order.

    Exact for as many different values as bins. Raises `WrongType` for less than 2 bins.
    """
    check_bins(bins)
    return of_distinct(Histogram(expr, bins), distinct)


def mode(expr: Expr, *, greatest: bool = False) -> Mode:
    """Most frequent value, the least of several, or the greatest."""
    return Mode(expr, greatest)


def string_agg(
    expr: Expr,
    separator: str = "",
    *,
    order_by: str | Expr | Ordering | Sequence[str | Expr | Ordering] = (),
    distinct: bool = False,
) -> Aggregation:
    """Text of all values of an expression, ordered by `order_by` and then by themselves.

    distinct: of equal texts with an equal order, one counts.
    """
    return of_distinct(StringAgg(expr, separator, orderings_of(order_by)), distinct)


def bit_and(expr: Expr) -> Bits:
    """Bits that are set in all values of an integer expression."""
    return Bits(expr, BitOperation.AND)


def bit_or(expr: Expr) -> Bits:
    """Bits that are set in any value of an integer expression."""
    return Bits(expr, BitOperation.OR)


def bit_xor(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Bits that are set in an odd number of values of an integer expression."""
    return of_distinct(Bits(expr, BitOperation.XOR), distinct)
