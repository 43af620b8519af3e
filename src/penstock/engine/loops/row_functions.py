"""Map in loops with retractions: row by row, since rows of several rounds arrive together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.loops.step import nested_step_for
from penstock.engine.steps.row_functions import MapStep
from penstock.flow.operators.map import Map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.step_writer import StepWriter
    from penstock.engine.steps.step import Step
    from penstock.graph.node import Node


@nested_step_for.register(Map)
def _map(operator: Map, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    return MapStep(node, writer, operator.function)
