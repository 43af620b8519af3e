"""Rows with where they stood: two further columns, the number of the part and the place in it.

A source that was read here knows both: the number of the file, in the order of
names, and of the row in it; or of the batch of Python rows. For a DataFrame of the user's it is
the order in which Spark hands its rows over: by partition, and within it by position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.expr.tree import Expr
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.select import Select
from penstock.flow.operators.source import Source
from penstock.io.source import WEIGHT
from penstock.spark.batch.operators import named
from penstock.spark.batch.sources import checked_columns, frame_of_source, weight_of
from penstock.spark.lowering.columns import to_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from penstock.graph.node import FlowGraph

PART, PLACE = "penstock part", "penstock place"
ORDINAL = (PART, PLACE)


def with_ordinals(graph: FlowGraph, node_id: int, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a node that is a source, or filters and selections of one, and where they stood.

    The changes of a table source have their weight as well, in a column `weight`.
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
        ordinal = [named(PART), named(PLACE)]
    else:
        ordinal = [f.lit(0).cast("long").alias(PART), f.monotonically_increasing_id().alias(PLACE)]
    weight = [] if operator.append else [weight_of(operator, frame).alias(WEIGHT)]
    return frame.select(*checked_columns(operator, frame), *weight, *ordinal)
