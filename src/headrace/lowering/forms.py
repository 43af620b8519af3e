"""Forms of operators outside of generated code: on columns in a large tick, and as a DataFrame of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Protocol

from headrace.errors import NotOnSpark
from headrace.expr.polars_columns import NotLowered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import Node, Operator


@singledispatch
def apply_operator(
    operator: Operator, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    """Apply a stateless operator to the columns of a large tick. Raises `NotLowered`.

    schema, append: of the output.
    """
    raise NotLowered("it works on rows")


def has_columnar_form(operator: Operator) -> bool:
    """Return whether a stateless operator has a form on columns."""
    return apply_operator.dispatch(type(operator)) is not apply_operator.dispatch(object)


class BatchSite(Protocol):
    """Place of an operator in a batch on Spark: its node, and the bags that it reads as DataFrames.

    A bag has each row as often as it is present, and the columns of the node's schema, by name.
    """

    @property
    def node(self) -> Node: ...
    @property
    def inputs(self) -> tuple[DataFrame, ...]: ...
    @property
    def schemas(self) -> tuple[Schema, ...]: ...
    @property
    def frames(self) -> Mapping[str, DataFrame]:
        """Rows of each source of the flow, by name."""
        ...

    def column(self, expr: Expr, over: int | Schema = 0) -> Column:
        """Lower an expression over the columns of an input, or of a schema."""
        ...

    def named(self, name: str) -> Column:
        """Return the column with exactly this name, even with special characters."""
        ...

    def group_rows(self, frame: DataFrame, schema: Schema, *aggregates: Column) -> DataFrame:
        """Group equal rows, and return each once, with aggregates of its copies."""
        ...

    def empty(self) -> DataFrame:
        """Return the node's bag without rows."""
        ...


@singledispatch
def lower_operator(operator: Operator, site: BatchSite) -> DataFrame:
    """Lower an operator to its output bag on Spark, for a batch whose input comes in one tick.

    So the output of that tick is the output of the run: rows repeated in every tick appear once, and rows
    that wait for a tick started by something else never appear. Operators that read the order of rows, or
    show the number of several ticks, run in a subplan instead.

    Raises `NotOnSpark` for an operator without such a form.
    """
    raise NotOnSpark(
        f"{operator.kind} has no form as a batch on Spark",
        where=[site.node.location],
        fix='run the flow with mode="stream", or in-process',
        operator=site.node.name,
    )
