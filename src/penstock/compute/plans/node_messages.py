"""Operators as messages, and plans as messages."""

from __future__ import annotations

from penstock.compute.errors import BadPlan
from penstock.compute.plans.generated import plan_pb2 as pb
from penstock.compute.plans.registry import RECORD_NAMES
from penstock.compute.plans.value_encoder import Writer
from penstock.graph.node import Node

VERSION = 1
"""Of the form of plans."""


def body_of(nodes: tuple[Node, ...], writer: Writer, *, given_ticks: bool) -> pb.Body:
    """What operators are, as a message; `writer` notes the Python objects in them."""
    return pb.Body(version=VERSION, given_ticks=given_ticks, nodes=[node_of(node, writer) for node in nodes])


def node_of(node: Node, writer: Writer) -> pb.Node:
    """One of the operators. Raises `BadPlan` for one that no plan can have."""
    if type(node.operator) not in RECORD_NAMES:
        raise BadPlan(f"{node.operator.kind} is no operator that a plan can have", where=[node.location])
    with writer.position.at(node.name):
        operator = writer.record(node.operator)
        return pb.Node(operator=operator, inputs=node.inputs, schema=writer.schema(node.schema))
