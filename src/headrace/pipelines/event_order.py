"""Rows of a stream in the order of their event time.

The watermark of a flow rises row by row, and Spark hands out files in any order. So the rows that a run reads
are put in order first. A row is late only if an earlier run closed its window, as with Spark, whose watermark
is in force from the next micro-batch on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.pipelines.graph import AnalysedQuery
from headrace.pipelines.leaves import Leaf, relation_like
from headrace.queries.plan_copier import PlanCopier
from headrace.queries.plan_details import frame_of_plan, items, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def in_time_order(rows: DataFrame, query: AnalysedQuery, leaf: Leaf, spark: SparkSession) -> DataFrame:
    """Return rows of a leaf in the order of the time that has a watermark; as they are without one."""
    from pyspark.sql import Column

    for watermark in _watermarks(query.plan):
        time = _time_in(leaf, watermark, spark)
        if time is not None:
            columns = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
            whole = frame_of_plan(relation_like(leaf.node, rows, spark), spark)
            return whole.sort(Column(columns.column(time)))
    return rows


def why_refused(query: AnalysedQuery, states: Sequence[str], spark: SparkSession) -> tuple[str, str] | None:
    """Return why Spark's late rows would be others than those of a flow, and the way out; None if not.

    states: names of the operators with state. To Spark a row is late only to an operator that forgets by the
    least of all watermarks; in a flow, to all that is above its own watermark.
    """
    watermarks = _watermarks(query.plan)
    if not watermarks:
        return None
    if len(watermarks) > 1:
        return "it has more than one watermark", _ONE_STREAM
    keeping = [state for state in states if state != "Expand"]
    if "Join" in keeping:
        return "it joins streams, of which one has a watermark", "leave out the watermark"
    if len(keeping) > 1:
        return f"{' and '.join(keeping)} share a watermark", _ONE_EACH
    streams = [leaf for leaf in query.leaves if leaf.streaming]
    if any(_time_in(leaf, watermarks[0], spark) is not None for leaf in streams):
        return None
    above = _origin(watermarks[0])
    if above.children().size():
        return f"its watermark is above a {above.nodeName().lower()}", _ONE_STREAM
    return "its watermark is on a time that is not computed of one row of its stream", _ONE_STREAM


_ONE_EACH = "make a streaming table of each, which the next one reads as a stream with a watermark"
_ONE_STREAM = "write the rows into a streaming table, and put the watermark on a stream of that one"


def _watermarks(plan: Any) -> list[Any]:
    own = [plan] if plan.nodeName() == "EventTimeWatermark" else []
    return own + [found for child in items(plan.children()) for found in _watermarks(child)]


def _origin(watermark: Any) -> Any:
    """Return the relation below a watermark, or the first operator of several inputs."""
    node = watermark.child()
    while node.children().size() == 1:
        node = node.children().apply(0)
    return node


def _time_in(leaf: Leaf, watermark: Any, spark: SparkSession) -> Any | None:
    """Return the time of a watermark as an expression over a leaf; None if it is not over this leaf alone."""
    time, node = watermark.eventTime(), watermark.child()
    while node.children().size() == 1:
        if node.nodeName() == "Project":
            time = _with_computed(time, items(node.projectList()), spark)
        node = node.children().apply(0)
    if node.children().size():
        return None
    there = {each.exprId().id() for each in items(leaf.node.output())}
    read = {each.exprId().id() for each in items(time.references().toSeq())}
    return time if read and read <= there else None


def _with_computed(expression: Any, columns: list[Any], spark: SparkSession) -> Any:
    """Return an expression over a projection as one over its input."""
    computed = {each.exprId().id(): each.child() for each in columns if each.nodeName() == "Alias"}

    def of_input(node: Any) -> Any:
        return computed.get(node.exprId().id()) if node.nodeName() == "AttributeReference" else None

    return PlanCopier(spark, expressions=of_input).expression(expression)
