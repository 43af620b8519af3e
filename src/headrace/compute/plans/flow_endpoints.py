"""Sources and sinks of servable flows, and the identity flow of a subscription."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.analysis.fact_propagation import find_facts
from headrace.errors import SourceLocation
from headrace.expr.types import Schema
from headrace.flow.flow import Flow
from headrace.operators.source import Source

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
    return tuple(FlowSource(o.name, o.schema, o.append) for o in operators if isinstance(o, Source))


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
    rows = flow.add_source(Source(INPUT, schema, False, append), location)
    flow.add_sink(OUTPUT, rows, schema, location)
    return flow
