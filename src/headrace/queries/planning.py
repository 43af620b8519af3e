"""Planning by Catalyst: from a query or a DataFrame to Spark's optimised logical plan of it.

The text of a query is planned against placeholders, tables without rows of the right schema, so that neither
statistics nor values play a part. A DataFrame's relations are compared with those of its inputs.

Spark's optimiser takes the time of planning for `current_timestamp()`, so an answer would stand still. Before
it runs, each such expression is replaced by `(SELECT max(value) FROM tick_time)` in a copy of the analysed
plan. So time is an input like others: kept in commits, and the same when a tick is run again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import UnsupportedQuery
from headrace.operators.endpoints import TICK_TIME
from headrace.operators.event_time.temporal_filter import Presence
from headrace.queries.catalyst_plan import CatalystNode, PlannedQuery, QueryText, parse_tree, reads_table
from headrace.queries.plan_details import (
    RELATIONS,
    TIME_ZONE,
    PlanInputs,
    complete,
    items,
    java_class,
    java_session,
    refuse_other_settings,
    refuse_samples_without_seed,
    setting_of,
    with_subqueries,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyspark.sql import DataFrame, SparkSession

    from headrace.errors import SourceLocation
    from headrace.expr.types import Schema


def _stays(node: Any) -> Any:
    return None


@dataclass(frozen=True, slots=True)
class PlanCopier:
    """Copier of JVM trees: nodes that contain a replacement are copied, all others shared.

    relations, expressions: return what replaces a leaf of the plan, or an expression; None to keep it.
    """

    session: SparkSession
    relations: Callable[[Any], Any] = _stays
    expressions: Callable[[Any], Any] = _stays

    def plan(self, node: Any) -> Any:
        if not node.children().size():
            replaced = self.relations(node)
            if replaced is not None:
                return replaced
        children = items(node.children())
        copied = list(map(self.plan, children))
        if any(new is not old for new, old in zip(copied, children, strict=True)):
            node = node.withNewChildren(self._seq(copied))
        if self._shares_expressions(node):
            return node
        old = items(node.expressions())
        if all(new is one for new, one in zip(map(self.expression, old), old, strict=True)):
            return node
        given: list[Any] = []
        parameters = node.productIterator()
        while parameters.hasNext():
            given.append(self._parameter(parameters.next()))
        gateway: Any = self.session.sparkContext._gateway
        array = gateway.new_array(java_class(self.session, "java.lang.Object"), len(given))
        for at, parameter in enumerate(given):
            array[at] = parameter
        return node.makeCopy(array)

    def _shares_expressions(self, node: Any) -> bool:
        """Return whether a node's expressions need no replacement, without visiting each of them."""
        if self.expressions is not _stays:
            return False
        patterns = java_class(self.session, "org.apache.spark.sql.catalyst.trees.TreePattern")
        return not node.containsPattern(patterns.PLAN_EXPRESSION())

    def expression(self, node: Any) -> Any:
        replaced = self.expressions(node)
        if replaced is not None:
            return replaced
        if self._is(node, "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"):
            inner = self.plan(node.plan())
            node = node if inner is node.plan() else node.withNewPlan(inner)
        children = items(node.children())
        copied = list(map(self.expression, children))
        if all(new is old for new, old in zip(copied, children, strict=True)):
            return node
        return node.withNewChildren(self._seq(copied))

    def _parameter(self, value: Any) -> Any:
        """Copy a parameter of a plan node: an expression, or a collection of expressions."""
        if self._is(value, "org.apache.spark.sql.catalyst.expressions.Expression"):
            return self.expression(value)
        if self._is(value, "scala.collection.immutable.Seq"):
            return self._seq([self._parameter(each) for each in items(value)])
        if self._is(value, "scala.Some"):
            return java_class(self.session, "scala.Some")(self._parameter(value.get()))
        return value

    def _is(self, value: Any, name: str) -> bool:
        if not hasattr(value, "getClass"):
            return False
        return java_class(self.session, "java.lang.Class").forName(name).isInstance(value)

    def _seq(self, listed: list[Any]) -> Any:
        return java_class(self.session, "org.apache.spark.api.python.PythonUtils").toSeq(listed)


