"""Where 0.0 must be put for -0.0: both are equal, so one of them stands for all where equal rows are one.

The rows of a table are counted by equality. What is shown of them must not depend on which of
two equal rows came first, so every row of a table holds 0.0, from its source on. Rows that are
only added stand by themselves and stay as they came; an operator that makes one of equal ones
(a group, a distinct row, a maximum) gives 0.0, too.

Found here is behind which operators an engine must see to it, and behind which it need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.expr.keys import holds_floats

if TYPE_CHECKING:
    from penstock.graph.facts import Facts
    from penstock.graph.node import FlowGraph


@dataclass(frozen=True, slots=True)
class Zeros:
    """What is known of the floats of each node's rows, by node id.

    one:  none is -0.0 where the rows are read.
    made: that is so because an engine makes it so.
    """

    one: tuple[bool, ...]
    made: frozenset[int]


def find_zeros(graph: FlowGraph, facts: Sequence[Facts]) -> Zeros:
    """See `Zeros`. In a cycle no more is known of rows that are only added than of those that enter it."""
    one = [not any(holds_floats(field.type) for field in node.schema.fields) for node in graph.nodes]
    made: set[int] = set()
    for node in graph.nodes:
        read = [one[i] or not facts[i].append for i in node.inputs]
        if one[node.id] or node.operator.one_zero(read):
            one[node.id] = True
        elif not facts[node.id].append:
            one[node.id] = True
            made.add(node.id)
    return Zeros(tuple(one), frozenset(made))
