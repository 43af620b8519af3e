"""Rows of a stream in the order of their event time.

The watermark of a flow rises row by row, and Spark hands out files in any order. So the rows that a run reads
are put in order first: late are only those that a run before would have had to bring, as with Spark, whose
watermark is in force from the next micro-batch on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.pipelines.graph import AnalysedQuery
from penstock.pipelines.leaves import Leaf, relation_like
from penstock.queries.plan_copier import PlanCopier
from penstock.queries.plan_details import frame_of_plan, items, java_class

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


def has_unordered_watermark(query: AnalysedQuery, spark: SparkSession) -> bool:
    """Return whether a watermark is on a time that is not computed of one row of one stream."""
    streams = [leaf for leaf in query.leaves if leaf.streaming]
    return any(
        all(_time_in(leaf, watermark, spark) is None for leaf in streams)
        for watermark in _watermarks(query.plan)
    )


def _watermarks(plan: Any) -> list[Any]:
    own = [plan] if plan.nodeName() == "EventTimeWatermark" else []
    return own + [found for child in items(plan.children()) for found in _watermarks(child)]


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
