"""Map in loops with retractions: row by row, since rows of several rounds arrive together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.steps.row_functions import MapStep
from headrace.lowering.step import loop_step_for
from headrace.operators.map import Map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.node import Node
    from headrace.lowering.step import Step
    from headrace.lowering.step_writer import StepWriter


@loop_step_for.register(Map)
def _map(operator: Map, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    return MapStep(node, writer, operator.function)
