"""Operators that say something about absence: the right side is applied first, the left side last.

Where what follows could notice a left row that goes in this tick, such rows go
even before (see `penstock.engine.retraction_order`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.row_codegen import Only
from penstock.engine.steps.step import Step
from penstock.flow.lifetime import Lifetime

if TYPE_CHECKING:
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node


class RightFirstStep(Step):
    """The order of the work; what is done to each side is the subclass's."""

    takes_rows = False
    keeps_state = True
    merges = True
    heavy = True

    def finish(self) -> None:
        before = self.writer.fresh("before")
        self.code.line(f"{before} = {{}}")
        split = self.writer.must_take_back_first(self.node)
        if split:
            self.writer.consolidate_inputs(self.node)
            if not self.writer.is_append(self.node.inputs[0]):
                self.apply_left(Only.GOES)
        self.apply_right(before)
        self.emit_crossings(before)
        self.apply_left(Only.COMES if split else Only.ALL)

    def apply_right(self, before: str) -> None:
        """Write the change of the right side; the dict `before` gets what held of each touched key or row."""
        raise NotImplementedError

    def emit_crossings(self, before: str) -> None:
        """Write the answers for left rows of earlier ticks, by what held before and holds now."""
        raise NotImplementedError

    def apply_left(self, only: Only) -> None:
        """Write the change of the left side against the right side as it is."""
        raise NotImplementedError


def remembers_left(node: Node, writer: StepWriter, left: Lifetime) -> bool:
    """Whether a right row may come after a left row that it says something about.

    Within a tick it comes first; in a loop a later round may bring it.
    """
    return left is Lifetime.STATIC or writer.is_in_loop(node.id)
