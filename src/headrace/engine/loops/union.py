"""Union in loops with retractions.

A row that comes from outside less than 0 times (retracted before it came) does no
harm where it is added up. Where two sides that go round are multiplied, it could take
away what a later round has, and the rounds would never come to rest. There, and only
there, a union remembers what enters it, and lets through how often that counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lowering.row_code import Row
from headrace.lowering.slot import Slot
from headrace.lowering.step import LoopStep, register_loop_step
from headrace.operators.distinct import Distinct
from headrace.operators.feedback import Feedback
from headrace.operators.join.operator import Join
from headrace.operators.union import Union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


@register_loop_step(Union)
class NestedUnionStep(LoopStep):
    """Step of union. Slots: entry, per loop-invariant port that needs one: row -> weight."""

    keeps_state = False

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self.sites = len(node.inputs)
        self._counted: list[int] = []
        if _is_multiplied(writer, node.id):
            entering = [port for port in range(len(node.inputs)) if not varies[port]]
            self._counted = [port for port in entering if not writer.is_append(node.inputs[port])]

    def slots(self) -> tuple[Slot, ...]:
        return tuple(Slot(f"{self.node.id}.entry{port}") for port in self._counted)

    def consume(self, port: int, row: Row) -> None:
        if port not in self._counted:
            self.emit(row)
            return
        code, writer = self.code, self.writer
        entry = writer.fresh("row")
        code.line(f"{entry} = {writer.row_key(self.node.schema, row.columns)}")
        old, new = self.state(f"entry{port}").add_count(entry, row.copies)
        change = writer.fresh("change")
        code.line(f"{change} = ({new} if {new} > 0 else 0) - ({old} if {old} > 0 else 0)")
        with code.block(f"if {change}:"):
            self.emit(Row(row.columns, entry, change))


def _is_multiplied(writer: StepWriter, node: int) -> bool:
    """Return whether a node's rows reach a join of two loop-variant inputs before becoming a set."""
    seen = {node}
    waiting = [node]
    while waiting:
        for edge in writer.readers(waiting.pop(), writer.loop(node)):
            target = writer.graph.nodes[edge.target]
            if isinstance(target.operator, Join) and all(
                not writer.loops_apart(source, node) for source in target.inputs
            ):
                return True
            if edge.target not in seen and not isinstance(target.operator, Feedback | Distinct):
                seen.add(edge.target)
                waiting.append(edge.target)
    return False
