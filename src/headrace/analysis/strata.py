"""Loops, strata and ranks: the order in which operators run within a tick.

A *loop* is a set of operators that feed each other within a tick. A *stratum* counts the blocking inputs on
the longest path from a source. A *rank* is the position in a topological order of the whole flow, in which
the operators of a loop stand together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.graph.graph_algorithms import (
    adjacency_lists,
    is_cyclic,
    strongly_connected_components,
    topological_order,
)

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph


@dataclass(frozen=True, slots=True)
class ExecutionOrder:
    """Execution order of a flow. Loops and their nodes are in rank order; strata and ranks are by node id."""

    loops: tuple[tuple[int, ...], ...]
    strata: tuple[int, ...]
    ranks: tuple[int, ...]


def find_loops(graph: FlowGraph) -> list[list[int]]:
    """Find the cyclic components of the same-tick edges, in topological order."""
    following = same_tick_successors(graph)
    return [c for c in reversed(strongly_connected_components(following)) if is_cyclic(c, following)]


def same_tick_successors(graph: FlowGraph) -> list[list[int]]:
    """List the nodes that see the rows of each node in the same tick."""
    return adjacency_lists(len(graph.nodes), ((e.source, e.target) for e in graph.same_tick_edges()))


def find_execution_order(graph: FlowGraph) -> ExecutionOrder:
    """Compute loops, strata and ranks. No same-tick cycle may contain a blocking input."""
    parts = sorted(strongly_connected_components(same_tick_successors(graph)))
    part_of = {node: at for at, part in enumerate(parts) for node in part}
    between: set[tuple[int, int]] = set()
    inputs: list[list[tuple[int, int]]] = [[] for _ in parts]
    for edge in graph.same_tick_edges():
        source, target = part_of[edge.source], part_of[edge.target]
        if source != target:
            between.add((source, target))
            inputs[target].append((source, int(graph.port(edge).blocking)))
    topological = topological_order(adjacency_lists(len(parts), sorted(between)))
    stratum_of = [0] * len(parts)
    for part in topological:
        stratum_of[part] = max((stratum_of[s] + step for s, step in inputs[part]), default=0)
    in_order = sorted(topological, key=stratum_of.__getitem__)
    # Within a loop, ids are in order: only a feedback's input comes from a later node.
    ranked = [node for part in in_order for node in parts[part]]
    ranks = {node: rank for rank, node in enumerate(ranked)}
    following = same_tick_successors(graph)
    return ExecutionOrder(
        loops=tuple(tuple(parts[p]) for p in in_order if is_cyclic(parts[p], following)),
        strata=tuple(stratum_of[part_of[n.id]] for n in graph.nodes),
        ranks=tuple(ranks[n.id] for n in graph.nodes),
    )
