"""Feedbacks in loops with retractions.

A feedback of sets stores the first round in which each row is present. A feedback of bags passes on the
changes of a round unchanged, one round later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lowering.round_history import RoundSumsWriter, SetLoopStep
from headrace.lowering.row_code import Row
from headrace.lowering.step import LoopStep, register_loop_step
from headrace.operators.feedback import BagFeedback, Feedback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.node import Node
    from headrace.lowering.row_code import Row
    from headrace.lowering.step_writer import StepWriter


@register_loop_step(Feedback)
class SetFeedbackLoopStep(SetLoopStep):
    """Feedback of sets."""

    is_feedback = True


@register_loop_step(BagFeedback)
class BagFeedbackLoopStep(LoopStep):
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
        self._rows.write_round(self.emit)
