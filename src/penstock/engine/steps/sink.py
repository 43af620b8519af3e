"""Where rows leave the flow: sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.steps.step import Step, step_for
from penstock.flow.operators.sink import Sink

if TYPE_CHECKING:
    from penstock.engine.row_codegen import Row
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node


class SinkStep(Step):
    """Collects the tick's changes under the name that the region returns."""

    keeps_state = True
    has_result = True

    def begin(self) -> None:
        self.code.line(f"{self.writer.result(self.node.id)} = []")

    def consume(self, port: int, row: Row) -> None:
        append = self.writer.is_append(self.node.id)
        self.code.line(f"{self.writer.result(self.node.id)}.append({row.flat(append=append)})")

    def finish(self) -> None:
        if not self.writer.is_append(self.node.id) and not self.writer.is_consolidated(self.node.inputs[0]):
            name = self.writer.result(self.node.id)
            self.code.line(f"{name} = x_consolidate({name})")


@step_for.register(Sink)
def _sink(operator: Sink, node: Node, writer: StepWriter) -> Step:
    return SinkStep(node, writer)
