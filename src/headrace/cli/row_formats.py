"""Rows on the command line: parsed from JSON, printed as a table or JSON.

Plain text tables are as wide as the terminal, or unlimited if redirected.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import typer

from headrace.errors import BadInput, BadRow

if TYPE_CHECKING:
    from io import TextIOWrapper

    from rich.console import Console

    from headrace.compute.client.subscription import CachedDescription
    from headrace.expr.tree import Expr
    from headrace.expr.types import DataType, Field, Schema


class RowsFormat(Enum):
    """Output format of rows."""

    TABLE = "table"
    JSON = "json"


def parse_rows(known: CachedDescription, lines: Iterable[str], where: str) -> Iterator[tuple[Any, ...]]:
    """Parse lines of JSON to rows: an object per line, or a value if rows are bare values.

    Raises `BadRow` with the line number, also for unknown columns.
    """
    from headrace.io.files.json_values import json_decoder, object_decoder
    from headrace.io.files.text_values import UnfitValue

    fields = known.schema.fields
    convert = json_decoder(fields[0].type) if known.schema.scalar else object_decoder(fields)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = _parsed(line)
            unknown = {} if known.schema.scalar else _unknown(fields, value)
            if unknown:
                raise _unknown_columns(known, where, number, unknown)
            row = convert(value)
        except (ValueError, UnfitValue) as error:
            raise _bad_row(known, where, number, str(error)) from error
        except RecursionError:
            raise _bad_row(known, where, number, _TOO_DEEP) from None
        yield row


_TOO_DEEP = "it is nested too deeply"


def _bad_row(known: CachedDescription, where: str, number: int, problem: str) -> BadRow:
    return BadRow(
        f"{where}, line {number} is not a row of {known.name!r}: {problem}",
        why=f"Its columns are {known.schema}.",
        row=number,
        field=None,
    )


def _unknown_columns(
    known: CachedDescription, where: str, number: int, unknown: dict[str, str | None]
) -> BadRow:
    columns = ", ".join(repr(name) for name in unknown)
    near = [f"{meant!r} for {name!r}" for name, meant in unknown.items() if meant is not None]
    return BadRow(
        f"{where}, line {number} has columns that {known.name!r} does not have: {columns}",
        why=f"Its columns are {known.schema}.\nA value without a column would be lost silently.",
        fix=f"write {', '.join(near)}" if near else "remove the extra columns",
        row=number,
        field=next(iter(unknown)),
        columns=tuple(unknown),
    )


def _unknown(fields: Sequence[Field], value: Any) -> dict[str, str | None]:
    """Map unknown names in an object (nested ones as paths) to the nearest missing field."""
    if not isinstance(value, dict):
        return {}  # raises later, as a value of the wrong type
    names = [field.name for field in fields]
    free = [name for name in names if name not in value]
    found = {name: _nearest(name, free) for name in value if name not in names}
    for field in fields:
        for nested, meant in _unknown_within(field.type, value.get(field.name)).items():
            path = f"{field.name}.{nested}"
            found[path] = None if meant is None else f"{field.name}.{meant}"
    return found


def _unknown_within(data_type: DataType, value: Any) -> dict[str, str | None]:
    from headrace.expr.types import ListType, MapType, StructType

    if isinstance(data_type, StructType):
        return _unknown(data_type.fields, value)
    if isinstance(data_type, ListType) and isinstance(value, list):
        found: dict[str, str | None] = {}
        for element in value:
            found |= _unknown_within(data_type.element, element)
        return found
    if isinstance(data_type, MapType) and isinstance(value, dict):
        found = {}
        for name, each in value.items():
            within = _unknown_within(data_type.value, each)
            found |= {f"{name}.{nested}": meant for nested, meant in within.items()}
        return found
    return {}


def _nearest(name: str, names: Sequence[str]) -> str | None:
    # JSON of other systems differs most often by case.
    by_lower = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), by_lower, 1)
    return by_lower[near[0]] if near else None


def _parsed(text: str) -> Any:
    """Parse a JSON value, with fractional numbers as decimals to keep all digits.

    Raises RecursionError for too deep nesting, and ValueError, also for an object with a repeated name.
    """
    return json.loads(text, parse_float=Decimal, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"{counts.most_common(1)[0][0]!r} is given twice")
    return made


def parse_key(known: CachedDescription, text: str) -> Any:
    """Parse a key given as JSON: a value, or an array if there are several key columns. Raises `BadInput`."""
    from headrace.expr.types import Schema
    from headrace.io.files.json_values import object_decoder
    from headrace.io.files.text_values import UnfitValue, shortened

    fields = Schema(tuple(known.schema.fields[known.position(name)] for name in known.key_columns)).fields
    try:
        try:
            value = _parsed(text)
        except ValueError:
            value = text  # Treat unquoted text as a string.
        except RecursionError:
            raise UnfitValue(_TOO_DEEP) from None
        values = value if isinstance(value, list) and len(fields) > 1 else [value]
        if len(values) != len(fields):
            raise UnfitValue(f"{len(fields)} values are needed")
        return object_decoder(fields)(dict(zip((f.name for f in fields), values, strict=True)))
    except UnfitValue as error:
        columns = ", ".join(map(str, fields))
        raise BadInput(
            f"{shortened(repr(text))} is not a key of {known.name!r}: {error}",
            why=f"It is looked up by {columns}.",
            fix="write JSON: '\"a\"' or 7, and several columns as '[\"a\", 7]'",
            key=text,
        ) from error


def parse_condition(known: CachedDescription, text: str) -> Expr:
    """Parse the expression of `--where`.

    Raises `BadExpression` for invalid syntax, `BadInput` for an expression that is not boolean.
    """
    from headrace.expr.check import check
    from headrace.expr.from_text import expression_from_text
    from headrace.expr.types import BOOL

    condition = expression_from_text(text, "--where")
    found = check(condition, known.schema).type
    if found != BOOL:
        raise BadInput(
            f"--where {text}: the expression is {found}, not bool", fix="compare it: --where 'col.price > 3'"
        )
    return condition


def print_rows(schema: Schema, rows: Iterable[Any], format: RowsFormat) -> None:
    """Print user rows."""
    from headrace.io.files.json_values import object_encoder
    from headrace.io.in_process import cells

    inside = [_inside(schema, row) for row in rows]
    if format is RowsFormat.JSON:
        record = object_encoder(schema.fields)
        for row in inside:
            typer.echo(json.dumps(record(row), ensure_ascii=False))
        return

    table = create_table(*(_head(field.name, field.type) for field in schema.fields))
    for row in inside:
        table.add_row(*cells(schema, row))
    create_console().print(table)
    typer.echo(f"{len(inside):,} row{'s' * (len(inside) != 1)}", err=True)


def _inside(schema: Schema, row: Any) -> tuple[Any, ...]:
    return (row,) if schema.scalar else tuple(row)


def _head(name: str, data_type: object) -> str:
    from headrace.expr.types import DecimalType, Float64Type, IntegerType

    return f">{name}" if isinstance(data_type, IntegerType | Float64Type | DecimalType) else name


def read_lines(path: str) -> Iterator[str]:
    """Read the lines of a UTF-8 file, or of standard input for `-`.

    Invalid bytes become unpaired surrogates, which no column accepts, so that their row is refused.
    """
    if path == "-":
        cast("TextIOWrapper", sys.stdin).reconfigure(encoding="utf-8", errors="surrogateescape")
        yield from sys.stdin
        return
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        yield from file


_UNCUT = 100_000
"""Line width at which nothing is ever cut."""


def printable(text: str) -> str:
    """Escape a text with control characters: a row must not steer the terminal."""
    return text if text.isprintable() else json.dumps(text)


def create_table(*columns: str) -> Any:
    """Create a table with these column titles; a leading > aligns right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return table


def create_console() -> Console:
    """Create a console on standard output for tables."""
    from rich.console import Console

    # Redirected output is never cut to a terminal width. Brackets and colons in rows are not markup.
    return Console(width=None if sys.stdout.isatty() else _UNCUT, markup=False, emoji=False)
