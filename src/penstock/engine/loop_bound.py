"""A bound of the rounds of loops that whoever runs a flow sets, instead of who wrote it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import BadInput
from penstock.flow.operators.bag_feedback import BagFeedback
from penstock.flow.operators.feedback import Feedback

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph, Node


def bound_loops(graph: FlowGraph, max_iterations: int | None) -> FlowGraph:
    """The same flow, its feedbacks bound to so many rounds per tick; None: as they are.

    Raises `BadInput` for a bound below 1.
    """
    if max_iterations is None:
        return graph
    if max_iterations < 1:
        raise BadInput(f"max_iterations is {max_iterations}", fix="give 1 or more")
    return replace(graph, nodes=tuple(_bound(node, max_iterations) for node in graph.nodes))


def _bound(node: Node, max_iterations: int) -> Node:
    if not isinstance(node.operator, Feedback | BagFeedback):
        return node
    return replace(node, operator=replace(node.operator, max_iterations=max_iterations))
