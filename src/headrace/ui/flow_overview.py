"""Static part of a run's page: picture, regions, explanation and generated code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.analysis import analyse, explain
from headrace.analysis.column_liveness import live_graph
from headrace.analysis.node_labels import label
from headrace.engine.program import compile_program
from headrace.operators.late_rows import LateRows
from headrace.view import picture_of, to_svg

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph
    from headrace.ui.page import Json


def flow_description(flow: Flow) -> Json:
    """Describe a flow by its picture, explanation and generated code. Raises the errors of its analysis."""
    graph = flow.graph()
    program = compile_program(live_graph(graph, at_sources=False))
    return {
        "title": graph.name,
        "svg": to_svg(picture_of(graph)),
        "explanation": str(explain(graph)),
        "code": program.source_code,
    }


def flow_overview(
    flow: Flow,
    sources: Mapping[str, Any],
    sinks: Mapping[str, Any],
    *,
    engine: str = "here",
    shards: int | None = None,
) -> Json:
    """Describe a flow with the sources and sinks of its run.

    engine: "here" or "spark". shards: as given to a run on Spark.

    Raises the errors of the flow's analysis, and of placing it on Spark.
    """
    graph = flow.graph()
    analysis = analyse(graph)
    return {
        **flow_description(flow),
        "on_spark": _on_spark(flow, sinks, shards) if engine == "spark" else None,
        "nodes": [label(graph, node) for node in graph.nodes],
        "strata": list(analysis.strata),
        "sources": {name: _described(sources.get(name)) for name in graph.sources},
        "late_sinks": [
            name for name, node in graph.sinks.items() if name in sinks and _holds_late_rows(graph, node)
        ],
        "sinks": {
            name: {
                "destination": _described(sinks[name]),
                "verdict": analysis.verdicts[name].value,
                "table": not analysis.facts[graph.sinks[name]].append,
            }
            for name in graph.sinks
            if name in sinks
        },
    }


def _on_spark(flow: Flow, sinks: Mapping[str, Any], shards: int | None) -> str:
    # Not at the top, because most pages show runs in this process.
    from headrace.spark.explanation import SHARDS, explain_on_spark

    return explain_on_spark(flow.graph(), shards=SHARDS if shards is None else shards, sinks=dict(sinks))


def _holds_late_rows(graph: FlowGraph, sink: int) -> bool:
    (read,) = graph.nodes[sink].inputs
    return isinstance(graph.nodes[read].operator, LateRows)


def _described(endpoint: object) -> str:
    """Return the kind of an endpoint and its path. Other options may hold a password."""
    path = getattr(endpoint, "path", None) or getattr(getattr(endpoint, "records", None), "path", None)
    kind = type(endpoint).__name__
    return f"{kind} {path}" if path else kind
