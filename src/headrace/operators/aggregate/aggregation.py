"""Aggregate functions and their accumulators, and the registries of their forms on each engine.

All of them ignore nulls, except `count()` of rows. No result depends on the order of arrival: float sums are
exact and rounded once, `first` and `last` take an order, `collect` sorts.

A group is one list: [rows, last answer, fields...]. An accumulator owns consecutive fields, starting at `at`,
and has the code to update and read them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import reduce, singledispatch
from itertools import chain
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace.errors import NotOnSpark, SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.compile_python import key_of
from headrace.expr.tree import Column
from headrace.expr.types import (
    BytesType,
    DataType,
    DecimalType,
    Field,
    IntervalType,
    ListType,
    MapType,
    Schema,
    StrType,
)
from headrace.expr.typing_rules import is_number
from headrace.graph.node import described_name
from headrace.lowering.row_code import item_sources, weight_product
from headrace.lowering.slot import Thaw, as_it_is
from headrace.operators.over.window_function import WindowFunction
from headrace.requirements import F

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column as SparkColumn

    from headrace.expr.check import TypeAndNullability
    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.lowering.generated_source import SourceCode
    from headrace.lowering.row_code import RowCode
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class Aggregation(WindowFunction):
    """Base of the aggregate functions, which can also be used as window functions, with `over`.

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
        """Return, per argument, whether rows with a null in it are skipped."""
        return (True,) * len(self.arguments())

    @abstractmethod
    def field(self, name: str, schema: Schema) -> Field:
        """Return the output column. Raises `WrongType`, and the errors of invalid arguments."""

    def __str__(self) -> str:
        return f"{described_name(type(self)).lower()}({', '.join(str(a) for a in self.arguments())})"


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

    measures: tuple[SparkColumn, ...]
    answer: Callable[..., SparkColumn] = lambda measure: measure


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
    def columns(self) -> tuple[SparkColumn, ...]:
        return tuple(F.col(f"`{name}`") for name in self.names)

    def sql(self, text: str) -> SparkColumn:
        """Build an aggregate from SQL text. `{0}`: the argument. `{of}`: DISTINCT, if requested."""
        return F.expr(text.format(f"`{self.names[0]}`", of="DISTINCT" if self.distinct else ""))

    def values(self) -> SparkColumn:
        """Collect the values of the first argument."""
        return self.collect(self.columns[0])

    def rows(self) -> SparkColumn:
        """Collect the argument structs of rows with no null argument."""
        known = reduce(and_, (column.isNotNull() for column in self.columns))
        return self.collect(F.when(known, F.struct(*self.columns)))

    def collect(self, column: SparkColumn) -> SparkColumn:
        """Collect the non-null values of a column."""
        return (F.collect_set if self.distinct else F.collect_list)(column)


@singledispatch
def measure(aggregation: Aggregation, to: AggregateArguments) -> NativeAggregates:
    """Build the native form of an aggregation."""
    raise NotOnSpark(f"{aggregation} has no form as a batch on Spark")


ArgumentTypes: TypeAlias = "tuple[TypeAndNullability, ...]"
"""Types of the arguments of an aggregate function, in order."""

WHOLE_NUMBER = DecimalType(38, 0)
"""Type of a partial sum of integers: an int in Headrace's own rows, a decimal in Spark's."""


@dataclass(frozen=True, slots=True)
class StateField:
    """Field of a group's list: source of its initial value, and its thaw function."""

    initial: str
    thaw: Thaw = as_it_is


@dataclass(frozen=True, slots=True)
class Target:
    """Destination of an accumulator's code: group variable, first field."""

    writer: StepWriter
    group: str
    at: int

    @property
    def code(self) -> SourceCode:
        return self.writer.code

    def field(self, offset: int) -> str:
        return f"{self.group}[{self.at + offset}]"


