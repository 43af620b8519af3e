"""Joins that must apply retractions before insertions.

A join processes changes one after the other. If a row arrives on one side while its old partner leaves on the
other, the two may be paired and separated again within a tick. No sink sees that pair, but an expression or
function after the join would be evaluated on it, and might fail. If that is possible, the join applies
retractions before insertions; otherwise it does not need to, which saves the buffers of its inputs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING

from headrace.expr.check import can_fail
from headrace.expr.types import Schema
from headrace.operators.join import Join
from headrace.operators.partition import Partition

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.graph.node import FlowGraph, Node, Operator
    from headrace.lowering.step_writer import StepWriter


def must_take_back_first(writer: StepWriter, node: Node) -> bool:
    """Return whether pairs that never existed could be observed downstream of a join."""
    if all(writer.is_append(source) for source in node.inputs):
        return False
    graph, operator = writer.graph, node.operator
    residual = operator.residual if isinstance(operator, Join) else None
    if residual is not None and can_fail(residual, pair_schema(graph, node, operator)):
        return True
    seen: set[int] = set()
    waiting = [node.id]
    while waiting:
        for edge in writer.consumers[waiting.pop()]:
            target = graph.nodes[edge.target]
            if evaluates_fallible(graph, target):
                return True
            if edge.target not in seen and not target.operator.nets:
                seen.add(edge.target)
                waiting.append(edge.target)
    return False


def pair_schema(graph: FlowGraph, node: Node, operator: Operator) -> Schema:
    """Return the columns of both sides of a join, under the names used by its residual."""
    assert isinstance(operator, Join)
    fields = [f for source in node.inputs for f in graph.nodes[source].schema.fields]
    named = zip(fields, operator.pair_names, strict=True)
    return Schema(tuple(replace(f, name=name) for f, name in named))


def evaluates_fallible(graph: FlowGraph, node: Node) -> bool:
    """Return whether a node evaluates anything that may fail on a row."""
    if isinstance(node.operator, Partition) or next(node.operator.callables(), None) is not None:
        # A row whose port is none of a partition's fails, however the port is found.
        return True
    return any(can_fail(expr, schema) for expr, schema in _computed(node.operator, graph, node))


@singledispatch
def _computed(operator: Operator, graph: FlowGraph, node: Node) -> list[tuple[Expr, Schema]]:
    """Return a node's expressions, each with its schema. Default: all over the columns of the only input."""
    return [(expr, graph.nodes[node.inputs[0]].schema) for _, expr in operator.expressions()]


@_computed.register(Join)
def _(operator: Join, graph: FlowGraph, node: Node) -> list[tuple[Expr, Schema]]:
    left, right = (graph.nodes[source].schema for source in node.inputs)
    found = [(expr, left) for expr in operator.left_keys] + [(expr, right) for expr in operator.right_keys]
    if operator.residual is not None:
        found.append((operator.residual, pair_schema(graph, node, operator)))
    return found
