"""Select operator: compute new columns from each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

from headrace.expr.constructors import col
from headrace.expr.polars_columns import NotLowered
from headrace.expr.tree import Column, Expr, columns_of
from headrace.graph.monotone_columns import MonotoneColumns
from headrace.lowering.forms import apply_operator, lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, copies, functions_of
from headrace.lowering.row_code import RowCode
from headrace.lowering.step import Step, register_step
from headrace.operators.row_by_row import RowByRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.types import Field, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node, Operator
    from headrace.graph.operator_declarations import Lineage
    from headrace.lowering.forms import BatchSite


@dataclass(frozen=True, slots=True)
class Select(RowByRow):
    """One expression per output column. `with_columns` is a select that keeps the other columns.

    Rows that become equal are kept as duplicates.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.select(half=col.value / 2), numbers=[1, 2])
    + (half=0.5)
    + (half=1.0)
    """

    kind: ClassVar[str] = "select"
    examples: ClassVar[Examples] = {
        "select": lambda x, y: y.select("b", c=col.a + 1),
    }
    columns: tuple[tuple[str, Expr], ...]

    def output(self, context: CheckContext) -> Columns:
        return context.computed_columns(self.columns)

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({name for column, expr in self.columns if column in live for name in columns_of(expr)},)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        columns = tuple((name, expr) for name, expr in self.columns if name in live)
        return replace(self, columns=columns), tuple(f for f in output.fields if f.name in live)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.columns),)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) and all(isinstance(expr, Column) for _, expr in self.columns)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        (before,) = inputs
        names = {expr.name: name for name, expr in self.columns if isinstance(expr, Column)}
        if before is None or any(key not in names for key in before.keys):
            return None
        grown = {names[name]: order for name, order in before.columns.items() if name in names}
        return MonotoneColumns(tuple(names[key] for key in before.keys), grown)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.columns

    def describe(self) -> str:
        return ", ".join(f"{name}={expr}" for name, expr in self.columns)


def with_columns(schema: Schema, columns: Mapping[str, Expr]) -> Select:
    """Replace existing columns and append new ones.

    All expressions refer to the original row.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.with_columns(half=col.value / 2), numbers=[1])
    + (value=1, half=0.5)
    """
    kept = [(name, columns.get(name, Column(name))) for name in schema.names]
    added = [(name, expr) for name, expr in columns.items() if name not in schema.names]
    return Select(tuple(kept + added))


@register_step(Select)
class SelectStep(Step):
    operator: Select

    def consume(self, port: int, row: RowCode) -> None:
        schema = self.writer.input_schema(self.node, port)
        columns: list[str] = []
        for name, expr in self.operator.columns:
            source = self.writer.value(expr, schema, row.columns)
            if not isinstance(expr, Column):
                variable = self.writer.fresh(name)
                self.code.line(f"{variable} = {source}")
                source = variable
            columns.append(source)
        self.emit(RowCode(tuple(columns), None, row.weight))


@apply_operator.register(Select)
def _on_columns(
    operator: Select, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    import polars as pl

    from headrace.columns.column_stream import ColumnStream
    from headrace.columns.columns import FAILS, WEIGHT
    from headrace.columns.expressions import reads_columns
    from headrace.expr.polars_columns import LoweredExpression

    (stream,) = inputs
    if all(isinstance(expr, Column) for _, expr in operator.columns):
        names = [cast("Column", expr).name for _, expr in operator.columns]
        taken = stream.taking(schema, append, [stream.schema.names.index(name) for name in names])
        if taken is not None:
            return taken
    lowered = [stream.lower(expr) for _, expr in operator.columns]
    if not any(reads_columns(expr) for _, expr in operator.columns):
        raise NotLowered("constants alone stay in rows")
    noted = stream.noting(*(one.fails for one in lowered))
    beside = [*([] if append else [WEIGHT]), *([FAILS] if noted.checked else [])]
    values = [one.value.alias(str(at)) for at, one in enumerate(lowered)]
    columns = tuple(LoweredExpression(pl.col(str(at)), one.bounds) for at, one in enumerate(lowered))
    frame = noted.frame.select(*values, *beside)
    return ColumnStream(schema, append, frame, columns, stream.most, stream.copies, noted.checked)


@lower_operator.register(Select)
def _on_spark(operator: Select, site: BatchSite) -> DataFrame:
    return site.inputs[0].select(*(site.column(expr).alias(name) for name, expr in operator.columns))


@answer_of_bags.register(Select)
def _answer(operator: Select, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    compute = functions_of([expr for _, expr in operator.columns], schema)
    return Counter(compute(row) for row in copies(bag))