class Accumulator:
    """State and code of one aggregate function over one type.

    types: of the arguments. append: rows are never retracted.
    merges: values that are equal are one to it, so they come with one zero and one NaN.
    """

    merges: ClassVar[bool] = False

    def __init__(self, types: ArgumentTypes, append: bool) -> None:
        self.types = types
        self.append = append

    def fields(self) -> tuple[StateField, ...]:
        """Return the fields in the group's list."""
        raise NotImplementedError

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        """Write the update by one row; no argument in `arguments` is null."""
        raise NotImplementedError

    def settle(self, to: Target) -> None:
        """Write the code to run once per tick for a touched group, after all updates."""

    def result(self, to: Target) -> str:
        """Return the source of the result, for a non-empty group."""
        raise NotImplementedError

    def partial_columns(self) -> tuple[Field, ...] | None:
        """Return the columns that carry the fields of a partial aggregate; None if they cannot be sent."""
        return None

    def partial_values(self, to: Target) -> tuple[str, ...]:
        """Return the sources of the values that carry the fields of a partial aggregate."""
        return tuple(to.field(number) for number in range(len(self.fields())))

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        """Write code that merges another group's fields, given as sources, into those of `to`.

        Only for groups whose rows are never retracted.
        """
        raise NotImplementedError(type(self).__name__)

    def merge_partial(self, to: Target, values: Sequence[str]) -> None:
        """Write code that merges `partial_values` of another group, as `merge` does."""
        self.merge(to, values)


def add_source(field: str, amount: str, weight: str | None) -> str:
    """Return the source of a statement that adds `amount`, times the weight, to a field."""
    if weight == "-1":
        return f"{field} -= {amount}"
    return (
        f"{field} += {amount if weight in (None, '1') else weight_product(_factor(amount), _factor(weight))}"
    )


def _factor(source: str | None) -> str:
    assert source is not None
    return source if source.isidentifier() or source.isdigit() else f"({source})"


def accumulator_for(aggregation: Aggregation, schema: Schema, append: bool) -> Accumulator:
    """Create the accumulator of an aggregate function over rows of `schema`."""
    types = tuple(check(expr, schema) for expr in aggregation.arguments())
    return accumulator_of(aggregation, types, append)


@singledispatch
def accumulator_of(aggregation: Aggregation, types: ArgumentTypes, append: bool) -> Accumulator:
    """Create the accumulator of an aggregate function over arguments of these types."""
    raise NotImplementedError(f"the in-process engine cannot compute {type(aggregation).__name__}")


def all_partial_columns(
    aggregations: Sequence[Aggregation], schema: Schema, *, appends: bool
) -> list[Field] | None:
    """Return the columns of all partial states of a group's aggregates; None if a state cannot be sent."""
    found: list[Field] = []
    for number, aggregation in enumerate(aggregations):
        parts = accumulator_for(aggregation, schema, appends).partial_columns()
        if parts is None:
            return None
        found.extend(Field(f"{part.name} {number}", part.type, part.nullable) for part in parts)
    return found


# --- code over a group's list ------------------------------------------------------------------------


ROWS, ANSWER, FIRST_FIELD = 0, 1, 2


