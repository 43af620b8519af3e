"""Whose order of rows is read: by an operator that looks at it, directly or behind others that keep it."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.flow.operators.cross_singleton import CrossSingleton
from penstock.flow.operators.sort import Sort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph.facts import Facts
    from penstock.graph.node import FlowGraph, Operator


def whose_order_is_read(graph: FlowGraph, facts: Sequence[Facts]) -> frozenset[int]:
    """The nodes whose output somebody reads in its order. Sinks read none: what leaves is a bag."""
    readers = graph.consumers()
    read: set[int] = set()
    waiting = [node.id for node in graph.nodes if facts[node.id].ordered]
    while True:
        found = {
            node
            for node in waiting
            for edge in readers[node]
            if edge.target in read or reads_order(graph.nodes[edge.target].operator, edge.port)
        }
        if found <= read:
            return frozenset(read)
        # What hands an order on that is read reads it itself.
        read |= found


@singledispatch
def reads_order(operator: Operator, port: int) -> bool:
    """Whether an operator looks at the order of a port's rows, where that means something."""
    return any(need.fact == "ordered" and need.port == port for need in operator.needs())


@reads_order.register
def _(operator: Sort, port: int) -> bool:
    # It keeps the order of rows that it holds to be equal.
    return True


@reads_order.register
def _(operator: CrossSingleton, port: int) -> bool:
    # Which row of the second one is the first.
    return port == 1
