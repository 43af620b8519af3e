"""Planning by Catalyst: from a query or a DataFrame to Spark's optimised logical plan of it.

The text of a query is planned against placeholders, tables without rows of the right schema, so that neither
statistics nor values play a part. The JSON of a plan does not say which relation is which; the plan in the
JVM does, and there a DataFrame's relations are compared with those of its inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import UnsupportedQuery
from penstock.queries.catalyst_plan import ROWS, TABLE, CatalystNode, parse_schema, parse_tree

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyspark.sql import DataFrame, SparkSession

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
    from penstock.spark.lowering.types import spark_schema

    session = _session(spark)
    inputs: dict[str, Any] = {}
    for name, schema in tables.items():
        placeholder = session.createDataFrame(session.sparkContext.emptyRDD(), spark_schema(schema))
        placeholder.createOrReplaceTempView(f"`{name}`")
        inputs[name] = _java(placeholder).queryExecution().analyzed()
    with _spark_errors(location):
        plan = _java(session.sql(text)).queryExecution().optimizedPlan()
    if "try_" in text.lower():
        _refuse_try(plan, location)
    return _read_plan(plan, inputs, session, location)


def plan_frame(frame: DataFrame, inputs: Mapping[str, DataFrame], location: SourceLocation) -> CatalystNode:
    """Plan a DataFrame over those that it was made from, each as it was read.

    Raises `UnsupportedQuery` for one of Spark Connect, for one that streams, and for computed inputs.
    """
    for each in (frame, *inputs.values()):
        if not hasattr(each, "_jdf"):
            raise UnsupportedQuery(
                "the DataFrame is one of Spark Connect",
                where=[location],
                why="Its plan is on the server.",
                fix="make it in a session of this process: SparkSession.builder.master(...)",
            )
        if each.isStreaming:
            raise UnsupportedQuery(
                "the DataFrame is a stream",
                where=[location],
                why="Spark plans a stream only as it starts it.",
                fix="make the same one of spark.read, and give what is only added to as sources={...}",
            )
    session = _session(frame.sparkSession)
    leaves = {name: _leaf(name, _java(each), location) for name, each in inputs.items()}
    mode = _java_class(session, "org.apache.spark.sql.execution.CommandExecutionMode").ALL()
    state: Any = _java_session(session).sessionState()
    with _spark_errors(location):
        plan = state.executePlan(_java(frame).queryExecution().analyzed(), mode).optimizedPlan()
    _refuse_try(plan, location)
    return _read_plan(plan, leaves, session, location)


def _session(spark: SparkSession) -> SparkSession:
    """Start a session that plans by Penstock's rules and has no tables."""
    session = spark.newSession()
    for key, value in _CONFIGURATION.items():
        session.conf.set(key, value)
    return session


@contextmanager
def _spark_errors(location: SourceLocation) -> Generator[None]:
    """Convert Spark's refusal of a query."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise UnsupportedQuery(
            "Spark cannot plan the query",
            where=[location],
            why=str(error).partition("\n\nJVM stacktrace")[0].strip(),
        ) from None


def _read_plan(
    plan: Any, inputs: Mapping[str, Any], session: SparkSession, location: SourceLocation
) -> CatalystNode:
    """Read a plan of the JVM. inputs: the plan of each relation, by its name."""
    listed = json.loads(plan.toJSON())
    marks = dict(_marked_leaves(plan, inputs, session, location))
    _mark_leaves(listed, marks)
    return parse_tree(listed)


def _java(frame: Any) -> Any:
    return frame._jdf


def _java_session(session: Any) -> Any:
    return session._jsparkSession


def _java_class(session: Any, name: str) -> Any:
    """Find a class of the JVM by its full name."""
    found: Any = session.sparkContext._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _leaf(name: str, frame: Any, location: SourceLocation) -> Any:
    """Return the one relation that an input is. Raises `UnsupportedQuery` for one that is computed."""
    plan = frame.queryExecution().analyzed()
    while plan.nodeName() in ("SubqueryAlias", "View"):
        plan = plan.children().apply(0)
    if plan.children().size() or plan.nodeName() not in _SAME:
        raise UnsupportedQuery(
            f"input {name!r} is computed: {plan.nodeName()}",
            where=[location],
            fix="give the DataFrame as it was read, and compute in the one that is planned",
        )
    return plan


# What tells whether two relations read the same: Spark makes a new one where a table is joined with itself.
_SAME: Mapping[str, Callable[[Any], Any]] = {
    "LogicalRDD": lambda leaf: leaf.rdd(),
    "LogicalRelation": lambda leaf: leaf.relation(),
    "HiveTableRelation": lambda leaf: leaf.tableMeta(),
    "LocalRelation": lambda leaf: leaf.data(),
}


def _marked_leaves(
    plan: Any, inputs: Mapping[str, Any], session: SparkSession, location: SourceLocation
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what each relation of a plan is, by its first attribute: a table's name, or constant rows."""
    for each in (plan, *_items(plan.subqueriesAll())):
        for leaf in _items(each.collectLeaves()):
            kind = leaf.nodeName()
            if not leaf.output().size():
                continue
            attribute = leaf.output().apply(0).exprId().id()
            same = _SAME.get(kind)
            if same is None:
                raise UnsupportedQuery(f"the query reads a {kind}", where=[location], operator=kind)
            for name, given in inputs.items():
                if given.nodeName() == kind and same(leaf).equals(same(given)):
                    yield attribute, {TABLE: name}
                    break
            else:
                if kind != "LocalRelation":
                    raise UnsupportedQuery(
                        f"the query reads {leaf.simpleString(25)}, which is none of its inputs",
                        where=[location],
                        fix="give the DataFrame that it comes from, in tables={...} or sources={...}",
                    )
                yield attribute, {ROWS: _constant_rows(leaf, session)}


def _constant_rows(leaf: Any, session: SparkSession) -> list[tuple[Any, ...]]:
    """Return the rows that a query holds itself, by VALUES."""
    from pyspark.sql import DataFrame

    from penstock.io.arrow import table_to_rows

    dataset = _java_class(session, "org.apache.spark.sql.classic.Dataset")
    frame = DataFrame(dataset.ofRows(_java_session(session), leaf), session)
    return table_to_rows(frame.toArrow(), parse_schema(frame.schema.jsonValue()))


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


def _mark_leaves(found: Any, marks: Mapping[int, Mapping[str, Any]]) -> None:
    """Add what it is to each relation in the JSON of a plan."""
    if isinstance(found, list):
        for item in cast("list[Any]", found):
            _mark_leaves(item, marks)
    elif isinstance(found, dict):
        node = cast("dict[str, Any]", found)
        output = node.get("output")
        if output and not node.get("num-children"):
            node.update(marks.get(output[0][0]["exprId"]["id"], {}))
        for value in node.values():
            _mark_leaves(value, marks)
