"""Feedback and distinct in a loop whose rows may be taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.loops.ranks import Ranks
from penstock.engine.loops.step import NestedStep, copies, nested_step_for
from penstock.engine.row_codegen import Row
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.feedback import Feedback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.slot import Slot
    from penstock.engine.step_writer import StepWriter
    from penstock.engine.steps.step import Step
    from penstock.graph.node import Node


class SetStep(NestedStep):
    """A slot `history`: row, or its only column -> rank and weights by round."""

    makes_set = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool], shift: int) -> None:
        super().__init__(node, writer, varies)
        self.ranks = Ranks(node.id, writer, "history", shift)

    def slots(self) -> tuple[Slot, ...]:
        return (self.ranks.slot(),)

    def begin_loop(self) -> None:
        self.ranks.begin_loop()

    def begin_round(self) -> None:
        self.ranks.begin_round()

    def end_round(self) -> None:
        self.ranks.end_round()

    def consume(self, port: int, row: Row) -> None:
        entry = self.writer.entry(self.node.schema, row.columns)
        if not entry.isidentifier():
            key = self.writer.fresh("row")
            self.code.line(f"{key} = {entry}")
            entry = key
        self.ranks.add(entry, copies(self.writer, row))

    def turn(self) -> None:
        def emit(entry: str, weight: str) -> None:
            if len(self.node.schema.fields) == 1:
                self.emit(Row((entry,), None, weight))
            else:
                self.emit(Row(self.writer.unpack(self.node.schema, entry), entry, weight))

        self.ranks.turn(emit)

    def outcome(self, out: str) -> None:
        single = len(self.node.schema.fields) == 1
        self.ranks.outcome(out, "({}, {})" if single else "{} + ({},)")


class NestedFeedbackStep(SetStep):
    is_feedback = True

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool], operator: Feedback) -> None:
        super().__init__(node, writer, varies, shift=1)
        self.max_iterations = operator.max_iterations


@nested_step_for.register(Feedback)
def _feedback(operator: Feedback, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    return NestedFeedbackStep(node, writer, varies, operator)


@nested_step_for.register(Distinct)
def _distinct(operator: Distinct, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    return SetStep(node, writer, varies, shift=0)
