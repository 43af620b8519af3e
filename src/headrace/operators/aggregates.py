"""Aggregate functions as data: `hr.sum(col.price)` and the like.

All of them ignore nulls, except `count()` of rows. No result depends on the order of arrival: float sums are
exact and rounded once, `first` and `last` take an order, `collect` sorts.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check, check_ordered
from headrace.expr.constructors import struct, when
from headrace.expr.tree import operand
from headrace.expr.types import (
    FLOAT64,
    INT64,
    INTERVAL,
    DataType,
    DecimalType,
    Field,
    IntervalType,
    ListType,
    Schema,
)
from headrace.expr.typing_rules import is_float, is_number
from headrace.operators.window_functions import WindowFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext


@dataclass(frozen=True, slots=True)
class Aggregation(WindowFunction):
    """Base of the aggregate functions, which are window functions, too, with `over`.

    only_grows: whether further rows never decrease the result.
    """

    ordered: ClassVar[bool] = False
    framed: ClassVar[bool] = True
    only_grows: ClassVar[bool] = False

    def arguments(self) -> tuple[Expr, ...]:
        """Expressions over the input columns."""
        return tuple(v for v in (getattr(self, f.name) for f in fields(self)) if v is not None)

    @abstractmethod
    def field(self, name: str, schema: Schema) -> Field:
        """Return the output column. Raises `WrongType`, and the errors of invalid arguments."""

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({', '.join(str(a) for a in self.arguments())})"


@dataclass(frozen=True, slots=True)
class _OfValues(Aggregation):
    """Base of aggregates over one expression, whose type is the default result type."""

    expr: Expr

    def field(self, name: str, schema: Schema) -> Field:
        typed = check(self.expr, schema)
        return Field(name, typed.type, typed.nullable)


@dataclass(frozen=True, slots=True)
class _ByOrder(Aggregation):
    """Base of aggregates that return `expr` of the first or last row, ordered by `by`."""

    expr: Expr
    by: Expr

    def field(self, name: str, schema: Schema) -> Field:
        typed, by = check(self.expr, schema), check_ordered(self.by, schema)
        return Field(name, typed.type, typed.nullable or by.nullable)


def number_field(function: str, expr: Expr, schema: Schema) -> Field:
    """Return the type of a numeric argument. Raises `WrongType` for others."""
    typed = check(expr, schema)
    if not is_number(typed.type):
        raise WrongType(
            f"{function} needs numbers, got {typed.type}: {expr}",
            where=[SourceLocation.of_caller()],
            fix="cast() it, or use min, max, count, count_distinct, collect",
        )
    return Field("", typed.type, typed.nullable)


def summed_field(function: str, expr: Expr, schema: Schema) -> Field:
    """Return the type of an argument that is a number or an interval. Raises `WrongType` for others."""
    typed = check(expr, schema)
    if isinstance(typed.type, IntervalType):
        return Field("", typed.type, typed.nullable)
    return number_field(function, expr, schema)


@dataclass(frozen=True, slots=True)
class Count(Aggregation):
    """Number of rows of the group, or of those with a non-null `expr`."""

    only_grows: ClassVar[bool] = True
    expr: Expr | None = None

    @property
    def of_no_rows(self) -> int:
        return 0

    def field(self, name: str, schema: Schema) -> Field:
        if self.expr is not None:
            check(self.expr, schema)
        return Field(name, INT64)


class Sum(_OfValues):
    """Sum of the non-null values; null if there are none. Integers sum to int64 and raise on overflow."""

    __slots__ = ()

    def field(self, name: str, schema: Schema) -> Field:
        number = summed_field("sum", self.expr, schema)
        return Field(name, _sum_type(number.type), number.nullable)


def _at_most(value: int, bound: int) -> int:
    return value if value < bound else bound


def _sum_type(argument: DataType) -> DataType:
    if isinstance(argument, IntervalType):
        return argument
    if isinstance(argument, DecimalType):
        return decimal_sum_type(argument)
    return FLOAT64 if is_float(argument) else INT64


def decimal_sum_type(argument: DecimalType) -> DecimalType:
    """Return the type of a sum of decimals."""
    return DecimalType(_at_most(argument.precision + 10, 38), argument.scale)


def decimal_mean_type(argument: DecimalType) -> DecimalType:
    """Return the type of a mean of decimals."""
    precision = _at_most(argument.precision + 4, 38)
    return DecimalType(precision, _at_most(argument.scale + 4, precision))


class Mean(_OfValues):
    """Exact mean of the non-null values, rounded once; null if there are none."""

    __slots__ = ()

    def field(self, name: str, schema: Schema) -> Field:
        number = summed_field("mean", self.expr, schema)
        if isinstance(number.type, IntervalType):
            return Field(name, INTERVAL, number.nullable)
        result = decimal_mean_type(number.type) if isinstance(number.type, DecimalType) else FLOAT64
        return Field(name, result, number.nullable)


class _Extreme(_OfValues):
    """Base of aggregates that compare values."""

    __slots__ = ()

    def field(self, name: str, schema: Schema) -> Field:
        typed = check_ordered(self.expr, schema)
        return Field(name, typed.type, typed.nullable)


class Min(_Extreme):
    """Least value; NaN is greatest. Null if every value is null."""

    __slots__ = ()


class Max(_Extreme):
    """Greatest value; NaN is greatest. Null if every value is null."""

    __slots__ = ()

    only_grows: ClassVar[bool] = True


class CountDistinct(_OfValues):
    """Number of distinct non-null values."""

    __slots__ = ()

    only_grows: ClassVar[bool] = True

    @property
    def of_no_rows(self) -> int:
        return 0

    def field(self, name: str, schema: Schema) -> Field:
        check(self.expr, schema)
        return Field(name, INT64)

    def __str__(self) -> str:
        return f"count_distinct({self.expr})"


class First(_ByOrder):
    """Value of `expr` in the row with the least `by`. Ties go to the least `expr`, null first.

    Rows whose `by` is null do not take part; null if none does.
    """

    __slots__ = ()


class Last(_ByOrder):
    """Value of `expr` in the row with the greatest `by`. Ties go to the greatest `expr`.

    Rows whose `by` is null do not take part; null if none does.
    """

    __slots__ = ()


class Collect(_OfValues):
    """Sorted list of the non-null values, duplicates included."""

    __slots__ = ()

    def field(self, name: str, schema: Schema) -> Field:
        return Field(name, ListType(check(self.expr, schema).type))

    @property
    def of_no_rows(self) -> tuple[()]:
        return ()


@dataclass(frozen=True, slots=True)
class OfDistinct(Aggregation):
    """Another aggregate, of the distinct values of its arguments."""

    of: Aggregation

    @property
    def of_no_rows(self) -> Any:
        return self.of.of_no_rows

    def arguments(self) -> tuple[Expr, ...]:
        return self.of.arguments()

    def field(self, name: str, schema: Schema) -> Field:
        return self.of.field(name, schema)

    def __str__(self) -> str:
        return str(self.of).replace("(", "(distinct ", 1)


@dataclass(frozen=True, slots=True)
class NullOnError(Aggregation):
    """Another aggregate, a sum or a mean, but null where it does not fit its type."""

    of: Aggregation

    def arguments(self) -> tuple[Expr, ...]:
        return self.of.arguments()

    def field(self, name: str, schema: Schema) -> Field:
        return replace(self.of.field(name, schema), nullable=True)

    def __str__(self) -> str:
        return f"try_{self.of}"


def of_distinct(aggregation: Aggregation, distinct: bool) -> Aggregation:
    """Wrap an aggregate if it is one of distinct values."""
    return OfDistinct(aggregation) if distinct else aggregation


def count(expr: Expr | None = None) -> Count:
    """Number of rows of the group, or of those with a non-null `expr`."""
    return Count(expr)


def sum(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Sum of a numeric expression, or of its distinct values."""
    return of_distinct(Sum(expr), distinct)


