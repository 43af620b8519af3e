"""Regions: maximal parts of a flow that are active together.

A node whose inputs share one activation belongs to their region. A new region begins after a node that may be
silent. Each *junction* heads a region: a node where different activations meet, a node that has delayed input
or runs in each tick, or a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.graph.operator_declarations import Delay

if TYPE_CHECKING:
    from headrace.analysis.strata import ExecutionOrder
    from headrace.graph.node import Edge, FlowGraph


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
    """Find the regions, in an order in which they can run one after the other."""
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
