"""Text of Spark's physical plan for a tick's job: native part, stages and shuffles as planned by Catalyst."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headrace.analysis.column_lineage import live_graph
from headrace.engine.engine import Engine
from headrace.expr.spark_columns import spark_schema
from headrace.operators.source import Source
from headrace.spark.explanation import bucketed_tables
from headrace.spark.placing.combining import insert_partial_operators
from headrace.spark.placing.native import native_parts, without_native
from headrace.spark.placing.stages import cut_stages
from headrace.spark.sources.opening import Frame, Opening, open_on_spark, union_columns, union_of
from headrace.spark.ticks import task
from headrace.spark.ticks.messages import run_tasks
from headrace.spark.ticks.plan import Plan, ShippedPlan
from headrace.spark.ticks.round_jobs import run_stages
from headrace.spark.ticks.task import TickOrder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from headrace.flow.flow import Flow


def physical_plan(flow: Flow, spark: SparkSession, *, shards: int, sinks: Mapping[str, object]) -> str:
    """Return the physical plan of a tick of `flow` that runs stage by stage, without running anything.

    The flow's sources are assumed to be DataFrames, so that the native part is included.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-explain-") as folder:
        job = _job(flow, spark, shards, sinks, Path(folder))
        shown = io.StringIO()
        # The public way to the text: it is printed.
        with contextlib.redirect_stdout(shown):
            job.explain("formatted")
    return shown.getvalue().strip() + "\n"


def _job(
    flow: Flow, spark: SparkSession, shards: int, sinks: Mapping[str, object], folder: Path
) -> DataFrame:
    graph = live_graph(flow.graph())
    whole = insert_partial_operators(graph)
    native = native_parts(whole, graph.sources)
    stages = without_native(cut_stages(whole, shards, bucketed_tables(sinks)), native)
    engine = Engine(flow)
    opened = [
        open_on_spark(
            Frame(spark.createDataFrame([], spark_schema(graph.nodes[node].schema))),
            Opening(
                spark=spark,
                engine=engine,
                name=name,
                operator=cast("Source", graph.nodes[node].operator),
                tag=tag,
                spool=folder,
                follow=False,
                positions={},
                native=native[name],
            ),
        )
        for tag, (name, node) in enumerate(graph.sources.items())
    ]
    frames = (source.frame for source in opened if source.frame is not None)
    rows = union_of(frames, union_columns(opened))
    assert rows is not None, "a flow has a source"
    plan = Plan(stages, tuple(source.input for source in opened), {}, str(folder), False)
    order = TickOrder(ShippedPlan.of(plan), 1, {}, frozenset())
    messages = run_tasks(rows, task.scatter(order))
    return run_stages(messages, order, stages.shards, range(1, len(stages.stages)))
