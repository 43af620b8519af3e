"""PostgreSQL columns and values: quoted names, SQL types, the text format of COPY, and texts of values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import singledispatch
from typing import Any

from headrace.errors import BadInput
from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    FloatingType,
    Int8Type,
    Int16Type,
    Int32Type,
    Int64Type,
    IntervalType,
    ListType,
    MapType,
    Schema,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.io.files.json_values import json_decoder, json_encoder
from headrace.io.files.text_values import Unfit, parser_of

_LONGEST = 63
"""Limit on the bytes of a name. PostgreSQL truncates longer ones silently, so two could become one."""


def quoted(name: str, sink: str) -> str:
    """Quote a name for SQL. Raises `BadInput` for an invalid name."""
    if not name or "\0" in name or len(name.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise BadInput(
            f"sink {sink!r}: {name!r} cannot be a name in PostgreSQL",
            why=f"a name has 1 to {_LONGEST} bytes, none of them NUL",
            fix="rename the column in a select before the sink, or give another table",
            sink=sink,
        )
    return '"' + name.replace('"', '""') + '"'


@singledispatch
def sql_type(data_type: DataType) -> str:
    """Map a column type to its SQL type. Lists and nested rows are JSON."""
    raise TypeError(data_type)


for _class, _name in {
    BoolType: "boolean",
    Int8Type: "smallint",
    Int16Type: "smallint",
    Int32Type: "integer",
    Int64Type: "bigint",
    Float64Type: "double precision",
    Float32Type: "real",
    StrType: "text",
    BytesType: "bytea",
    DateType: "date",
    TimestampType: "timestamp with time zone",
    TimestampNtzType: "timestamp without time zone",
    IntervalType: "interval",
    ListType: "jsonb",
    MapType: "jsonb",
    StructType: "jsonb",
}.items():
    sql_type.register(_class, lambda _type, _name=_name: _name)


@sql_type.register
def _(data_type: DecimalType) -> str:
    return f"numeric({data_type.precision}, {data_type.scale})"


def column_definition(column: Field, sink: str) -> str:
    return f"{quoted(column.name, sink)} {sql_type(column.type)}{'' if column.nullable else ' not null'}"


# --- values in the format of COPY --------------------------------------------------------

Text = Callable[[Any], str]


@singledispatch
def copy_converter(data_type: DataType) -> Text:
    """Build a converter from non-null values to the text format of COPY."""
    return str


@copy_converter.register
def _(data_type: BoolType) -> Text:
    return lambda value: "t" if value else "f"


@copy_converter.register
def _(data_type: FloatingType) -> Text:
    return repr  # PostgreSQL accepts inf and nan.


@copy_converter.register
def _(data_type: StrType) -> Text:
    return escape_copy_text


@copy_converter.register
def _(data_type: BytesType) -> Text:
    return lambda value: "\\\\x" + value.hex()


@copy_converter.register
def _(data_type: IntervalType) -> Text:
    return _interval_text


def _interval_text(value: timedelta) -> str:
    """Return days and a time, each with its sign. PostgreSQL before 15 reads a number only up to 32 bits."""
    size, sign = abs(value), "-" if value < timedelta() else ""
    minutes, seconds = divmod(size.seconds, 60)
    time = f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{size.microseconds:06d}"
    return f"{sign}{size.days} days {sign}{time}"


@copy_converter.register(DateType)
@copy_converter.register(TimestampType)
@copy_converter.register(TimestampNtzType)
def _(data_type: DataType) -> Text:
    return lambda value: value.isoformat()


@copy_converter.register(ListType)
@copy_converter.register(MapType)
@copy_converter.register(StructType)
def _(data_type: DataType) -> Text:
    plain = json_encoder(data_type)
    return lambda value: escape_copy_text(json.dumps(plain(value), ensure_ascii=False))


def escape_copy_text(text: str) -> str:
    """Escape characters that would end a COPY field or line."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def copy_line_converter(schema: Schema) -> Callable[[tuple[Any, ...]], str]:
    """Build a converter from rows of this schema, followed by integers, to COPY lines."""
    parts = [copy_converter(f.type) for f in schema.fields]
    width = len(parts)

    def line(row: tuple[Any, ...]) -> str:
        fields = ["\\N" if value is None else part(value) for part, value in zip(parts, row)]
        fields.extend(map(str, row[width:]))
        return "\t".join(fields) + "\n"

    return line


# --- values as texts of the server -------------------------------------------------------


def text_of(column: Field, sink: str) -> str:
    """Write the SQL expression for a column's value as text."""
    name = quoted(column.name, sink)
    if isinstance(column.type, IntervalType):
        return f"(extract(epoch from {name}) * 1000000)::bigint::text"
    return f"encode({name}, 'hex')" if isinstance(column.type, BytesType) else f"{name}::text"


def _from_text(data_type: DataType) -> Callable[[str], Any]:
    """Build a parser of such a text to internal values, which raises `Unfit`."""
    if isinstance(data_type, BytesType):
        return bytes.fromhex
    if isinstance(data_type, IntervalType):
        return lambda text: timedelta(0, 0, int(text))
    if isinstance(data_type, ListType | MapType | StructType):
        decode = json_decoder(data_type)
        return lambda text: decode(json.loads(text, parse_float=Decimal))
    return parser_of(data_type)


def row_parser(schema: Schema) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Build a parser of rows of such texts, followed by other values. It raises `Unfit`."""
    parts = [(f, _from_text(f.type)) for f in schema.fields]

    def parsed(column: Field, text: str | None, parse: Callable[[str], Any]) -> Any:
        if text is None and not column.nullable:
            raise Unfit(f"column {column.name!r} has a null")
        try:
            return None if text is None else parse(text)
        except Unfit as problem:
            raise Unfit(f"column {column.name!r}: {problem}") from None

    def row(texts: Sequence[Any]) -> tuple[Any, ...]:
        values = (parsed(f, text, parse) for (f, parse), text in zip(parts, texts))
        return (*values, *texts[len(parts) :])

    return row
