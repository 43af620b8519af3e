"""Which step a join gets in a loop whose rows may be taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.loops.inner_join import NestedInnerJoinStep
from penstock.engine.loops.matched_join import NestedMatchedJoinStep
from penstock.engine.loops.presence import Keys, OutsidePresenceStep, RoundPresenceStep
from penstock.engine.loops.step import nested_step_for
from penstock.flow.operators.join import How, Join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.step_writer import StepWriter
    from penstock.engine.steps.step import Step
    from penstock.graph.node import Node


@nested_step_for.register(Join)
def _join(operator: Join, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    if operator.how is How.INNER:
        return NestedInnerJoinStep(node, writer, varies, operator)
    if operator.how is How.LEFT or operator.residual is not None:
        return NestedMatchedJoinStep(node, writer, varies, operator)
    keys = Keys(node, writer, operator)
    if varies[1]:
        return RoundPresenceStep(node, writer, varies, keys)
    return OutsidePresenceStep(node, writer, varies, keys, present=operator.how is How.SEMI)
