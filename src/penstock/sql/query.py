"""Queries as flows: `penstock.sql`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SourceLocation, UnsupportedQuery
from penstock.expr.row_classes import schema_of
from penstock.expr.tree import Column
from penstock.expr.types import Schema
from penstock.flow.flow import Flow
from penstock.flow.operators.source import Source
from penstock.sql import joins as joins  # registers joins
from penstock.sql import windows as windows  # registers window functions
from penstock.sql.planning import plan_query
from penstock.sql.relations import Planner, output_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from penstock.sql.catalyst_plan import CatalystNode


def sql(
    text: str,
    *,
    tables: Mapping[str, Any] | None = None,
    sources: Mapping[str, Any] | None = None,
    name: str = "answer",
    spark: SparkSession | None = None,
) -> Flow:
    """Plan a SQL query of Spark as a flow, whose answer is kept up to date by the changes of its tables.

    tables:  relations whose rows may be taken back, by name: row classes or schemas.
    sources: relations whose rows are only added.
    name:    of the flow's one sink. Its columns are those of the query; its rows have no order.
    spark:   session that plans; by default the active one, or a local one. The flow does not need it.

    Parser, types, coercions and the meaning of functions are Spark's, with ANSI on. Raises `UnsupportedQuery`
    for what Spark refuses, or what has no incremental form.
    """
    location = SourceLocation.of_caller()
    given = {**(tables or {}), **(sources or {})}
    schemas = {table: _schema(rows) for table, rows in given.items()}
    if spark is None:
        from penstock.spark import session

        spark = session()
    plan = plan_query(text, schemas, spark, location)
    flow = Flow(name)
    append = frozenset(sources or ())
    inputs = {
        table: flow.add_source(Source(table, schema, False, table in append), location)
        for table, schema in schemas.items()
    }
    return _flow_of(plan, flow, inputs, name, location)


def _flow_of(
    plan: CatalystNode, flow: Flow, inputs: dict[str, Any], name: str, location: SourceLocation
) -> Flow:
    planner = Planner(flow, inputs)
    relation = planner.relation(plan)
    columns: dict[str, Column] = {}
    for wanted, expr_id in zip(planner.output_names(plan), output_of(plan), strict=True):
        if wanted in columns:
            raise UnsupportedQuery(
                f"the query has two columns {wanted!r}",
                where=[location],
                fix="name one of them: ... AS other",
            )
        columns[wanted] = Column(relation.columns[expr_id])
    flow.sink(name, relation.stream.select(**columns))
    return flow


def _schema(rows: Any) -> Schema:
    return rows if isinstance(rows, Schema) else schema_of(rows)
