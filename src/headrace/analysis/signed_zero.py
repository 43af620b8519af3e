"""Normalization of -0.0 to 0.0 where equal rows are merged.

Rows of a table are counted by equality, and the output must not depend on which of two equal rows arrived
first. So tables hold 0.0 in place of -0.0, from the source on, as do the outputs of operators that merge
equal values (a group, a distinct row, a maximum). Rows of append streams keep their zeros.

The analysis finds the operators whose output an engine must normalize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.expr.dict_keys import has_representatives

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph
    from headrace.graph.operator_declarations import Facts


@dataclass(frozen=True, slots=True)
class ZeroNormalization:
    """Nodes whose rows are free of -0.0, and those where the engine must normalize.

    one: per node id, whether its rows are free of -0.0 when read.
    made: nodes whose rows the engine must normalize for that.
    """

    one: tuple[bool, ...]
    made: frozenset[int]


def find_zero_normalization(graph: FlowGraph, facts: Sequence[Facts]) -> ZeroNormalization:
    """Find where to normalize -0.0. In a cycle, append streams inherit the property from all inputs."""
    one = [not any(has_representatives(field.type) for field in node.schema.fields) for node in graph.nodes]
    made: set[int] = set()
    for node in graph.nodes:
        read = [one[i] or not facts[i].append for i in node.inputs]
        if one[node.id] or node.operator.one_zero(read):
            one[node.id] = True
        elif not facts[node.id].append:
            one[node.id] = True
            made.add(node.id)
    return ZeroNormalization(tuple(one), frozenset(made))
