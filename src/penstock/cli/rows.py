"""Rows on the command line: JSON in, a table or JSON out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

from penstock.errors import BadInput, BadRow

if TYPE_CHECKING:
    from penstock.compute.client.rows import Known
    from penstock.expr.tree import Expr
    from penstock.expr.types import Schema


class Format(Enum):
    """How rows are shown."""

    TABLE = "table"
    JSON = "json"


def parsed_rows(known: Known, lines: Iterable[str], where: str) -> Iterator[tuple[Any, ...]]:
    """The rows of lines of JSON: an object each, or a value where rows are bare values.

    Raises `BadRow` with the number of the line.
    """
    from penstock.io.json_values import from_json, from_object
    from penstock.io.text_values import Unfit

    fields = known.schema.fields
    convert = from_json(fields[0].type) if known.schema.scalar else from_object(fields)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield convert(_parsed(line))
        except (ValueError, Unfit) as error:
            raise BadRow(
                f"{where}, line {number} is no row of {known.name!r}: {error}",
                why=f"Its columns are {known.schema}.",
                row=number,
                field=None,
            ) from error


def _parsed(text: str) -> Any:
    """A value of JSON; numbers with a point as decimals, which all their digits matter to."""
    return json.loads(text, parse_float=Decimal)


def parsed_key(known: Known, text: str) -> Any:
    """A key given as JSON: a value, or an array where there are several key columns. Raises `BadInput`."""
    from penstock.expr.types import Schema
    from penstock.io.json_values import from_object
    from penstock.io.text_values import Unfit

    fields = Schema(tuple(known.schema.fields[known.position(name)] for name in known.key_columns)).fields
    try:
        value = _parsed(text)
    except ValueError:
        value = text  # text without quotes is meant as text
    values = value if isinstance(value, list) and len(fields) > 1 else [value]
    try:
        if len(values) != len(fields):
            raise Unfit(f"{len(fields)} values are needed")
        return from_object(fields)(dict(zip((f.name for f in fields), values, strict=True)))
    except Unfit as error:
        columns = ", ".join(map(str, fields))
        raise BadInput(
            f"{text!r} is no key of {known.name!r}: {error}",
            why=f"It is looked up by {columns}.",
            fix="write JSON: '\"a\"' or 7, and several columns as '[\"a\", 7]'",
            key=text,
        ) from error


def parsed_condition(known: Known, text: str) -> Expr:
    """The expression that `--where` says.

    Raises `BadExpression` for what is none, `BadInput` for one that is neither true nor false.
    """
    from penstock.expr.check import check
    from penstock.expr.from_text import expression_from_text
    from penstock.expr.types import BOOL

    condition = expression_from_text(text, "--where")
    found = check(condition, known.schema).type
    if found != BOOL:
        raise BadInput(
            f"--where {text}: that is {found}, not true or false", fix="compare it: --where 'col.price > 3'"
        )
    return condition


def show_rows(schema: Schema, rows: Iterable[Any], format: Format) -> None:
    """Print rows as users have them."""
    from penstock.io.print_rows import shown
    from penstock.io.to_json import to_object

    inside = [_inside(schema, row) for row in rows]
    if format is Format.JSON:
        record = to_object(schema.fields)
        for row in inside:
            typer.echo(json.dumps(record(row), ensure_ascii=False))
        return
    from penstock.cli.tables import console, table_of

    table = table_of(*(_head(field.name, field.type) for field in schema.fields))
    for row in inside:
        table.add_row(*("" if value is None else shown(value) for value in row))
    console().print(table)
    typer.echo(f"{len(inside):,} row{'s' * (len(inside) != 1)}", err=True)


def _inside(schema: Schema, row: Any) -> tuple[Any, ...]:
    return (row,) if schema.scalar else tuple(row)


def _head(name: str, data_type: object) -> str:
    from penstock.expr.types import DecimalType, Float64Type, Int32Type, Int64Type

    return f">{name}" if isinstance(data_type, Int32Type | Int64Type | Float64Type | DecimalType) else name


def lines_of(path: str) -> Iterator[str]:
    """The lines of a file; of standard input where it is `-`."""
    if path == "-":
        yield from sys.stdin
        return
    with open(path, encoding="utf-8") as file:
        yield from file
