"""Feedbacks and distinct in loops with retractions.

A feedback of sets stores the first round in which each row is present. A feedback of bags passes on the
changes of a round unchanged, one round later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.loops.first_rounds import FirstRoundsWriter
from headrace.engine.loops.netting import RoundSumsWriter
from headrace.lowering.row_code import Row
from headrace.lowering.step import LoopStep, register_loop_step, repeatable_weight
from headrace.operators.distinct import Distinct
from headrace.operators.feedback import BagFeedback, Feedback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.node import Node
    from headrace.lowering.slot import Slot
    from headrace.lowering.step_writer import StepWriter


@register_loop_step(Feedback, Distinct)
class SetStep(LoopStep):
    """Set-valued feedback or distinct.

    Slot `history`: row, or its only column -> rank and weights by round.
    """

    makes_set = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self.is_feedback = isinstance(node.operator, Feedback)
        self.ranks = FirstRoundsWriter(node.id, writer, "history", shift=int(self.is_feedback))

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
        self.ranks.add(entry, repeatable_weight(self.writer, row))

    def write_round(self) -> None:
        def emit(entry: str, weight: str) -> None:
            if len(self.node.schema.fields) == 1:
                self.emit(Row((entry,), None, weight))
            else:
                self.emit(Row(self.writer.unpack(self.node.schema, entry), entry, weight))

        self.ranks.turn(emit)

    def write_changes(self, out: str) -> None:
        single = len(self.node.schema.fields) == 1
        self.ranks.write_changes(out, "({}, {})" if single else "{} + ({},)")


@register_loop_step(BagFeedback)
class NestedBagFeedbackStep(LoopStep):
    """Feedback of bags, stateless between ticks."""

    is_feedback = True

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self._rows = RoundSumsWriter(node.id, writer, "pending", node.schema, shift=1)

    def begin_loop(self) -> None:
        self._rows.begin_loop()

    def consume(self, port: int, row: Row) -> None:
        self._rows.add(row)

    def write_round(self) -> None:
        self._rows.turn(self.emit)
