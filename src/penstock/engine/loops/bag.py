"""A bag that goes round in a loop whose rows may be taken back.

The change of a round goes round as it is: what a row that goes made, goes a round later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.loops.netting import Netting
from penstock.engine.loops.step import NestedStep, nested_step_for
from penstock.flow.operators.bag_feedback import BagFeedback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.row_codegen import Row
    from penstock.engine.step_writer import StepWriter
    from penstock.engine.steps.step import Step
    from penstock.graph.node import Node


class NestedBagFeedbackStep(NestedStep):
    """It remembers nothing from tick to tick."""

    is_feedback = True

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool], max_iterations: int) -> None:
        super().__init__(node, writer, varies)
        self.max_iterations = max_iterations
        self._rows = Netting(node.id, writer, "pending", node.schema, shift=1)

    def begin_loop(self) -> None:
        self._rows.begin_loop()

    def consume(self, port: int, row: Row) -> None:
        self._rows.add(row)

    def turn(self) -> None:
        self._rows.turn(self.emit)


@nested_step_for.register(BagFeedback)
def _bag_feedback(operator: BagFeedback, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    return NestedBagFeedbackStep(node, writer, varies, operator.max_iterations)
