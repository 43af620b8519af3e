"""Rows into DataFrames and back, and a batch beside the oracle, for the tests of batch mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.engine.change import Change
from penstock.expr.rows import from_user
from penstock.expr.types import Schema
from penstock.flow.flow import Flow
from penstock.flow.operators.source import Source
from penstock.io.arrow import rows_to_table, table_to_rows
from penstock.spark.batch import lower_flow
from penstock.spark.batch_errors import told_errors
from penstock.testing import answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Bag = Counter[tuple[Any, ...]]


def frame_of(
    spark: SparkSession, schema: Schema, changes: Iterable[Change[Any]], *, weighted: bool
) -> DataFrame:
    """User rows with weights as a DataFrame; with a column `weight` if `weighted`."""
    rows = from_user(schema, what="test")([c.row for c in changes])
    if weighted:
        rows = [(*row, c.weight) for row, c in zip(rows, changes)]
    # Spark 4.3 misreads null elements of lists where it groups straight on Arrow's memory; a local
    # relation copies the rows first.
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "48MB")
    try:
        return spark.createDataFrame(rows_to_table(rows, schema, weighted=weighted))
    finally:
        spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")


def bag_of_frame(frame: DataFrame, schema: Schema) -> Bag:
    assert frame.columns == list(schema.names)
    return Counter(table_to_rows(frame.toArrow(), schema))


def batch_bags(spark: SparkSession, flow: Flow, inputs: Mapping[str, list[Change[Any]]]) -> dict[str, Bag]:
    """What every sink holds, by batch mode."""
    graph = flow.graph()
    frames: dict[str, DataFrame] = {}
    for name, node in graph.sources.items():
        operator = graph.nodes[node].operator
        assert isinstance(operator, Source)
        frames[name] = frame_of(spark, operator.schema, inputs.get(name, []), weighted=not operator.append)
    with told_errors():
        sinks = lower_flow(graph, frames).sinks
        return {n: bag_of_frame(frame, graph.nodes[graph.sinks[n]].schema) for n, frame in sinks.items()}


def true_bags(flow: Flow, inputs: Mapping[str, list[Change[Any]]]) -> dict[str, Bag]:
    """What every sink holds, by the oracle."""
    graph = flow.graph()
    totals: dict[str, Bag] = {}
    for name, changes in inputs.items():
        rows = from_user(graph.nodes[graph.sources[name]].schema, what="test")([c.row for c in changes])
        totals[name] = Counter()
        for row, change in zip(rows, changes):
            totals[name][row] += change.weight
    return {name: +bag for name, bag in answers(graph, totals).items()}
