"""Order of a flow: loops, strata, ranks and regions.

A *loop* is a set of operators that feed each other within a tick. A *stratum* counts the blocking inputs on
the longest path from a source. A *rank* is the position in a topological order of the whole flow, in which
the operators of a loop stand together.

A *region* is a maximal part of the flow that is active together. A node whose inputs share one activation
belongs to their region. A new region begins after a node that may be silent. Each *junction* heads a region:
a node where different activations meet, a node that has delayed input or runs in each tick, or a loop.
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
from headrace.graph.operator_declarations import Delay

if TYPE_CHECKING:
    from headrace.graph.node import Edge, FlowGraph


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


@dataclass(frozen=True, slots=True)
class Region:
    """Maximal set of nodes that are active together.

    head: junction or source that activates the region; for a loop, its first node.
    nodes: in execution order.
    inputs: edges that enter the region, including delayed ones (even from the region itself).
    """

    head: int
    nodes: tuple[int, ...]
    inputs: tuple[Edge, ...]


def find_activation(graph: FlowGraph, order: ExecutionOrder) -> tuple[int, ...]:
    """Find the head of each node's region: a node is active exactly when its head is."""
    loop_head = {node: loop[0] for loop in order.loops for node in loop}
    activation = [node.id for node in graph.nodes]
    for node_id in sorted(activation, key=order.ranks.__getitem__):
        node = graph.nodes[node_id]
        heads = {i if graph.nodes[i].operator.may_be_silent() else activation[i] for i in node.inputs}
        delayed = any(port.delay is not Delay.NONE for port in node.operator.ports())
        if node_id in loop_head:
            activation[node_id] = loop_head[node_id]
        elif len(heads) == 1 and not delayed and not node.operator.runs_each_tick:
            (activation[node_id],) = heads
    return tuple(activation)


def find_regions(graph: FlowGraph, order: ExecutionOrder, activation: tuple[int, ...]) -> tuple[Region, ...]:
    """Find the regions, in an order in which they can run sequentially."""
    members: dict[int, list[int]] = {}
    for node_id in sorted(range(len(graph.nodes)), key=order.ranks.__getitem__):
        members.setdefault(activation[node_id], []).append(node_id)
    entering: dict[int, list[Edge]] = {head: [] for head in members}
    for edge in graph.edges():
        head = activation[edge.target]
        if activation[edge.source] != head or graph.port(edge).delay is not Delay.NONE:
            entering[head].append(edge)
    # A head has the least rank of its region, so its first member orders the regions by head.
    return tuple(Region(head, tuple(nodes), tuple(entering[head])) for head, nodes in members.items())
