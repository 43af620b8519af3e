"""How a node is called in what users read: by their words, never by our numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph, Node


def is_named(node: Node) -> bool:
    """Whether the user gave the name."""
    return node.name != f"{node.operator.kind}_{node.id}"


def label(graph: FlowGraph, node: Node) -> str:
    """`filter 'cheap'`, `source 'bids'`, `sink 'averages'`, or the bare kind of a nameless operator."""
    sink = next((name for name, node_id in graph.sinks.items() if node_id == node.id), None)
    name = sink if sink is not None else node.name if is_named(node) else None
    return node.operator.kind if name is None else f"{node.operator.kind} {name!r}"
