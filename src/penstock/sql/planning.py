"""Planning by Catalyst: from the text of a query to Spark's optimised logical plan of it.

A query is planned against placeholders, tables without rows of the right schema, so that neither statistics
nor values nor streaming sources play a part. The JSON of a plan says nothing of which relation is which; the
plan itself has the placeholder's RDD.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import UnsupportedQuery
from penstock.sql.catalyst_plan import TABLE, CatalystNode, parse_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from penstock.errors import SourceLocation
    from penstock.expr.types import Schema

_RULES = "org.apache.spark.sql.catalyst.optimizer."
_CONFIGURATION = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.optimizer.inSetConversionThreshold": str(2**31 - 1),
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    # Rules that look at rows, or that compute decimals as unscaled numbers.
    "spark.sql.optimizer.excludedRules": ",".join(
        _RULES + rule for rule in ("DecimalAggregates", "PropagateEmptyRelation", "ConvertToLocalRelation")
    ),
}


def plan_query(
    text: str, tables: Mapping[str, Schema], spark: SparkSession, location: SourceLocation
) -> CatalystNode:
    """Plan a query over tables. Raises `UnsupportedQuery` with Spark's message if Spark refuses it."""
    from pyspark.errors import PySparkException

    from penstock.spark.lowering.types import spark_schema

    session = spark.newSession()
    for key, value in _CONFIGURATION.items():
        session.conf.set(key, value)
    names: dict[int, str] = {}
    for name, schema in tables.items():
        placeholder = session.createDataFrame(session.sparkContext.emptyRDD(), spark_schema(schema))
        placeholder.createOrReplaceTempView(f"`{name}`")
        names.update((rdd, name) for rdd, _ in _relations(_java(placeholder).queryExecution().analyzed()))
    try:
        plan = _java(session.sql(text)).queryExecution().optimizedPlan()
    except PySparkException as error:
        raise UnsupportedQuery(
            "Spark cannot plan the query",
            where=[location],
            why=str(error).partition("\n\nJVM stacktrace")[0].strip(),
        ) from None
    if "try_" in text.lower():
        _refuse_try(plan, location)
    listed = json.loads(plan.toJSON())
    _name_relations(listed, {attribute: names[rdd] for rdd, attribute in _relations(plan)})
    return parse_tree(listed)


def _java(frame: Any) -> Any:
    return frame._jdf


def _relations(plan: Any) -> Iterator[tuple[int, int]]:
    """Yield the RDD and the first attribute of each relation of a plan, subqueries included."""
    for each in (plan, *_items(plan.subqueriesAll())):
        for leaf in _items(each.collectLeaves()):
            if leaf.nodeName() == "LogicalRDD":
                yield leaf.rdd().id(), leaf.output().apply(0).exprId().id()


def _refuse_try(plan: Any, location: SourceLocation) -> None:
    """Raise `UnsupportedQuery` for a function that is null where it fails, which the JSON does not tell."""
    for each in (plan, *_items(plan.subqueriesAll())):
        for expression in _expressions(each):
            if _evaluation(expression) == "TRY":
                raise UnsupportedQuery(
                    f"the query uses {expression.toString()}, which has no incremental form yet",
                    where=[location],
                    why="It is null where it fails.",
                    fix="test for what would fail, by CASE WHEN",
                )


def _expressions(plan: Any) -> Iterator[Any]:
    waiting = _items(plan.expressions())
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting += _items(expression.children())
    for child in _items(plan.children()):
        yield from _expressions(child)


def _evaluation(expression: Any) -> str:
    """Return how an expression treats errors; empty if it cannot fail, or always raises."""
    from py4j.protocol import Py4JError

    for mode in (lambda: expression.evalMode(), lambda: expression.evalContext().evalMode()):
        try:
            return str(mode().toString())
        except Py4JError:  # it has no such method
            continue
    return ""


def _items(seq: Any) -> list[Any]:
    return [seq.apply(at) for at in range(seq.size())]


def _name_relations(found: Any, tables: Mapping[int, str]) -> None:
    """Add the name of its table to each `LogicalRDD` in the JSON of a plan."""
    if isinstance(found, list):
        for item in cast("list[Any]", found):
            _name_relations(item, tables)
    elif isinstance(found, dict):
        node = cast("dict[str, Any]", found)
        if node.get("class", "").endswith(".LogicalRDD"):
            node[TABLE] = tables[node["output"][0][0]["exprId"]["id"]]
        for value in node.values():
            _name_relations(value, tables)
