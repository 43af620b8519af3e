"""Steps that depend on row order: chain, zip, cross_singleton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lowering.row_code import Row
from headrace.lowering.step import Step, register_step
from headrace.operators.cross_singleton import CrossSingleton

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


@register_step(CrossSingleton)
class CrossSingletonStep(Step):
    """Step of cross_singleton: appends the first row of `single`, complete by then, to each row."""

    takes_rows = False
    operator: CrossSingleton
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.single = writer.node_variable("single", node.id)

    def begin(self) -> None:
        with self.writer.in_first_round(self.node.id):
            self.code.line(f"{self.single} = None")

    def finish(self) -> None:
        writer, code = self.writer, self.code
        # In a loop the buffer of `single` is there in the first round alone.
        with code.block(f"if {writer.buffer(self.node.inputs[1])}:"):
            code.line(f"{self.single} = {writer.buffer(self.node.inputs[1])}[0]")
        with code.block(f"if {self.single} is not None:"):
            columns = writer.unpack(self.input_schema(1), self.single)
            kept = tuple(columns[at] for at in self.operator.kept_right)
            with writer.each_row(self.node, 0) as row:
                self.emit(Row((*row.columns, *kept)))
