"""Where a loop closes: what a round made becomes the input of the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.slot import Slot
from penstock.engine.steps.distinct import distinct_step
from penstock.engine.steps.step import Step, step_for
from penstock.flow.operators.bag_feedback import BagFeedback
from penstock.flow.operators.feedback import Feedback

if TYPE_CHECKING:
    from penstock.engine.row_codegen import Row
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node


class ClosingStep(Step):
    """A feedback in a loop: its news of a round are its rows of the next."""

    keeps_state = True
    operator: Feedback | BagFeedback


class FeedbackStep(ClosingStep):
    """Lets a row round that was never there before."""

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.rows"),)

    def consume(self, port: int, row: Row) -> None:
        writer = self.writer
        key = writer.fresh("row")
        self.code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        with self.code.block(f"if {self.get('rows')}({key}) is None:"):
            self.code.line(f"{self.slot('rows')}[{key}] = 1")
            self.code.line(f"{writer.news(self.node.id)}.append({key})")


class BagFeedbackStep(ClosingStep):
    """Lets every row round."""

    def consume(self, port: int, row: Row) -> None:
        self.code.line(f"{self.writer.news(self.node.id)}.append({row.flat(append=True)})")


class DelayedBagFeedbackStep(Step):
    """Every way back passes a delay: there are no rounds, and rows go on as they are."""

    def consume(self, port: int, row: Row) -> None:
        self.emit(row)


@step_for.register(Feedback)
def _feedback(operator: Feedback, node: Node, writer: StepWriter) -> Step:
    if not writer.is_in_loop(node.id):
        # Every way back passes a delay: no rounds within a tick, and rows may be taken back.
        return distinct_step(node, writer)
    return FeedbackStep(node, writer)


@step_for.register(BagFeedback)
def _bag_feedback(operator: BagFeedback, node: Node, writer: StepWriter) -> Step:
    if not writer.is_in_loop(node.id):
        return DelayedBagFeedbackStep(node, writer)
    return BagFeedbackStep(node, writer)
