"""Conversion of rows to and from the form seen by user functions, in generated code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.expr.check import check
from headrace.expr.compile_python import key_of
from headrace.expr.row_classes import exact_test, to_user
from headrace.expr.tree import Column, Expr
from headrace.expr.types import Field, Schema
from headrace.expr.types import holds_any as type_holds_any
from headrace.lowering.row_code import RowCode

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


def user_form(writer: StepWriter, schema: Schema, row: RowCode) -> str:
    """Return the source of a row as user functions see it."""
    if schema.scalar and exact_test(schema.fields[0], "") is not None:
        # Such a value is the user's as it is.
        return row.columns[0]
    return f"{writer.constant('user', to_user(schema))}({row.source})"


def write_received(
    writer: StepWriter, schema: Schema, call: str, checked: str, weight: str | None = None
) -> RowCode:
    """Write code that unpacks the result of `call`, a row of `schema`; return the variables as a row.

    A result that is exactly a row is passed on; any other is converted or rejected.
    checked: name of the converter from a list of users' rows.
    """
    code = writer.code
    columns = tuple(writer.fresh(f.name) for f in schema.fields)
    tests = [exact_test(f, c) for f, c in zip(schema.fields, columns, strict=True)]
    if None not in tests and schema.scalar:
        (column,) = columns
        code.line(f"{column} = {call}")
        with code.block(f"if not {tests[0]}:"):
            code.line(f"(({column},),) = {checked}([{column}])")
        return RowCode(columns, None, weight)
    unpack = ", ".join(columns) + "," * (len(columns) == 1)
    out = writer.fresh("row")
    code.line(f"{out} = {call}")
    if None in tests or not _is_named_tuple(schema.row_class):
        code.line(f"({out},) = {checked}([{out}])")
        code.line(f"{unpack} = {out}")
    else:
        with code.block(f"if type({out}) is not {writer.constant('class', schema.row_class)}:"):
            code.line(f"({out},) = {checked}([{out}])")
        code.line(f"{unpack} = {out}")
        with code.block(f"if not ({' and '.join(filter(None, tests))}):"):
            code.line(f"({out},) = {checked}([{out}])")
            code.line(f"{unpack} = {out}")
    return RowCode(columns, out, weight)


def holds_any(schema: Schema) -> bool:
    """Return whether any column of the row may hold values of any type."""
    return any(type_holds_any(field.type) for field in schema.fields)


def _is_named_tuple(row_class: type[Any] | None) -> bool:
    return row_class is not None and issubclass(row_class, tuple)


def merged_item(writer: StepWriter, node: Node, item: Expr, row: RowCode) -> str:
    """Return the source of a row's item for a lattice: the value of `item`, with one zero and one NaN."""
    return item_source(writer, node, item, row, merges=True)


def item_source(
    writer: StepWriter, node: Node, item: Expr | None, row: RowCode, *, merges: bool = False
) -> str:
    """Return the source of a row's item for a folding function: the row, or the value of `item`."""
    schema = writer.input_schema(node, 0)
    if item is None:
        return user_form(writer, schema, row)
    typed = check(item, schema)
    value = source = writer.value(item, schema, row.columns)
    if merges:
        source = key_of(typed.type, typed.nullable, value)
    if not isinstance(item, Column) or source != value:
        value = writer.fresh("item")
        writer.code.line(f"{value} = {source}")
    bare = Schema((Field("value", typed.type, typed.nullable),), scalar=True)
    return user_form(writer, bare, RowCode((value,)))
