"""Filter operator: keep the rows that satisfy a predicate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.constructors import col
from headrace.expr.polars_columns import NotLowered
from headrace.expr.row_classes import to_user
from headrace.expr.tree import Column, Expr, columns_of
from headrace.expr.types import BOOL
from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.node import identity_lineage
from headrace.lowering.forms import apply_operator, lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, copies, function_of
from headrace.lowering.row_code import RowCode, user_form
from headrace.lowering.step import Step, register_step
from headrace.operators.row_by_row import RowByRow

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage
    from headrace.lowering.forms import BatchSite


@dataclass(frozen=True, slots=True)
class Filter(RowByRow):
    """Rows whose predicate is true; rows with false or null are dropped.

    An expression is inlined; a callable is opaque and receives the row.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.filter(col.value > 1), numbers=[1, 2])
    + 2
    """

    kind: ClassVar[str] = "filter"
    examples: ClassVar[Examples] = {
        "expression": lambda x, y: y.filter(col.a > 1),
        "callable": lambda x, y: y.filter(lambda pair: pair.a > 1),
    }
    predicate: Expr | Callable[..., bool]

    def output(self, context: CheckContext) -> Columns:
        if isinstance(self.predicate, Expr):
            context.require(context.type_of(self.predicate) == BOOL, "a filter is not true or false")
        return context.input.fields

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({*live, *columns_of(self.predicate)},) if isinstance(self.predicate, Expr) else None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        (before,) = inputs
        if before is None or not isinstance(self.predicate, Expr):
            return None
        # A predicate over the keys alone passes all values of a key, or none.
        read = {part.name for part in self.predicate.walk() if isinstance(part, Column)}
        return before if read <= set(before.keys) else None

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        if isinstance(self.predicate, Expr):
            yield "predicate", self.predicate

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        if not isinstance(self.predicate, Expr):
            yield "predicate", self.predicate

    def describe(self) -> str:
        if isinstance(self.predicate, Expr):
            return str(self.predicate)
        return getattr(self.predicate, "__name__", repr(self.predicate))


@register_step(Filter)
class FilterStep(Step):
    operator: Filter

    def consume(self, port: int, row: RowCode) -> None:
        schema, predicate = self.writer.input_schema(self.node, port), self.operator.predicate
        if isinstance(predicate, Expr):
            condition = self.writer.predicate(predicate, schema, row.columns)
        else:
            function = self.writer.constant("f", predicate)
            condition = f"{function}({user_form(self.writer, schema, row)})"
        with self.code.block(f"if {condition}:"):
            self.emit(row)


@apply_operator.register(Filter)
def _on_columns(
    operator: Filter, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    import polars as pl

    from headrace.columns.columns import FAILS

    (stream,) = inputs
    if not isinstance(operator.predicate, Expr):
        raise NotLowered("it calls a function on each row")
    lowered = stream.lower(operator.predicate)
    noted = stream.noting(lowered.fails)
    passes = lowered.value
    if noted.checked:
        passes = passes.fill_null(False) | pl.col(FAILS)
    return replace(noted, schema=schema, frame=noted.frame.filter(passes))


@lower_operator.register(Filter)
def _on_spark(operator: Filter, site: BatchSite) -> DataFrame:
    assert isinstance(operator.predicate, Expr)
    return site.inputs[0].filter(site.column(operator.predicate))


@answer_of_bags.register(Filter)
def _answer(operator: Filter, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    if isinstance(operator.predicate, Expr):
        holds = function_of(operator.predicate, schema)
        return Counter(row for row in copies(bag) if holds(row) is True)
    seen, predicate = to_user(schema), operator.predicate
    return Counter(row for row in copies(bag) if predicate(seen(row)))
