"""Sort: rows are gathered with their sort keys, and leave when the tick's last one is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.row_codegen import Row, tuple_source
from penstock.engine.steps.step import Step, step_for
from penstock.engine.steps.user_rows import users_view
from penstock.expr.check import check
from penstock.expr.order import order_key
from penstock.expr.tree import Ordering
from penstock.flow.operators.sort import Sort

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.step_writer import StepWriter
    from penstock.expr.types import DataType
    from penstock.graph.node import Node


class SortStep(Step):
    """No state: a bounded stream has all its rows in one tick, and a tick is sorted by itself."""

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, operator: Sort) -> None:
        super().__init__(node, writer)
        self.operator = operator
        self.pending = writer.named("pending", node.id)
        # Where order of arrival means nothing, it must not show in rows that `by` holds equal.
        self.merges = not writer.analysis.facts[node.inputs[0]].ordered

    def begin(self) -> None:
        self.code.line(f"{self.pending} = []")

    def consume(self, port: int, row: Row) -> None:
        keys = list(self._keys(row))
        key = keys[0] if len(keys) == 1 else tuple_source(keys)
        self.code.line(f"{self.pending}.append(({key}, {row.source}))")

    def _keys(self, row: Row) -> Iterator[str]:
        """Sources of what a row is sorted by, the most important first."""
        writer, schema = self.writer, self.writer.input_schema(self.node, 0)
        for one in self.operator.by:
            if isinstance(one, Ordering):
                typed = check(one.expr, schema)
                source = writer.value(one.expr, schema, row.columns)
                yield self._comparable(source, typed.type, typed.nullable, one.descending)
            else:
                user = users_view(writer, schema, row)
                yield f"{writer.constant('by', one)}({user})"
        if not self.operator.by or self.merges:
            for field, column in zip(schema.fields, row.columns, strict=True):
                yield self._comparable(column, field.type, field.nullable, False)

    def _comparable(self, source: str, dtype: DataType, nullable: bool, descending: bool) -> str:
        key = order_key(dtype, nullable, descending)
        return source if key is None else f"{self.writer.constant('order', key)}({source})"

    def finish(self) -> None:
        writer = self.writer
        row = writer.fresh("row")
        self.code.line(f"x_sort({self.pending})")
        with self.code.block(f"for _, {row} in {self.pending}:"):
            self.emit(Row(writer.unpack(self.node.schema, row), row))


@step_for.register(Sort)
def _sort(operator: Sort, node: Node, writer: StepWriter) -> Step:
    return SortStep(node, writer, operator)
