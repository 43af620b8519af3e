"""Detection of nodes whose row order is read, directly or through operators that preserve it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.node import FlowGraph, Operator
    from headrace.graph.operator_declarations import Facts


def whose_order_is_read(graph: FlowGraph, facts: Sequence[Facts]) -> frozenset[int]:
    """Return the nodes whose output order is read. A sink does not read order, since its output is a bag."""
    readers = graph.consumers()
    read: set[int] = set()
    waiting = [node.id for node in graph.nodes if facts[node.id].ordered]
    while True:
        found = {
            node
            for node in waiting
            for edge in readers[node]
            if edge.target in read or _reads_order(graph.nodes[edge.target].operator, edge.port)
        }
        if found <= read:
            return frozenset(read)
        # What hands an order on that is read reads it itself.
        read |= found


def _reads_order(operator: Operator, port: int) -> bool:
    """Return whether an operator reads the order of a port's rows, where that order is meaningful."""
    # One that makes an order keeps that of the rows that it holds to be equal.
    return operator.makes_order or operator.reads_order(port)
