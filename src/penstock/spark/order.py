"""Whose order of rows is read: by an operator that needs it, directly or behind others that keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
            if edge.target in read or _needs_order(graph.nodes[edge.target].operator, edge.port)
        }
        if found <= read:
            return frozenset(read)
        # What hands an order on that is read reads it itself.
        read |= found


def _needs_order(operator: Operator, port: int) -> bool:
    return any(need.fact == "ordered" and need.port == port for need in operator.needs())