_LATEST = f"(SELECT max(value) FROM {TICK_TIME})"
_MOMENTS = {"CurrentTimestamp": _LATEST, "Now": _LATEST, "CurrentDate": f"CAST({_LATEST} AS DATE)"}
_WITHOUT_ZONE = ("LocalTimestamp", "LocalTimestampNanos", "CurrentTime", "CurrentTimestampNanos")


def reads_current_time(plan: Any, session: SparkSession) -> bool:
    """Return whether an analysed plan may contain an expression of the current time."""
    patterns = java_class(session, "org.apache.spark.sql.catalyst.trees.TreePattern")
    return any(each.containsPattern(patterns.CURRENT_LIKE()) for each in with_subqueries(plan))


def with_tick_time(plan: Any, session: SparkSession, location: SourceLocation) -> Any:
    """Return a copy of an analysed plan that reads the current time from table `tick_time`.

    Raises `UnsupportedQuery` for a time without a zone.
    """
    moments: dict[str, Any] = {}
    for kind, text in _MOMENTS.items():
        selected: Any = session.sql(f"SELECT {text} AS moment")
        (alias,) = items(selected._jdf.queryExecution().analyzed().expressions())
        moments[kind] = alias.children().apply(0)

    def moment(node: Any) -> Any:
        kind = node.getClass().getSimpleName()
        if kind in _WITHOUT_ZONE:
            raise UnsupportedQuery(
                f"the query uses {node.prettyName()}(), a time without a zone",
                where=[location],
                fix="current_timestamp() or current_date()",
                function=node.prettyName(),
            )
        return moments.get(kind)

    return PlanCopier(session, expressions=moment).plan(plan)


# -- comparisons -------------------------------------------------------------------------------

_RISING = frozenset({"ScalarSubquery", "DateAdd", "DateSub", "AddMonths", "TimeAdd"}) | {
    *("TimestampAddInterval", "DateAddYMInterval", "DateAddInterval"),
    *("TruncDate", "TruncTimestamp", "UnixSeconds", "UnixTimestamp", "KnownNullable", "Cast"),
    *("Add", "Subtract"),
}
"""Functions that never fall as their one argument that is no constant rises; of a difference, the first.

Not times plus months: a month before 30 March 12:00 is later than a month before 31 March 10:00.
"""

_PRESENCES: dict[str, tuple[Presence, ...]] = {
    "GreaterThan": (Presence.AFTER,),
    "GreaterThanOrEqual": (Presence.SINCE,),
    "LessThan": (Presence.BEFORE,),
    "LessThanOrEqual": (Presence.UNTIL,),
    "EqualTo": (Presence.SINCE, Presence.UNTIL),
}
_SWAPPED = {
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "EqualTo": "EqualTo",
}


Comparison: TypeAlias = tuple[CatalystNode, Presence, CatalystNode]
"""Comparison of a rising time with a moment of each row: the time, how, the moment."""


def comparisons_with_time(condition: CatalystNode) -> list[Comparison]:
    """Return a condition as comparisons of a rising time with a moment per row; empty if it is not one."""
    if condition.kind not in _PRESENCES:
        return []
    (one, other), kind = condition.children, condition.kind
    if not _is_time(one):
        one, other, kind = other, one, _SWAPPED[kind]
    if not _is_time(one) or any(node.kind == "ScalarSubquery" for node in other.walk()):
        return []
    return [(one, presence, other) for presence in _PRESENCES[kind]]


def _is_time(node: CatalystNode) -> bool:
    """Return whether an expression is the time of the tick, or increases with it."""
    varying = [child for child in node.children if child.kind != "Literal"]
    if node.kind == "ScalarSubquery":
        return reads_table(node, TICK_TIME)
    if node.kind == "Cast" and node.fields["dataType"] not in ("date", "timestamp"):
        return False
    if node.kind == "Subtract" and node.children[0] not in varying:
        return False
    if node.kind == "TimestampAddInterval" and node.children[1].fields.get("dataType") == "interval":
        return False  # of months, days and less
    return node.kind in _RISING and len(varying) == 1 and _is_time(varying[0])


