"""How an operator is lowered: one function per class of operator, registered by theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.errors import NotOnSpark
from penstock.spark.lowering.columns import to_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.expr.tree import Expr
    from penstock.expr.types import Schema
    from penstock.graph.node import Node, Operator


@dataclass(frozen=True, slots=True)
class Site:
    """Where an operator stands: its node, its input bags with their schemas, the frames of all sources."""

    node: Node
    inputs: tuple[DataFrame, ...]
    schemas: tuple[Schema, ...]
    frames: Mapping[str, DataFrame]

    def column(self, expr: Expr, port: int = 0) -> Column:
        """An expression over the columns of an input."""
        return to_column(expr, self.schemas[port])


@singledispatch
def lower(operator: Operator, site: Site) -> DataFrame:
    """The output bag of an operator; its columns are named and ordered as in the node's schema."""
    raise NotOnSpark(
        f"{operator.kind} has no form as a batch on Spark",
        where=[site.node.location],
        fix='run the flow with mode="stream", or in-process',
        operator=site.node.name,
    )


def named(name: str) -> Column:
    """The column of this very name, whatever characters are in it."""
    from pyspark.sql import functions as f

    return f.col("`" + name.replace("`", "``") + "`")


def renamed(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """The same columns under other names, by position."""
    return frame.toDF(*names)
