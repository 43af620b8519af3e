"""Sources of a batch: the given DataFrame, validated, as a bag of rows or with ordinals.

An ordinal is the original position of a row, in two extra columns: the number of its part, and the position
within the part. For files, these are the number of the file, ordered by name, and of the row in it; for
Python rows, the first is the number of the batch. For a user's DataFrame, the order is that in which Spark
delivers its rows: by partition, then by position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from headrace.errors import BadInput, WrongType
from headrace.expr.spark_columns import spark_type
from headrace.expr.tree import Expr
from headrace.io.source import WEIGHT
from headrace.lowering.forms import lower_operator
from headrace.operators.filter import Filter
from headrace.operators.select import Select
from headrace.operators.source import Source
from headrace.spark.batch.operators import Site, exact_column, grouped_rows
from headrace.spark.expressions import to_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from headrace.expr.types import Field
    from headrace.graph.node import FlowGraph, Node


_COPIES = "__copies"


@lower_operator.register(Source)
def _(operator: Source, site: Site) -> DataFrame:
    frame = frame_of_source(operator, site.node, site.frames)
    columns = checked_columns(operator, frame)
    if operator.append or WEIGHT not in frame.columns:
        return frame.select(*columns)
    return _bag(frame.select(*columns, weight_column(operator, frame).alias(_COPIES)), operator)


def frame_of_source(operator: Source, node: Node, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the DataFrame given for a source. Raises `BadInput` if there is none."""
    frame = frames.get(operator.name)
    if frame is None:
        raise BadInput(
            f"nothing is given for source {operator.name!r}", where=[node.location], source=operator.name
        )
    return frame


def checked_columns(operator: Source, frame: DataFrame) -> list[Column]:
    """Return a source's declared columns. Raises `WrongType`; tasks raise for forbidden nulls."""
    return [_checked(field, frame, operator) for field in operator.schema.fields]


def _checked(field: Field, frame: DataFrame, operator: Source) -> Column:
    found = {there.name: there for there in frame.schema.fields}.get(field.name)
    wanted = spark_type(field.type)
    if found is None or found.dataType.simpleString() != wanted.simpleString():
        has = (
            f"no column {field.name!r}"
            if found is None
            else f"{field.name!r} as {found.dataType.simpleString()}"
        )
        raise WrongType(
            f"source {operator.name!r}: its DataFrame has {has}",
            why=f"the flow declares {field}, which is {wanted.simpleString()} on Spark.",
            fix="select and cast in the DataFrame, or change the row type of the flow's source",
            source=operator.name,
            column=field.name,
        )
    column = exact_column(field.name)
    if found.nullable and not field.nullable:
        column = f.coalesce(column, _refused_null(operator, field.name).cast(wanted))
    return column.alias(field.name)


def weight_column(operator: Source, frame: DataFrame) -> Column:
    """Return the weight of a table source's row; null is an error, since Spark would skip it in sums."""
    if WEIGHT not in frame.columns:
        return f.lit(1).cast("long")
    return f.coalesce(exact_column(WEIGHT).cast("long"), _refused_null(operator, WEIGHT).cast("long"))


def _refused_null(operator: Source, column: str) -> Column:
    message = f"P201 BadRow: source {operator.name!r}: column {column!r} of its DataFrame is null"
    return f.raise_error(f.lit(message))


def _bag(frame: DataFrame, operator: Source) -> DataFrame:
    """Expand each row to as many copies as its total weight; a negative total is an error.

    Native operators have rows without weights. A stream would hold such a row back, because further copies
    may still arrive.
    """
    names = operator.schema.names
    total = f.sum(_COPIES).alias(_COPIES)
    sums = grouped_rows(frame, operator.schema, total)
    # As JSON a row is one line, without tabs; `ticks.errors` knows this form.
    row = f.to_json(f.struct(*(exact_column(n) for n in names))) if names else f.lit("{}")
    refusal = f.concat(
        f.lit(f"P201 BadRow: source {operator.name!r} takes a row back more often than it came\t"),
        row,
        f.lit(
            "\tcorrect the input; or run it as a stream, which holds back such rows and tells them in the end"
        ),
    )
    # A list of no copies explodes to no row.
    copies = f.when(exact_column(_COPIES) < 0, f.raise_error(refusal).cast("long")).otherwise(
        exact_column(_COPIES)
    )
    ones = f.array_repeat(f.lit(0), copies.cast("int"))
    return sums.select(*(exact_column(n) for n in names), f.explode(ones).alias(_COPIES)).drop(_COPIES)


PART, PLACE = "headrace part", "headrace place"
ORDINAL = (PART, PLACE)


def with_ordinals(graph: FlowGraph, node_id: int, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Add ordinals to the rows of a source, or of filters and selections over one.

    Changes of a table source also have their weight, in a column `weight`.
    """
    node = graph.nodes[node_id]
    operator = node.operator
    if isinstance(operator, Source):
        return _numbered(operator, frame_of_source(operator, node, frames))
    before = with_ordinals(graph, node.inputs[0], frames)
    schema = graph.nodes[node.inputs[0]].schema
    if isinstance(operator, Select):
        return before.select(
            *(to_column(expr, schema).alias(name) for name, expr in operator.columns), *ORDINAL
        )
    assert isinstance(operator, Filter)
    assert isinstance(operator.predicate, Expr)
    return before.filter(to_column(operator.predicate, schema))


def _numbered(operator: Source, frame: DataFrame) -> DataFrame:
    if PART in frame.columns:
        ordinal = [exact_column(PART), exact_column(PLACE)]
    else:
        ordinal = [f.lit(0).cast("long").alias(PART), f.monotonically_increasing_id().alias(PLACE)]
    weight = [] if operator.append else [weight_column(operator, frame).alias(WEIGHT)]
    return frame.select(*checked_columns(operator, frame), *weight, *ordinal)
