"""Where rows enter a flow and leave it; and the flow of a subscription."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.analysis.fact_propagation import find_facts
from penstock.errors import SourceLocation
from penstock.expr.types import Schema
from penstock.flow.flow import Flow
from penstock.flow.operators.source import Source

INPUT, OUTPUT = "input", "output"
"""The names of the source and the sink of `identity_flow`."""


@dataclass(frozen=True, slots=True)
class FlowSource:
    """A source of a flow. append: its rows are only ever added."""

    name: str
    schema: Schema
    append: bool


@dataclass(frozen=True, slots=True)
class FlowSink:
    """A sink of a flow. append: its rows are never taken back, as far as is known of the flow."""

    name: str
    schema: Schema
    append: bool


def sources_of(flow: Flow) -> tuple[FlowSource, ...]:
    """The sources of a servable flow, in the order of writing."""
    graph = flow.graph()
    operators = (graph.nodes[node].operator for node in graph.sources.values())
    return tuple(FlowSource(o.name, o.schema, o.append) for o in operators if isinstance(o, Source))


def sinks_of(flow: Flow) -> tuple[FlowSink, ...]:
    """The sinks of a servable flow, in the order of writing."""
    graph = flow.graph()
    facts = find_facts(graph)
    nodes = ((name, graph.nodes[node]) for name, node in graph.sinks.items())
    return tuple(FlowSink(name, node.schema, facts[node.id].append) for name, node in nodes)


def identity_flow(schema: Schema, append: bool = False) -> Flow:
    """The flow of a subscription: the source `INPUT`, whose rows leave as they are at the sink `OUTPUT`.

    append: whether rows are only ever added.
    """
    flow, location = Flow("subscription"), SourceLocation("<subscription>", 1)
    rows = flow.add_source(Source(INPUT, schema, False, append), location)
    flow.add_sink(OUTPUT, rows, schema, location)
    return flow
