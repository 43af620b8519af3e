"""Places of operators in a batch, and the columns that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.expr.spark_columns import (
    from_hashable,
    hashable,
    quoted,
    spark_schema,
)
from headrace.spark.expressions import to_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import Node


@dataclass(frozen=True, slots=True)
class Site:
    """Place of an operator in a batch (`headrace.lowering.forms.BatchSite`)."""

    node: Node
    inputs: tuple[DataFrame, ...]
    schemas: tuple[Schema, ...]
    frames: Mapping[str, DataFrame]

    def column(self, expr: Expr, over: int | Schema = 0) -> Column:
        return to_column(expr, self.schemas[over] if isinstance(over, int) else over)

    def named(self, name: str) -> Column:
        return exact_column(name)

    def group_rows(self, frame: DataFrame, schema: Schema, *aggregates: Column) -> DataFrame:
        return grouped_rows(frame, schema, *aggregates)

    def empty(self) -> DataFrame:
        from pyspark.sql import SparkSession

        session = self.inputs[0].sparkSession if self.inputs else SparkSession.active()
        return session.createDataFrame([], spark_schema(self.node.schema))


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
