"""From a join straight into a set of the same loop: what can be gathered row by row and added at once.

Most loops are a join whose pairs become, by choice of columns alone, rows of a feedback.
Then nothing has to be done per pair but to collect it: pairs of a round are counted
together, and each different row is looked at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.loops.sets import SetStep
from penstock.expr.tree import Column
from penstock.flow.operators.select import Select
from penstock.flow.operators.union import Union

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engine.loops.ranks import Ranks
    from penstock.engine.step_writer import StepWriter
    from penstock.engine.steps.step import Step


@dataclass(frozen=True, slots=True)
class Express:
    """Where rows of a node go. columns: per column of the set's rows, its position in a row of the node."""

    to: Ranks
    columns: tuple[int, ...]


def express_from(node: int, writer: StepWriter, steps: Mapping[int, Step]) -> Express | None:
    """The way from a node to a set, if it passes nothing that computes, drops or remembers."""
    columns = tuple(range(len(writer.graph.nodes[node].schema.fields)))
    while (edge := writer.handed_on(node)) is not None:
        step, target = steps[edge.target], writer.graph.nodes[edge.target]
        if isinstance(step, SetStep):
            own_keys = all(writer.is_own_key(field.type) for field in target.schema.fields)
            return Express(step.ranks, columns) if own_keys else None
        if isinstance(target.operator, Select):
            names = writer.input_schema(target, 0).names
            chosen = [expr for _, expr in target.operator.columns]
            if not all(isinstance(expr, Column) for expr in chosen):
                return None
            columns = tuple(columns[names.index(expr.name)] for expr in chosen if isinstance(expr, Column))
        elif not isinstance(target.operator, Union):
            return None
        node = target.id
    return None
