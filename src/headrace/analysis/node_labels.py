"""Labels of nodes in messages: the user's names, never internal ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph, Node


def is_named(node: Node) -> bool:
    """Return whether the user gave the name."""
    return node.name != f"{node.operator.kind}_{node.id}"


def user_name(graph: FlowGraph, node: Node) -> str | None:
    """Return the name given by the user to an operator or a sink."""
    sink = next((name for name, node_id in graph.sinks.items() if node_id == node.id), None)
    return sink if sink is not None else node.name if is_named(node) else None


def label(graph: FlowGraph, node: Node) -> str:
    """Return a label such as `filter 'cheap'`, `source 'bids'` or `sink 'averages'`; the kind if unnamed."""
    name = user_name(graph, node)
    return node.operator.kind if name is None else f"{node.operator.kind} {name!r}"


def label_in_sentence(graph: FlowGraph, node: Node) -> str:
    """Return the label for use within a sentence, with an article if unnamed: `the filter`."""
    text = label(graph, node)
    return f"the {text}" if text == node.operator.kind else text