def min(expr: Expr) -> Min:
    """Least value of an expression."""
    return Min(expr)


def max(expr: Expr) -> Max:
    """Greatest value of an expression."""
    return Max(expr)


def mean(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Mean of a numeric expression, or of its distinct values."""
    return of_distinct(Mean(expr), distinct)


def count_distinct(expr: Expr, *more: Expr) -> CountDistinct:
    """Number of distinct non-null values, or of distinct rows of several expressions without a null."""
    if not more:
        return CountDistinct(expr)
    several = [operand(each) for each in (expr, *more)]
    known = several[0].is_not_null()
    for each in several[1:]:
        known &= each.is_not_null()
    values = {f"value {at}": each for at, each in enumerate(several)}
    return CountDistinct(when(known, struct(**values)))


def first(expr: Expr, *, by: Expr) -> First:
    """Value of `expr` in the row with the least `by`."""
    return First(expr, by)


def last(expr: Expr, *, by: Expr) -> Last:
    """Value of `expr` in the row with the greatest `by`."""
    return Last(expr, by)


def collect(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Sorted list of the non-null values, or of the distinct ones."""
    return of_distinct(Collect(expr), distinct)


def aggregated(
    context: CheckContext,
    keys: Sequence[tuple[str, Expr]],
    more: Sequence[Field],
    aggregations: Sequence[tuple[str, Aggregation]],
) -> tuple[Field, ...]:
    """Return the columns of groups: the keys, `more`, the aggregates."""
    context.require(bool(aggregations), "there is no aggregate")
    answers = (aggregation.field(name, context.input) for name, aggregation in aggregations)
    return (*context.computed_columns(keys), *more, *answers)