_RULES = "org.apache.spark.sql.catalyst.optimizer."
_CONFIGURATION = {
    "spark.sql.optimizer.inSetConversionThreshold": str(2**31 - 1),
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.variant.pushVariantIntoScan": "false",  # it makes another relation of an input
    # Rules that look at rows, compute decimals as unscaled numbers, or make one struct of several subqueries.
    "spark.sql.optimizer.excludedRules": ",".join(
        [
            *map(_RULES.__add__, ("DecimalAggregates", "PropagateEmptyRelation", "ConvertToLocalRelation")),
            "org.apache.spark.sql.execution.planmerging.MergeSubplans",
        ]
    ),
}


_WATERMARK = re.compile(r"^\W*UnresolvedEventTimeWatermark", re.MULTILINE)
"""A node in the text of a parsed plan."""


def plan_query(
    query: QueryText,
    tables: Mapping[str, Schema],
    append: AbstractSet[str],
    spark: SparkSession,
    location: SourceLocation,
) -> PlannedQuery:
    """Plan a query over tables. append: the append-only ones.

    Raises `UnsupportedQuery` with Spark's message if Spark refuses it.
    """
    from headrace.expr.spark_columns import quoted, spark_schema

    inputs: dict[str, Any] = {}
    refuse_other_settings(setting_of(spark), location)
    with _session(spark) as session:
        with _spark_errors(location):
            parsed = java_session(session).sessionState().sqlParser().parsePlan(query.text)
        # The analyser drops a watermark over what is no stream, and takes fewer queries over streams.
        streams = append if _WATERMARK.search(parsed.toString()) else frozenset[str]()
        for name, schema in tables.items():
            empty = _java(session.createDataFrame(session.sparkContext.emptyRDD(), spark_schema(schema)))
            placeholder = _streaming(empty, session) if name in streams else empty
            placeholder.createOrReplaceTempView(quoted(name))
            inputs[name] = placeholder.queryExecution().analyzed()
        with _spark_errors(location):
            analysed = _execution(session, parsed).analyzed()
        return _optimised(analysed, PlanInputs(inputs, session, query, location, _zone_of(spark)))


def plan_frame(frame: DataFrame, inputs: Mapping[str, DataFrame], location: SourceLocation) -> PlannedQuery:
    """Plan a DataFrame over its input DataFrames, each as it was read.

    Raises `UnsupportedQuery` for a DataFrame of Spark Connect, and for computed inputs.
    """
    for each in (frame, *inputs.values()):
        if not hasattr(each, "_jdf"):
            raise UnsupportedQuery(
                "the DataFrame is one of Spark Connect",
                where=[location],
                why="Its plan is on the server.",
                fix="make it in a session of this process: SparkSession.builder.master(...)",
            )
    leaves = {name: _leaf(name, _java(each), location) for name, each in inputs.items()}
    return plan_over_leaves(frame, leaves, None, location)


def plan_over_leaves(
    frame: DataFrame, leaves: Mapping[str, Any], text: QueryText | None, location: SourceLocation
) -> PlannedQuery:
    """Plan a DataFrame over relations of its own plan. text: the query it comes from, if any."""
    spark = frame.sparkSession
    refuse_other_settings(setting_of(spark), location)
    with _session(spark) as session:
        analysed = _java(frame).queryExecution().analyzed()
        return _optimised(analysed, PlanInputs(leaves, session, text, location, _zone_of(spark)))


def _zone_of(spark: SparkSession) -> str:
    zone = spark.conf.get(TIME_ZONE)
    assert zone is not None
    return zone


