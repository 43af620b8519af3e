"""What a user's function gets of a row, inside generated code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.expr.check import check
from penstock.expr.rows import to_user
from penstock.expr.tree import Column, Expr
from penstock.expr.types import Field, ListType, Schema, StructType

if TYPE_CHECKING:
    from penstock.engine.region_writer import RegionWriter
    from penstock.engine.row import Row
    from penstock.graph.node import Node


def as_user_sees(writer: RegionWriter, schema: Schema, row: str, columns: tuple[str, ...]) -> str:
    """Source of a row of `schema` as users see it. row, columns: sources of the tuple and of its parts."""
    if schema.scalar and not isinstance(schema.fields[0].type, ListType | StructType):
        return columns[0]
    return f"{writer.constant('user', to_user(schema))}({row})"


def item_of_row(writer: RegionWriter, node: Node, item: Expr | None, row: Row) -> str:
    """Source of what a folding function gets of a row: the row, or the value of `item`."""
    schema = writer.input_schema(node, 0)
    if item is None:
        return as_user_sees(writer, schema, row.source, row.columns)
    value = writer.value(item, schema, row.columns)
    if not isinstance(item, Column):
        variable = writer.fresh("item")
        writer.code.line(f"{variable} = {value}")
        value = variable
    return as_user_sees(writer, item_schema(schema, item), f"({value},)", (value,))


def item_schema(schema: Schema, item: Expr) -> Schema:
    """The values of an expression over rows of `schema`, as a stream of bare values would have them."""
    typed = check(item, schema)
    return Schema((Field("value", typed.type, typed.nullable),), scalar=True)
