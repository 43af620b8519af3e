"""Which bucket of a table a row lies in: a hash of its key that is the same in every process, for ever."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from penstock.errors import BadInput
from penstock.expr.types import DataType, DecimalType, Float64Type, ListType, Schema, StructType

Text = Callable[[Any], str]


@singledispatch
def text_of(data_type: DataType) -> Text:
    """Text that is the same for equal values of a type."""
    # repr is exact and fixed for bool, int, str, bytes, date and for datetimes in UTC.
    return repr


@text_of.register(Float64Type)
@text_of.register(DecimalType)
def _(data_type: DataType) -> Text:
    # Hashes of numbers do not depend on the process, and -0.0 and 0.0, 1.0 and 1.00 have the same.
    return lambda value: "nan" if value != value else str(hash(value))


@text_of.register
def _(data_type: ListType) -> Text:
    element = nullable_text(data_type.element)
    return lambda values: "[" + ",".join(map(element, values)) + "]"


@text_of.register
def _(data_type: StructType) -> Text:
    parts = [nullable_text(f.type) for f in data_type.fields]
    return lambda values: "(" + ",".join(part(value) for part, value in zip(parts, values)) + ")"


def nullable_text(data_type: DataType) -> Text:
    inner = text_of(data_type)
    return lambda value: "-" if value is None else inner(value)


@dataclass(frozen=True, slots=True)
class Bucketing:
    """columns: positions of the key's columns. buckets: how many there are."""

    columns: tuple[int, ...]
    buckets: int
    texts: tuple[Text, ...]

    def key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(row[at] for at in self.columns)

    def bucket(self, row: tuple[Any, ...]) -> int:
        """The number of the row's bucket; `row` may have a weight behind its columns."""
        text = ",".join(part(row[at]) for part, at in zip(self.texts, self.columns))
        return zlib.crc32(text.encode("utf-8", "surrogatepass")) % self.buckets


def bucketing(sink: str, schema: Schema, key: tuple[str, ...] | None, buckets: int) -> Bucketing:
    """Buckets by the key's columns, or by the whole row (None). Raises `BadInput` for unknown columns."""
    names = schema.names if key is None else key
    unknown = [name for name in names if schema.position(name) is None]
    if unknown or not names:
        raise BadInput(
            f"sink {sink!r}: the key names {', '.join(map(repr, unknown)) or 'no column'}",
            why=f"the stream has the columns {', '.join(schema.names)}",
            fix="give key=(...) with columns of the stream",
            sink=sink,
            unknown=tuple(unknown),
        )
    columns = tuple(schema.names.index(name) for name in names)
    return Bucketing(columns, buckets, tuple(nullable_text(schema.fields[at].type) for at in columns))
