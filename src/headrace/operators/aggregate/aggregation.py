"""Aggregate functions: what all of them have, and where their form on each engine is registered.

All of them ignore nulls, except `count()` of rows. No result depends on the order of arrival: float sums are
exact and rounded once, `first` and `last` take an order, `collect` sorts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import reduce, singledispatch
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace.errors import NotOnSpark, SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.types import DataType, Field, IntervalType, Schema
from headrace.expr.typing_rules import is_number
from headrace.operators.over.window_function import WindowFunction
from headrace.requirements import F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext


@dataclass(frozen=True, slots=True)
class Aggregation(WindowFunction):
    """Base of the aggregate functions, which are window functions, too, with `over`.

    only_grows:        further rows never decrease the result.
    distinct_on_spark: its native form takes distinct arguments, too.
    """

    ordered: ClassVar[bool] = False
    framed: ClassVar[bool] = True
    only_grows: ClassVar[bool] = False
    distinct_on_spark: ClassVar[bool] = False

    def arguments(self) -> tuple[Expr, ...]:
        """Expressions over the input columns."""
        return tuple(v for v in (getattr(self, f.name) for f in fields(self)) if v is not None)

    def skips_null(self) -> tuple[bool, ...]:
        """Return per argument whether rows in which it is null do not take part."""
        return (True,) * len(self.arguments())

    @abstractmethod
    def field(self, name: str, schema: Schema) -> Field:
        """Return the output column. Raises `WrongType`, and the errors of invalid arguments."""

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({', '.join(str(a) for a in self.arguments())})"


@dataclass(frozen=True, slots=True)
class ValueAggregation(Aggregation):
    """Base of aggregates over one expression, whose type is the default result type."""

    expr: Expr

    def field(self, name: str, schema: Schema) -> Field:
        typed = check(self.expr, schema)
        return Field(name, typed.type, typed.nullable)


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


def group_columns(
    context: CheckContext,
    keys: Sequence[tuple[str, Expr]],
    more: Sequence[Field],
    aggregations: Sequence[tuple[str, Aggregation]],
) -> tuple[Field, ...]:
    """Return the columns of groups: the keys, `more`, the aggregates."""
    context.require(bool(aggregations), "there is no aggregate")
    answers = (aggregation.field(name, context.input) for name, aggregation in aggregations)
    return (*context.computed_columns(keys), *more, *answers)


# --- reference answers -------------------------------------------------------------------------------


ArgumentRows: TypeAlias = Sequence[tuple[Any, ...]]
"""Values of an aggregate function's arguments, per row of a group."""


@singledispatch
def answer_of(aggregation: Aggregation, result: DataType, rows: ArgumentRows) -> Any:
    """Compute an aggregate of a group.

    rows: the values of `aggregation.arguments()` for each row of the group; at least one row.
    """
    raise NotImplementedError(f"no reference answer for {type(aggregation).__name__}")


def present_values(rows: ArgumentRows) -> list[Any]:
    """Return the values of the first argument that are not null."""
    return [row[0] for row in rows if row[0] is not None]


# --- native form on Spark ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NativeAggregates:
    """Native aggregates over a group, and the function that computes the answer column from them."""

    measures: tuple[Column, ...]
    answer: Callable[..., Column] = lambda measure: measure


@dataclass(frozen=True, slots=True)
class AggregateArguments:
    """Columns of an aggregation's arguments, by name, and their types, with the field of the answer.

    distinct: of equal arguments, one counts.
    """

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    out: Field
    distinct: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(F.col(f"`{name}`") for name in self.names)

    def sql(self, text: str) -> Column:
        """Return an aggregate from its SQL, where `{0}` stands for the argument, `{of}` for DISTINCT."""
        return F.expr(text.format(f"`{self.names[0]}`", of="DISTINCT" if self.distinct else ""))

    def values(self) -> Column:
        """Collect the values of the first argument."""
        return self.collect(self.columns[0])

    def rows(self) -> Column:
        """Collect the argument structs of rows with no null argument."""
        known = reduce(and_, (column.isNotNull() for column in self.columns))
        return self.collect(F.when(known, F.struct(*self.columns)))

    def collect(self, column: Column) -> Column:
        """Collect the values of a column, without null."""
        return (F.collect_set if self.distinct else F.collect_list)(column)


@singledispatch
def measure(aggregation: Aggregation, to: AggregateArguments) -> NativeAggregates:
    """Build the native form of an aggregation."""
    raise NotOnSpark(f"{aggregation} has no form as a batch on Spark")
