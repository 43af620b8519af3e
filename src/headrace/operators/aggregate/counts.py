"""Counts, and aggregates of distinct values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import NotOnSpark
from headrace.expr.check import check
from headrace.expr.constructors import struct, when
from headrace.expr.tree import operand
from headrace.expr.types import INT64, DataType, Field, Schema
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.row_code import tuple_source
from headrace.lowering.slot import thaw_dict
from headrace.operators.aggregate.aggregation import (
    Accumulator,
    AggregateArguments,
    Aggregation,
    ArgumentRows,
    ArgumentTypes,
    NativeAggregates,
    StateField,
    Target,
    ValueAggregation,
    accumulator_of,
    add_source,
    answer_of,
    measure,
    present_values,
)
from headrace.requirements import F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.tree import Expr


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


class CountDistinct(ValueAggregation):
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


@dataclass(frozen=True, slots=True)
class DistinctAggregate(Aggregation):
    """An aggregate applied to the distinct values of its arguments."""

    described_as: ClassVar[str] = "OfDistinct"
    of: Aggregation

    @property
    def of_no_rows(self) -> Any:
        return self.of.of_no_rows

    def arguments(self) -> tuple[Expr, ...]:
        return self.of.arguments()

    def skips_null(self) -> tuple[bool, ...]:
        return self.of.skips_null()

    def field(self, name: str, schema: Schema) -> Field:
        return self.of.field(name, schema)

    def __str__(self) -> str:
        return str(self.of).replace("(", "(distinct ", 1)


def of_distinct(aggregation: Aggregation, distinct: bool) -> Aggregation:
    """Wrap an aggregate in `DistinctAggregate` if `distinct`."""
    return DistinctAggregate(aggregation) if distinct else aggregation


def count(expr: Expr | None = None) -> Count:
    """Number of rows of the group, or of those with a non-null `expr`."""
    return Count(expr)


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


# --- accumulators ------------------------------------------------------------------------------------


class CountRows(Accumulator):
    """Accumulator of count() over rows, which reads the group's own count."""

    def fields(self) -> tuple[StateField, ...]:
        return ()

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        pass

    def result(self, to: Target) -> str:
        return f"{to.group}[0]"

    def partial_columns(self) -> tuple[Field, ...]:
        return ()

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        pass


class CountValues(Accumulator):
    def fields(self) -> tuple[StateField, ...]:
        return (StateField("0"),)

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        to.code.line(add_source(to.field(0), "1", weight))

    def result(self, to: Target) -> str:
        return to.field(0)

    def partial_columns(self) -> tuple[Field, ...]:
        return (Field("values", INT64),)

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        to.code.line(f"{to.field(0)} += {fields[0]}")


class DistinctValues(Accumulator):
    """Distinct count: [copies per value, number of present values]."""

    merges = True

    def fields(self) -> tuple[StateField, ...]:
        return (StateField("{}", thaw_dict), StateField("0"))

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        to.code.line(f"{to.field(1)} += x_count_value({to.field(0)}, {arguments[0]}, {weight or '1'})")

    def result(self, to: Target) -> str:
        return to.field(1)

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"for value, copies in {fields[0]}.items():"):
            to.code.line(f"{to.field(1)} += x_count_value({to.field(0)}, value, copies)")


class DistinctAccumulator(Accumulator):
    """Wrapper that updates an accumulator by distinct values: [copies per value, its fields...]."""

    merges = True

    def __init__(self, types: ArgumentTypes, append: bool, of: Accumulator) -> None:
        super().__init__(types, append)
        self.of = of

    def fields(self) -> tuple[StateField, ...]:
        return (StateField("{}", thaw_dict), *self.of.fields())

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        value = arguments[0] if len(arguments) == 1 else tuple_source(arguments)
        change = to.writer.fresh("change")
        to.code.line(f"{change} = x_count_value({to.field(0)}, {value}, {weight or '1'})")
        with to.code.block(f"if {change}:"):
            self.of.update(self._inner(to), arguments, change)

    def settle(self, to: Target) -> None:
        self.of.settle(self._inner(to))

    def result(self, to: Target) -> str:
        return self.of.result(self._inner(to))

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"for value, copies in {fields[0]}.items():"):
            several = len(self.types) > 1
            arguments = tuple(f"value[{at}]" for at in range(len(self.types))) if several else ("value",)
            self.update(to, arguments, "copies")

    def _inner(self, to: Target) -> Target:
        return replace(to, at=to.at + 1)


@accumulator_of.register(Count)
def _accumulate_count(aggregation: Count, types: ArgumentTypes, append: bool) -> Accumulator:
    return CountValues(types, append) if types and types[0].nullable else CountRows((), append)


@accumulator_of.register(CountDistinct)
def _accumulate_distinct_count(aggregation: CountDistinct, types: ArgumentTypes, append: bool) -> Accumulator:
    return DistinctValues(types, append)


@accumulator_of.register(DistinctAggregate)
def _accumulate_distinct(aggregation: DistinctAggregate, types: ArgumentTypes, append: bool) -> Accumulator:
    # The count of a group's rows is not that of its distinct values: so the other one keeps its own.
    of = accumulator_of(aggregation.of, tuple(replace(typed, nullable=True) for typed in types), append)
    return DistinctAccumulator(types, append, of)


def count_value(counts: dict[Any, int], value: Any, weight: int) -> int:
    """Add `weight` copies of `value`; return +1 if it becomes present, -1 if absent, else 0."""
    before = counts.get(value, 0)
    after = before + weight
    if after:
        counts[value] = after
    elif before:
        del counts[value]
    return (after > 0) - (before > 0)


register_runtime({"x_count_value": count_value})


# --- on Spark ----------------------------------------------------------------------------------------


@measure.register(Count)
def _measure_count(aggregation: Count, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((F.count(to.columns[0] if to.columns else F.col("row")),))


@measure.register(CountDistinct)
def _measure_distinct_count(aggregation: CountDistinct, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((F.count_distinct(to.columns[0]),))


@measure.register(DistinctAggregate)
def _measure_distinct(aggregation: DistinctAggregate, to: AggregateArguments) -> NativeAggregates:
    if not aggregation.of.distinct_on_spark:
        raise NotOnSpark(f"{aggregation} has no form as a batch on Spark")
    return measure(aggregation.of, replace(to, distinct=True))


# --- reference answers -------------------------------------------------------------------------------


@answer_of.register(Count)
def _answer_count(aggregation: Count, result: DataType, rows: ArgumentRows) -> Any:
    return len(rows) if aggregation.expr is None else len(present_values(rows))


@answer_of.register(CountDistinct)
def _answer_count_distinct(aggregation: CountDistinct, result: DataType, rows: ArgumentRows) -> Any:
    return len(set(present_values(rows)))


@answer_of.register(DistinctAggregate)
def _answer_distinct(aggregation: DistinctAggregate, result: DataType, rows: ArgumentRows) -> Any:
    return answer_of(aggregation.of, result, list(dict.fromkeys(rows)))
