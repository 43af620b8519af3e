"""How a node is called in what users read: by their words, never by our numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph, Node


def is_named(node: Node) -> bool:
    """Whether the user gave the name."""
    return node.name != f"{node.operator.kind}_{node.id}"


def user_name(graph: FlowGraph, node: Node) -> str | None:
    """The name that the user gave to the operator, or to the sink that it is."""
    sink = next((name for name, node_id in graph.sinks.items() if node_id == node.id), None)
    return sink if sink is not None else node.name if is_named(node) else None


def label(graph: FlowGraph, node: Node) -> str:
    """`filter 'cheap'`, `source 'bids'`, `sink 'averages'`, or the bare kind of a nameless operator."""
    name = user_name(graph, node)
    return node.operator.kind if name is None else f"{node.operator.kind} {name!r}"


def called(graph: FlowGraph, node: Node) -> str:
    """The label as it stands in a sentence: a nameless operator is `the filter`."""
    text = label(graph, node)
    return f"the {text}" if text == node.operator.kind else text
