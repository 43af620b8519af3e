"""Where rows leave the loops that make them: sinks, and the closing of a feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.slot import Slot
from penstock.engine.steps.distinct import distinct_step
from penstock.engine.steps.step import Step, step_for
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.sink import Sink

if TYPE_CHECKING:
    from penstock.engine.region_writer import RegionWriter
    from penstock.engine.row import Row
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


class FeedbackStep(Step):
    """Lets a row round that was never there before; the round's news feed the next round."""

    keeps_state = True
    closes_a_round = True

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.rows"),)

    def consume(self, port: int, row: Row) -> None:
        writer = self.writer
        key = writer.fresh("row")
        self.code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        with self.code.block(f"if {writer.slot_get(self.node.id, 'rows')}({key}) is None:"):
            self.code.line(f"{writer.slot(self.node.id, 'rows')}[{key}] = 1")
            self.code.line(f"{writer.news(self.node.id)}.append({key})")


@step_for.register(Sink)
def _sink(operator: Sink, node: Node, writer: RegionWriter) -> Step:
    return SinkStep(node, writer)


@step_for.register(Feedback)
def _feedback(operator: Feedback, node: Node, writer: RegionWriter) -> Step:
    if not writer.is_in_loop(node.id):
        # Every way back passes a delay: no rounds within a tick, and rows may be taken back.
        return distinct_step(node, writer)
    return FeedbackStep(node, writer)
