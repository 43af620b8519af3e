"""Operators that are others where their rows come back to them within a tick."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.graph.order import components, is_cyclic, successors

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph


def inside_loops(graph: FlowGraph) -> FlowGraph:
    """The graph with what each operator in a cycle within a tick is there (`Operator.inside_loop`)."""
    following = successors(len(graph.nodes), ((e.source, e.target) for e in graph.same_tick_edges()))
    looping = {node for part in components(following) if is_cyclic(part, following) for node in part}
    changed = {n: graph.nodes[n].operator.inside_loop() for n in looping}
    if all(operator is graph.nodes[n].operator for n, operator in changed.items()):
        return graph
    nodes = tuple(replace(n, operator=changed[n.id]) if n.id in changed else n for n in graph.nodes)
    return replace(graph, nodes=nodes)
