"""Lowering of operators to DataFrames: one registered function per operator class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

from headrace.errors import NotOnSpark
from headrace.expr.spark_columns import from_hashable, hashable, quoted
from headrace.spark.lowering.expressions import to_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import Node, Operator


@dataclass(frozen=True, slots=True)
class Site:
    """Context for lowering an operator: node, input bags with schemas, frames of all sources."""

    node: Node
    inputs: tuple[DataFrame, ...]
    schemas: tuple[Schema, ...]
    frames: Mapping[str, DataFrame]

    def column(self, expr: Expr, port: int = 0) -> Column:
        """Lower an expression over the columns of an input."""
        return to_column(expr, self.schemas[port])


@singledispatch
def lower_operator(operator: Operator, site: Site) -> DataFrame:
    """Lower an operator to its output bag, with the columns of the node's schema."""
    raise NotOnSpark(
        f"{operator.kind} has no form as a batch on Spark",
        where=[site.node.location],
        fix='run the flow with mode="stream", or in-process',
        operator=site.node.name,
    )


def exact_column(name: str) -> Column:
    """Return the column with exactly this name, even with special characters."""
    from pyspark.sql import functions as f

    return f.col(quoted(name))


def renamed(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rename all columns by position."""
    return frame.toDF(*names)


def grouped_rows(frame: DataFrame, schema: Schema, *aggregates: Column) -> DataFrame:
    """Group equal rows, and return each once, with aggregates of its copies.

    Spark 4.3 groups maps, too, but takes null values in them for zeros and gives the column another name.
    """
    keys = (hashable(field.type, exact_column(field.name)).alias(field.name) for field in schema.fields)
    grouped = frame.groupBy(*keys).agg(*aggregates)
    rows = (from_hashable(field.type, exact_column(field.name)).alias(field.name) for field in schema.fields)
    made = grouped.columns[len(schema.fields) :]
    return grouped.select(*rows, *map(exact_column, made))
