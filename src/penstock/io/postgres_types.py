"""Columns and values in PostgreSQL: quoted names, types, and the text that COPY reads."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable
from functools import singledispatch
from typing import Any

from penstock.errors import BadInput
from penstock.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float64Type,
    Int32Type,
    Int64Type,
    ListType,
    Schema,
    StrType,
    StructType,
    TimestampType,
)

_LONGEST = 63
"""Bytes of a name; PostgreSQL cuts longer ones off without an error, so that two could become one."""


def quoted(name: str, sink: str) -> str:
    """A name as SQL, whatever it holds. Raises `BadInput` for what cannot be a name."""
    if not name or "\0" in name or len(name.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise BadInput(
            f"sink {sink!r}: {name!r} cannot be a name in PostgreSQL",
            why=f"a name has from 1 to {_LONGEST} bytes, and no NUL among them",
            fix="rename the column in a select before the sink, or give another table",
            sink=sink,
        )
    return '"' + name.replace('"', '""') + '"'


@singledispatch
def sql_type(data_type: DataType) -> str:
    """The type of a column. Lists and nested rows are JSON."""
    raise TypeError(data_type)


for _class, _name in {
    BoolType: "boolean",
    Int32Type: "integer",
    Int64Type: "bigint",
    Float64Type: "double precision",
    StrType: "text",
    BytesType: "bytea",
    DateType: "date",
    TimestampType: "timestamp with time zone",
    ListType: "jsonb",
    StructType: "jsonb",
}.items():
    sql_type.register(_class, lambda _type, _name=_name: _name)


@sql_type.register
def _(data_type: DecimalType) -> str:
    return f"numeric({data_type.precision}, {data_type.scale})"


def column_definition(column: Field, sink: str) -> str:
    return f"{quoted(column.name, sink)} {sql_type(column.type)}{'' if column.nullable else ' not null'}"


# --- values as COPY reads them -----------------------------------------------------------

Text = Callable[[Any], str]


@singledispatch
def copy_text(data_type: DataType) -> Text:
    """What makes the text of a value that is not null, for COPY in its text format."""
    return str


@copy_text.register
def _(data_type: BoolType) -> Text:
    return lambda value: "t" if value else "f"


@copy_text.register
def _(data_type: Float64Type) -> Text:
    return repr  # inf and nan are words that PostgreSQL knows


@copy_text.register
def _(data_type: StrType) -> Text:
    return escaped


@copy_text.register
def _(data_type: BytesType) -> Text:
    return lambda value: "\\\\x" + value.hex()


@copy_text.register(DateType)
@copy_text.register(TimestampType)
def _(data_type: DataType) -> Text:
    return lambda value: value.isoformat()


@copy_text.register(ListType)
@copy_text.register(StructType)
def _(data_type: DataType) -> Text:
    plain = as_json(data_type)
    return lambda value: escaped(json.dumps(plain(value), ensure_ascii=False))


def escaped(text: str) -> str:
    """Text with what would end a field or a line taken out."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def copy_line(schema: Schema) -> Callable[[tuple[Any, ...]], str]:
    """What makes a line of a row of this schema with whole numbers behind it."""
    parts = [copy_text(f.type) for f in schema.fields]
    width = len(parts)

    def line(row: tuple[Any, ...]) -> str:
        fields = ["\\N" if value is None else part(value) for part, value in zip(parts, row)]
        fields.extend(map(str, row[width:]))
        return "\t".join(fields) + "\n"

    return line


# --- nested values as JSON, written as the readers of JSON files read them -------------------


@singledispatch
def as_json(data_type: DataType) -> Callable[[Any], Any]:
    """What makes a value that `json` writes of one that is not null."""
    return lambda value: value


@as_json.register
def _(data_type: Float64Type) -> Callable[[Any], Any]:
    names = {math.inf: "Infinity", -math.inf: "-Infinity"}
    return lambda value: value if math.isfinite(value) else names.get(value, "NaN")


@as_json.register
def _(data_type: DecimalType) -> Callable[[Any], Any]:
    return str


@as_json.register
def _(data_type: BytesType) -> Callable[[Any], Any]:
    return lambda value: b64encode(value).decode()


@as_json.register(DateType)
@as_json.register(TimestampType)
def _(data_type: DataType) -> Callable[[Any], Any]:
    return lambda value: value.isoformat()


@as_json.register
def _(data_type: ListType) -> Callable[[Any], Any]:
    part = as_json(data_type.element)
    return lambda values: [None if value is None else part(value) for value in values]


@as_json.register
def _(data_type: StructType) -> Callable[[Any], Any]:
    parts = [(f.name, as_json(f.type)) for f in data_type.fields]
    return lambda row: {
        name: None if value is None else part(value) for (name, part), value in zip(parts, row)
    }
