"""Servability of flows: whether the answer at a time is a function of the input at that time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.analysis import analyse
from headrace.analysis.analysis import find_facts
from headrace.compute.errors import NotServable
from headrace.errors import EvaluationError, SourceLocation, Step
from headrace.expr.bounds import check_patterns
from headrace.expr.types import Schema, holds_any
from headrace.flow.flow import Flow
from headrace.graph.node import label_in_sentence
from headrace.graph.operator_declarations import OF_A_TICK, Unservable
from headrace.operators.endpoints import SourceOperator

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph, Node, Operator


def check_servable(flow: Flow) -> None:
    """Raise `NotServable` for a flow that cannot be served, naming the first offending operator.

    Raises what `Flow.graph` and `analyse` raise, too.
    """
    graph = flow.graph()
    analyse(graph)
    if graph.given_ticks:
        raise NotServable(
            f"flow {graph.name!r} cannot be served: its ticks are part of its input",
            why="Collections have times, and no ticks: what is written together may be read apart.",
            fix='leave out ticks="given", and let rows carry what the ticks said, in a column',
            operator="",
        )
    for node in graph.nodes:
        reason = unservable_reason(node.operator)
        if reason is not None:
            raise _refused(graph, node, reason)
        _check_patterns(graph, node)
    _check_columns(graph)


def unservable_reason(operator: Operator) -> Unservable | None:
    """Return why a flow with this operator cannot be served, or None if the operator is servable."""
    return operator.unservable() or (OF_A_TICK if operator.depends_on_cut() else None)


def _refused(graph: FlowGraph, node: Node, reason: Unservable) -> NotServable:
    return NotServable(
        f"flow {graph.name!r} cannot be served because of {label_in_sentence(graph, node)}",
        where=[Step(node.location, node.operator.kind)],
        why=reason.why,
        fix=reason.fix,
        operator=node.name,
    )


def _check_patterns(graph: FlowGraph, node: Node) -> None:
    """Raise `NotServable` for a pattern that cannot be matched in linear time."""
    for _, expr in node.operator.expressions():
        try:
            check_patterns(expr)
        except EvaluationError as error:
            raise _refused(graph, node, Unservable(f"{error.what}.\n{error.why}", error.fix)) from None


def _check_columns(graph: FlowGraph) -> None:
    """Raise `NotServable` if stored or sent rows have a column typed as an arbitrary Python object."""
    for node_id in (*graph.sources.values(), *graph.sinks.values()):
        node = graph.nodes[node_id]
        if column := _any_column(node.schema):
            why = f"Column {column!r} may hold any Python value, which can neither be stored nor sent."
            raise _refused(graph, node, Unservable(why, "give the column a type, in the row class"))


def _any_column(schema: Schema) -> str | None:
    return next((field.name for field in schema.fields if holds_any(field.type)), None)


INPUT = "input"
"""Source name of `identity_flow`."""
OUTPUT = "output"
"""Sink name of `identity_flow`."""


@dataclass(frozen=True, slots=True)
class FlowSource:
    """Source of a flow. append: whether its rows are never retracted."""

    name: str
    schema: Schema
    append: bool


@dataclass(frozen=True, slots=True)
class FlowSink:
    """Sink of a flow. append: whether its rows are known never to be retracted."""

    name: str
    schema: Schema
    append: bool


def sources_of(flow: Flow) -> tuple[FlowSource, ...]:
    """List a servable flow's sources, in order of declaration."""
    graph = flow.graph()
    operators = (graph.nodes[node].operator for node in graph.sources.values())
    return tuple(FlowSource(o.name, o.schema, o.append) for o in operators if isinstance(o, SourceOperator))


def sinks_of(flow: Flow) -> tuple[FlowSink, ...]:
    """List a servable flow's sinks, in order of declaration."""
    graph = flow.graph()
    facts = find_facts(graph)
    nodes = ((name, graph.nodes[node]) for name, node in graph.sinks.items())
    return tuple(FlowSink(name, node.schema, facts[node.id].append) for name, node in nodes)


def identity_flow(schema: Schema, append: bool = False) -> Flow:
    """Build the flow for a subscription, which copies rows from the source `INPUT` to the sink `OUTPUT`.

    append: whether rows are only ever added.
    """
    flow, location = Flow("subscription"), SourceLocation("<subscription>", 1)
    rows = flow.add_source(SourceOperator(INPUT, schema, False, append), location)
    flow.add_sink(OUTPUT, rows, schema, location)
    return flow
