"""Map in loops with retractions: row by row, since rows of several rounds arrive together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.loops.step import nested_step_for
from headrace.engine.steps.row_functions import MapStep
from headrace.operators.map import Map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.step_writer import StepWriter
    from headrace.engine.steps.step import Step
    from headrace.graph.node import Node


@nested_step_for.register(Map)
def _map(operator: Map, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    return MapStep(node, writer, operator.function)
