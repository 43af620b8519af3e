"""Union in a loop whose rows may be taken back.

A row that comes from outside less than 0 times (taken back before it came) does no
harm where it is added up. Where two sides that go round are multiplied, it could take
away what a later round has, and the rounds would never come to rest. There, and only
there, a union remembers what enters it, and lets through how often that counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.loops.sides import OutsideSide
from penstock.engine.loops.step import NestedStep, nested_step_for
from penstock.engine.row import Row
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.join import Join
from penstock.flow.operators.union import Union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.region_writer import RegionWriter
    from penstock.engine.slot import Slot
    from penstock.engine.steps.step import Step
    from penstock.graph.node import Node


class NestedUnionStep(NestedStep):
    """Slots: entry, by port that enters and needs one: `()` -> {row: weight}."""

    keeps_state = False

    def __init__(self, node: Node, writer: RegionWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self.sites = len(node.inputs)
        self._entries: dict[int, OutsideSide] = {}
        if _is_multiplied(writer, node.id):
            self._entries = {
                port: OutsideSide(node, port, writer, f"entry{port}")
                for port, source in enumerate(node.inputs)
                if not varies[port] and not writer.is_append(source)
            }

    def slots(self) -> tuple[Slot, ...]:
        return tuple(slot for entry in self._entries.values() for slot in entry.slots())

    def consume(self, port: int, row: Row) -> None:
        entry = self._entries.get(port)
        if entry is None:
            self.emit(row)
            return
        key = self.writer.fresh("row")
        self.code.line(f"{key} = {self.writer.row_key(self.node.schema, row.columns)}")
        row = Row(row.columns, key, row.weight)
        change = entry.change(key, row)
        with self.code.block(f"if {change}:"):
            self.emit(Row(row.columns, row.whole, change))


def _is_multiplied(writer: RegionWriter, node: int) -> bool:
    """Whether rows of a node meet others that go round, before they are made a set."""
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


@nested_step_for.register(Union)
def _union(operator: Union, node: Node, writer: RegionWriter, varies: Sequence[bool]) -> Step:
    return NestedUnionStep(node, writer, varies)