def _optimised(analysed: Any, inputs: PlanInputs) -> PlannedQuery:
    """Optimise and read an analysed plan."""
    session, location = inputs.session, inputs.location
    as_written = analysed
    if reads_current_time(analysed, session):
        if TICK_TIME in inputs.relations:
            raise UnsupportedQuery(
                f"the query reads the current time, and has an input {TICK_TIME!r}",
                where=[location],
                fix="give that input another name",
            )
        clock = session.createDataFrame(session.sparkContext.emptyRDD(), "value timestamp")
        clock.createOrReplaceTempView(TICK_TIME)
        relations = {**inputs.relations, TICK_TIME: _java(clock).queryExecution().analyzed()}
        inputs = replace(inputs, relations=relations)
        analysed = with_tick_time(analysed, session, location)
    # What is in another zone is by now: constants here are in UTC.
    session.conf.set(TIME_ZONE, "UTC")
    with _spark_errors(location):
        # Of its execution Spark gives no plan of a stream that was not started.
        plan = java_session(session).sessionState().optimizer().execute(analysed)
    text = plan.toJSON()
    if '.logical.Sample"' in text:
        refuse_samples_without_seed(as_written, inputs)
    listed = json.loads(text)
    complete(listed, plan, inputs)
    return PlannedQuery(parse_tree(listed), listed, plan, inputs.text)


def _execution(session: SparkSession, plan: Any) -> Any:
    """Return Spark's execution of a plan, without running commands in it."""
    mode = java_class(session, "org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
    return java_session(session).sessionState().executePlan(plan, mode)


def _streaming(empty: Any, session: SparkSession) -> Any:
    """Return an empty frame as a stream."""
    rows = empty.queryExecution().toRdd()
    return java_session(session).internalCreateDataFrame(rows, empty.schema(), True)


@contextmanager
def _session(spark: SparkSession) -> Generator[SparkSession]:
    """Provide a session that plans by Headrace's rules, with the functions registered in `spark`.

    It is the active session meanwhile, since Spark parses by the active session's settings.
    """
    from pyspark.sql import SparkSession

    session = SparkSession(spark.sparkContext, java_session(spark).cloneSession())
    for key, value in _CONFIGURATION.items():
        session.conf.set(key, value)
    before = SparkSession.getActiveSession()
    activate(session)
    try:
        yield session
    finally:
        activate(before or spark)


def activate(session: SparkSession) -> None:
    """Make a session the active one of this thread, for Python and for the JVM."""
    kinds: Any = type(session)
    kinds._activeSession = session
    java_class(session, "org.apache.spark.sql.SparkSession").setActiveSession(java_session(session))


@contextmanager
def without_error_log() -> Generator[None]:
    """Keep PySpark from logging errors with JVM stack traces, since the caller reports them."""
    from pyspark.logger.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for logger in loggers:
        logger.addFilter(_keep_no_record)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_keep_no_record)


def _keep_no_record(record: object) -> bool:
    return False


@contextmanager
def _spark_errors(location: SourceLocation) -> Generator[None]:
    """Convert Spark's refusals of a query, and failures of its optimiser in constant folding."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with without_error_log():
            yield
    except PySparkException as error:
        # The plan as far as Spark made it comes after the message.
        why = str(error).partition("\n\nJVM stacktrace")[0].partition(";\n")[0].strip()
        unknown = "TABLE_OR_VIEW_NOT_FOUND" in why
        fix = "give the table in tables= or sources=, or correct its name" if unknown else "correct the query"
        raise _unplanned(why, location, fix) from None
    except Py4JJavaError as error:
        failure: Any = error.java_exception
        raise _unplanned(str(failure.toString()).partition("\n")[0], location, "") from None


def _unplanned(why: str, location: SourceLocation, fix: str) -> UnsupportedQuery:
    return UnsupportedQuery("Spark cannot plan the query", where=[location], why=why, fix=fix)


def _java(frame: Any) -> Any:
    return frame._jdf


def _leaf(name: str, frame: Any, location: SourceLocation) -> Any:
    """Return the relation of an input. Raises `UnsupportedQuery` for a computed input."""
    plan = frame.queryExecution().analyzed()
    while plan.nodeName() in ("SubqueryAlias", "View"):
        plan = plan.children().apply(0)
    if plan.children().size() or plan.nodeName() not in RELATIONS:
        raise UnsupportedQuery(
            f"input {name!r} is computed: {plan.nodeName()}",
            where=[location],
            fix="give the DataFrame as it was read, and compute in the one that is planned",
        )
    return plan
