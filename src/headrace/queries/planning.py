"""Planning by Catalyst: from a query or a DataFrame to Spark's optimised logical plan of it.

The text of a query is planned against placeholders, tables without rows of the right schema, so that neither
statistics nor values play a part. A DataFrame's relations are compared with those of its inputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import UnsupportedQuery
from headrace.operators.source import TICK_TIME
from headrace.queries.catalyst_plan import parse_tree
from headrace.queries.current_time import reads_current_time, with_tick_time
from headrace.queries.plan_details import (
    RELATIONS,
    PlanInputs,
    complete,
    java_class,
    java_session,
    refuse_samples_without_seed,
)
from headrace.queries.query_positions import PlannedQuery, QueryText
from headrace.queries.session_settings import TIME_ZONE, refuse_other_settings, setting_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyspark.sql import DataFrame, SparkSession

    from headrace.errors import SourceLocation
    from headrace.expr.types import Schema

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
    """Plan a query over tables. append: those whose rows are only added.

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
    """Plan a DataFrame over those that it was made from, each as it was read.

    Raises `UnsupportedQuery` for one of Spark Connect, and for computed inputs.
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
    """Plan a DataFrame over relations of its own plan. text: that it was made from, if any."""
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
    refuse_samples_without_seed(analysed, inputs)
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
    listed = json.loads(plan.toJSON())
    complete(listed, plan, inputs)
    return PlannedQuery(parse_tree(listed), listed, plan, inputs.text)


def _execution(session: SparkSession, plan: Any) -> Any:
    """Return Spark's execution of a plan, which runs no command in it."""
    mode = java_class(session, "org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
    return java_session(session).sessionState().executePlan(plan, mode)


def _streaming(empty: Any, session: SparkSession) -> Any:
    """Return an empty frame as a stream."""
    rows = empty.queryExecution().toRdd()
    return java_session(session).internalCreateDataFrame(rows, empty.schema(), True)


@contextmanager
def _session(spark: SparkSession) -> Generator[SparkSession]:
    """Provide a session that plans by Headrace's rules, with the functions that are registered in another.

    It is the active one meanwhile, by whose settings Spark parses.
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
    """Keep PySpark from logging its errors, with the stack of the JVM: who catches them tells the user."""
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
    """Convert Spark's refusal of a query, and failures of its optimiser, which computes constants."""
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
    """Return the one relation that an input is. Raises `UnsupportedQuery` for one that is computed."""
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