class Group:
    """Writer of code for one group's list, for aggregates over rows of `schema`.

    appends: rows are never retracted.
    """

    def __init__(
        self, writer: StepWriter, schema: Schema, aggregations: Sequence[Aggregation], *, appends: bool
    ) -> None:
        self.appends = appends
        self._writer = writer
        self._schema = schema
        self._parts: list[tuple[Aggregation, Accumulator, int]] = []
        at = FIRST_FIELD
        for aggregation in aggregations:
            accumulator = accumulator_for(aggregation, schema, appends)
            self._parts.append((aggregation, accumulator, at))
            at += len(accumulator.fields())

    @property
    def thaw(self) -> Thaw:
        """Thaw a stored list field by field."""
        thaws: list[Thaw] = [as_it_is, as_it_is]
        for _, accumulator, _ in self._parts:
            thaws.extend(field.thaw for field in accumulator.fields())

        def thaw(group: Any) -> list[Any]:
            return [thaw_field(value) for thaw_field, value in zip(thaws, group, strict=True)]

        return thaw

    @property
    def empty(self) -> str:
        """Source of the list of an empty group."""
        fields = [f.initial for _, accumulator, _ in self._parts for f in accumulator.fields()]
        return f"[0, None, {', '.join(fields)}]" if fields else "[0, None]"

    def add(self, group: str, row: RowCode) -> None:
        """Write code that updates the list in the variable `group` by one row."""
        self._writer.code.line(f"{group}[{ROWS}] += {row.copies}")
        for aggregation, accumulator, at in self._parts:
            self._add(aggregation, accumulator, Target(self._writer, group, at), row)

    def _add(self, aggregation: Aggregation, accumulator: Accumulator, to: Target, row: RowCode) -> None:
        values: list[str] = []
        guards: list[str] = []
        for expr, skips in zip(aggregation.arguments(), aggregation.skips_null(), strict=True):
            typed = check(expr, self._schema)
            source = value = self._writer.value(expr, self._schema, row.columns)
            if accumulator.merges:
                source = key_of(typed.type, typed.nullable, value)
            if not isinstance(expr, Column) or source != value:
                variable = self._writer.fresh("value")
                to.code.line(f"{variable} = {source}")
                source = variable
            if skips and typed.nullable:
                guards.append(f"{source} is not None")
            values.append(source)
        if guards:
            with to.code.block(f"if {' and '.join(guards)}:"):
                accumulator.update(to, tuple(values), row.weight)
        else:
            accumulator.update(to, tuple(values), row.weight)

    def merge(self, group: str, columns: Sequence[str]) -> None:
        """Write code that merges a list's parts `columns` into the list in the variable `group`."""
        for accumulator, to, own in self._divided(group, columns, lambda each: len(each.fields())):
            accumulator.merge(to, own)

    def part_columns(self, group: str) -> tuple[str, ...]:
        """Return the sources of a list's parts, as taken by `merge`."""
        count = sum(len(accumulator.fields()) for _, accumulator, _ in self._parts)
        return (f"{group}[{ROWS}]", *item_sources(group, FIRST_FIELD + count)[FIRST_FIELD:])

    def merge_partial(self, group: str, columns: Sequence[str]) -> None:
        """Write code that merges the columns of a partial aggregate into the list in the variable `group`."""
        for accumulator, to, own in self._divided(group, columns, lambda a: len(a.partial_columns() or ())):
            accumulator.merge_partial(to, own)

    def partial_columns(self, group: str) -> tuple[str, ...]:
        """Return the sources of a list's columns in a partial aggregate."""
        values = (a.partial_values(Target(self._writer, group, at)) for _, a, at in self._parts)
        return (f"{group}[{ROWS}]", *chain.from_iterable(values))

    def _divided(
        self, group: str, columns: Sequence[str], width: Callable[[Accumulator], int]
    ) -> Iterator[tuple[Accumulator, Target, Sequence[str]]]:
        """Write code that adds a group's rows; yield each accumulator with its own columns."""
        self._writer.code.line(f"{group}[{ROWS}] += {columns[0]}")
        first = 1
        for _, accumulator, at in self._parts:
            end = first + width(accumulator)
            yield accumulator, Target(self._writer, group, at), columns[first:end]
            first = end

    def settle(self, group: str) -> None:
        """Write the code for a touched list before its result is read."""
        for _, accumulator, at in self._parts:
            accumulator.settle(Target(self._writer, group, at))

    def aggregate_sources(self, group: str) -> list[str]:
        """Return the sources of the aggregates of a non-empty group."""
        return [
            self._sized(aggregation, accumulator.result(Target(self._writer, group, at)))
            for aggregation, accumulator, at in self._parts
        ]

    def _sized(self, aggregation: Aggregation, source: str) -> str:
        """Return the source of a result, with a size check in bounded code if it grows with its rows."""
        grows = isinstance(aggregation.field("", self._schema).type, ListType | MapType | StrType | BytesType)
        return f"x_sized({source})" if grows and self._writer.bounds is not None else source

    def accumulators(self) -> Iterator[tuple[Accumulator, int]]:
        """Yield the accumulators with the position of their first field."""
        for _, accumulator, at in self._parts:
            yield accumulator, at
