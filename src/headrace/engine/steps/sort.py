"""Step of sort: a tick's rows are gathered with their sort keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expr.check import check
from headrace.expr.tree import Ordering
from headrace.lowering.row_code import Row, comparable, tuple_source
from headrace.lowering.step import Step, register_step
from headrace.lowering.user_rows import user_form
from headrace.operators.sort import Sort

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


@register_step(Sort)
class SortStep(Step):
    """Step of sort, without state: a bounded stream arrives in one tick, and each tick is sorted alone."""

    operator: Sort
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.pending = writer.node_variable("pending", node.id)
        # Where order of arrival means nothing, it must not show in rows that `by` holds equal.
        self.merges = not writer.analysis.facts[node.inputs[0]].ordered

    def begin(self) -> None:
        self.code.line(f"{self.pending} = []")

    def consume(self, port: int, row: Row) -> None:
        keys = list(self._keys(row))
        key = keys[0] if len(keys) == 1 else tuple_source(keys)
        self.code.line(f"{self.pending}.append(({key}, {row.source}))")

    def _keys(self, row: Row) -> Iterator[str]:
        """Yield the sources of a row's sort keys, most significant first."""
        writer, schema = self.writer, self.input_schema()
        for one in self.operator.by:
            if isinstance(one, Ordering):
                typed = check(one.expr, schema)
                source = writer.value(one.expr, schema, row.columns)
                yield comparable(writer, source, typed, descending=one.descending)
            else:
                user = user_form(writer, schema, row)
                yield f"{writer.constant('by', one)}({user})"
        if not self.operator.by or self.merges:
            for field, column in zip(schema.fields, row.columns, strict=True):
                yield comparable(writer, column, field)

    def finish(self) -> None:
        row = self.writer.fresh("row")
        self.code.line(f"x_sort({self.pending})")
        with self.code.block(f"for _, {row} in {self.pending}:"):
            self.emit_unpacked(row)
