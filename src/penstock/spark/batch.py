"""A whole flow as native DataFrames: bounded input, one tick, no state kept.

**Bags.** A stream is the bag of its rows: each row as often as it is there,
and no column of weights. Append sources are that already. A table source is
made one at its border (`batch_sources`): the weights of equal rows are summed,
and each row comes as often as its sum says. So every operator after it is
plain relational algebra, and Catalyst sees the whole plan.

Expressions are native columns. What is opaque (callables) and what goes round
(loops) runs in the in-process engine, inside tasks (`batch_engine`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.analysis import analyse
from penstock.graph.order import components, is_cyclic, successors
from penstock.spark import batch_aggregates, batch_joins, batch_rows, batch_sets, batch_sources
from penstock.spark.batch_engine import run_loop
from penstock.spark.batch_operators import Site, lower

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.graph.node import FlowGraph

THEMES = (batch_aggregates, batch_joins, batch_rows, batch_sets, batch_sources)
"""The modules that say how each operator is lowered: they register with `lower`."""


def run_batch(graph: FlowGraph, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The rows of every sink, as DataFrames that are computed when they are read.

    frames: per source its rows, columns by name and of the types declared; further columns
            are left out. For a table source a column `weight`, a long, says how often a row
            comes (or is taken back); without it each row comes once.

    The rows are those that an engine's output adds up to when all input comes in one tick and
    what is deferred is waited for. Raises what the analysis of the flow raises, `BadInput` and
    `WrongType` where a frame is missing or does not fit. What rows raise, reading raises; under
    `penstock.spark.batch_errors.told_errors()` as errors of ours.
    """
    analyse(graph)
    after = successors(len(graph.nodes), ((e.source, e.target) for e in graph.edges()))
    made: dict[int, DataFrame] = {}
    for group in reversed(components(after)):
        if is_cyclic(group, after):
            made.update(run_loop(graph, group, made))
        else:
            node = graph.nodes[group[0]]
            inputs = tuple(made[i] for i in node.inputs)
            schemas = tuple(graph.nodes[i].schema for i in node.inputs)
            made[node.id] = lower(node.operator, Site(node, inputs, schemas, frames))
    return {name: made[node] for name, node in graph.sinks.items()}
