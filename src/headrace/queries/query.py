"""Queries and DataFrames as flows: `hr.sql`, `hr.from_dataframe`."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import SourceLocation, UnsupportedQuery
from headrace.expr.row_classes import schema_of
from headrace.expr.tree import Column
from headrace.expr.types import Schema
from headrace.flow.flow import Flow
from headrace.operators.endpoints import TICK_TIME, SourceOperator
from headrace.queries import groups as groups  # registers groups
from headrace.queries import joins as joins  # registers joins
from headrace.queries import python_functions as python_functions  # registers Python functions
from headrace.queries import recursion as recursion  # registers recursion
from headrace.queries import scalar_functions as scalar_functions  # registers functions
from headrace.queries.catalyst_plan import (
    PlannedQuery,
    QueryText,
    RefusedNode,
    located,
    parse_type,
    readable_schema,
    reads_table,
)
from headrace.queries.event_time import step_of_windows
from headrace.queries.plan_details import items
from headrace.queries.planning import plan_frame, plan_over_leaves, plan_query
from headrace.queries.relations import Planner, RowStream, output_of
from headrace.source_location import caller_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame, SparkSession


def sql(
    text: str,
    *,
    tables: Mapping[str, Any] | None = None,
    sources: Mapping[str, Any] | None = None,
    name: str = "answer",
    spark: SparkSession | None = None,
) -> Flow:
    """Plan a Spark SQL query as a flow whose result is kept up to date as its tables change.

    tables:  relations whose rows may be taken back, by name: row classes or schemas.
    sources: relations whose rows are only added.
    name:    of the flow's one sink. Its columns are those of the query; of two named `a`, one is `a_2`. Its
             rows have no order.
    spark:   session that plans; by default the active one, or a local one. The flow does not need it.

    Parser, types, coercions and the meaning of functions are Spark's, with ANSI on. Raises `UnsupportedQuery`
    for what Spark refuses, or what has no incremental form.
    """
    given = {**(tables or {}), **(sources or {})}
    schemas = {table: _schema(rows) for table, rows in given.items()}
    location = SourceLocation.of_caller()
    return plan_flow(QueryText(text), schemas, frozenset(sources or ()), name, spark, location)


def plan_flow(
    query: QueryText,
    schemas: Mapping[str, Schema],
    append: AbstractSet[str],
    name: str,
    spark: SparkSession | None,
    location: SourceLocation,
    streams: Mapping[str, RowStream] | None = None,
) -> Flow:
    """Plan a query located at `location` (see `sql`).

    append:  relations whose rows are only added.
    streams: the relations, if they are streams of one flow: the query's sink is added to that flow.
    """
    if spark is None:
        from headrace.spark import session

        spark = session()
    try:
        plan = plan_query(query, schemas, append, spark, location)
        with caller_at(location):
            return _flow_of(plan, schemas, append, name, location, streams=streams)
    except RecursionError:
        raise UnsupportedQuery(
            "the query is nested too deeply", where=[location], fix="compute parts of it in subqueries"
        ) from None


def from_dataframe(
    frame: DataFrame,
    *,
    tables: Mapping[str, DataFrame] | None = None,
    sources: Mapping[str, DataFrame] | None = None,
    name: str = "answer",
) -> Flow:
    """Plan a PySpark DataFrame as a flow whose result is kept up to date as its inputs change.

    tables:  the DataFrames that it was made from whose rows may be taken back, by a name for each: as they
             were read, before anything is computed.
    sources: those whose rows are only added, such as streaming ones.
    name:    of the flow's one sink.

    What is read is not kept: a flow's rows come when it runs. They lack columns of types that flows do not
    support (intervals, variants), which the DataFrame may not read. Raises `UnsupportedQuery` for a DataFrame
    of Spark Connect, and for what has no incremental form.
    """
    location = SourceLocation.of_caller()
    given = {**(tables or {}), **(sources or {})}
    plan = plan_frame(frame, given, location)
    schemas = {table: readable_schema(each.schema.jsonValue()) for table, each in given.items()}
    return _flow_of(plan, schemas, frozenset(sources or ()), name, location)


def flow_over_leaves(
    frame: DataFrame,
    leaves: Mapping[str, Any],
    name: str,
    location: SourceLocation,
    *,
    text: QueryText | None = None,
    append: AbstractSet[str] = frozenset(),
    closes: bool = False,
    then: Callable[[RowStream], RowStream] = lambda rows: rows,
) -> Flow:
    """Plan a DataFrame as a flow over relations of its own plan, by their names.

    text:   the query that the DataFrame was made from, if any.
    append: relations whose rows are only added; those of others may be taken back.
    closes: whether groups over a watermark come once, when their time has passed: Spark's append mode.
    then:   what the flow makes of the DataFrame's rows before its sink `name`.

    Raises `UnsupportedQuery` for what has no incremental form.
    """
    try:
        planned = plan_over_leaves(frame, leaves, text, location)
        schemas = {each: readable_schema(json.loads(leaf.schema().json())) for each, leaf in leaves.items()}
        with caller_at(location):
            return _flow_of(planned, schemas, append, name, location, closes, then)
    except RecursionError:
        raise UnsupportedQuery(
            "the query is nested too deeply",
            where=[location],
            fix="compute parts of it in tables of their own",
        ) from None


def _flow_of(
    planned: PlannedQuery,
    schemas: Mapping[str, Schema],
    append: AbstractSet[str],
    name: str,
    location: SourceLocation,
    closes: bool = False,
    then: Callable[[RowStream], RowStream] = lambda rows: rows,
    streams: Mapping[str, RowStream] | None = None,
) -> Flow:
    plan = planned.root
    if streams:
        flow, inputs = cast("Flow", next(iter(streams.values())).flow), dict(streams)
    else:
        flow = Flow(name)
        inputs = {
            table: flow.add_source(SourceOperator(table, schema, False, table in append), location)
            for table, schema in schemas.items()
        }
    if reads_table(plan, TICK_TIME):
        inputs[TICK_TIME] = flow.source(TICK_TIME, datetime)
    planner = Planner(flow, inputs, closes=closes, step=step_of_windows(plan) if closes else None)
    try:
        relation = planner.relation(plan)
    except RefusedNode as refused:
        raise planned.placed(refused, location) from None
    for attribute in items(planned.plan.output()):
        try:
            parse_type(json.loads(attribute.dataType().json()))
        except UnsupportedQuery as error:
            raise located(error, planned.text, location, []) from None
    names = _numbered(planner.output_names(plan))
    columns = {
        name: Column(relation.columns[expr_id]) for name, expr_id in zip(names, output_of(plan), strict=True)
    }
    flow.sink(name, then(relation.stream.select(**columns)))
    return flow


def _numbered(wanted: list[str]) -> list[str]:
    """Make names unique: the second of several columns with one name becomes `name_2`."""
    names: list[str] = []
    for name in wanted:
        numbers = (f"{name}_{number}" for number in count(2))
        free = (each for each in numbers if each not in wanted and each not in names)
        names.append(next(free) if name in names else name)
    return names


def _schema(rows: Any) -> Schema:
    return rows if isinstance(rows, Schema) else schema_of(rows)
