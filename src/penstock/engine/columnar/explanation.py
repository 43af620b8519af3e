"""What `explain` tells of large ticks: what runs on frames, and why the rest does not."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.analysis import analyse
from penstock.analysis.names import label
from penstock.engine.plan import live_consumers, plan_parts

if TYPE_CHECKING:
    from penstock.engine.columnar.columnar_plan import ColumnarPlan
    from penstock.graph.node import FlowGraph


def told_of_large_ticks(graph: FlowGraph) -> Iterator[str]:
    """Lines on the parts of a flow, for `penstock.analysis.explain`."""
    if find_spec("polars") is None:
        yield "none: Polars is not installed, every tick runs in rows"
        return
    from penstock.engine.columnar.columnar_plan import shape_of

    analysis = analyse(graph)
    consumers = live_consumers(graph)
    for part in plan_parts(graph, analysis, consumers):
        yield from _lines(graph, shape_of(graph, analysis, consumers, part))


def _lines(graph: FlowGraph, shape: ColumnarPlan) -> Iterator[str]:
    names = [label(graph, graph.nodes[n]) for n in shape.columnar]
    if names:
        yield f"on frames: {', '.join(names)}{'' if shape.pays else ' (where rows come in frames)'}"
    for feed in shape.feeds:
        if feed.reduction is not None:
            readers = [graph.nodes[n] for n in shape.rest if feed.source in graph.nodes[n].inputs]
            yield f"summed up on frames: {', '.join(label(graph, node) for node in readers)}"
    for node_id, reason in shape.reasons.items():
        yield f"in rows: {label(graph, graph.nodes[node_id])}: {reason}"
