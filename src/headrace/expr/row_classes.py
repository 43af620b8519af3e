"""Row classes and schemas: conversion between users' row types and internal rows.

A schema comes from a `NamedTuple`, a dataclass or a scalar type (`schema_of`), or from columns that an
operator computed (`computed_schema`). The row class of a derived schema is made on demand.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial, singledispatch
from operator import itemgetter
from typing import Any, cast

from headrace.errors import UnknownRowType
from headrace.expr.annotations import as_field, fields_of, is_row_class
from headrace.expr.row_conversion import exact_test, from_user
from headrace.expr.types import (
    INT64,
    STR,
    BytesType,
    DataType,
    Field,
    IntegerType,
    ListType,
    MapType,
    Schema,
    StrType,
    StructType,
)

__all__ = ["computed_schema", "exact_test", "from_user", "row_class", "schema_of", "to_user"]

SCALAR_COLUMN = "value"


def schema_of(rows: Any) -> Schema:
    """Return the schema of a row type. Raises `UnknownRowType` for other types."""
    if is_row_class(rows):
        return Schema(fields_of(rows), rows)
    try:
        field = as_field(SCALAR_COLUMN, rows)
    except UnknownRowType as error:
        if not isinstance(rows, type):
            raise
        raise UnknownRowType(
            f"{rows.__name__} is not a row type",
            where=error.where,
            why="A row is a NamedTuple, a dataclass, or one value: bool, int, float, Decimal, str, bytes,\n"
            "date, datetime.",
            fix="class Row(NamedTuple), with an annotation for each column",
        ) from None
    return Schema((field,), rows if isinstance(rows, type) else None, scalar=True)


def computed_schema(fields: tuple[Field, ...]) -> Schema:
    """Make the schema of computed columns. `row_class` makes its row class on demand."""
    return Schema(fields)


def row_class(schema: Schema) -> type[Any]:
    """Return the class of users' rows of `schema`; for scalars the type of the value."""
    if schema.row_class is not None:
        return schema.row_class
    return _made_class(schema.names)


@lru_cache(maxsize=1024)
def _made_class(names: tuple[str, ...]) -> type[Any]:
    # `rename` gives names that Python does not allow (keywords, dots) a position instead.
    base = namedtuple("Row", names, rename=True)  # pyright: ignore

    def reduce(row: Any) -> tuple[Any, ...]:
        return _remake, (names, tuple(row))

    members = {"__slots__": (), "__reduce__": reduce, "__module__": __name__}
    return type("Row", (cast("type[Any]", base),), members)


def _remake(names: tuple[str, ...], values: tuple[object, ...]) -> object:
    return cast("Any", _made_class(names))._make(values)


def to_user(schema: Schema) -> Callable[[tuple[Any, ...]], Any]:
    """Make a function from internal rows to users' rows.

    A user's row is an instance of the row class, or the bare value in a scalar stream; nested structs are
    converted to their class, lists to `list`, maps to `dict`.
    """
    if schema.scalar:
        convert = _value_to_user(schema.fields[0].type)
        if convert is None:
            return itemgetter(0)
        return lambda row: None if row[0] is None else convert(row[0])
    return _row_to_user(schema.fields, row_class(schema))


def _row_to_user(
    fields: tuple[Field, ...], wanted: type[Any], sequence: Callable[[Iterable[Any]], Any] = list
) -> Callable[[tuple[Any, ...]], Any]:
    converters = [
        (at, convert) for at, f in enumerate(fields) if (convert := _value_to_user(f.type, sequence))
    ]
    make: Callable[[Any], Any]
    if dataclasses.is_dataclass(wanted):
        make = partial(_call, wanted)
    else:
        make = partial(cast("Any", tuple).__new__, wanted)
    if not converters:
        return make

    def convert_row(row: tuple[Any, ...]) -> Any:
        values = list(row)
        for at, convert in converters:
            if values[at] is not None:
                values[at] = convert(values[at])
        return make(tuple(values))

    return convert_row


def _call(wanted: type[Any], values: tuple[Any, ...]) -> Any:
    return wanted(*values)


def _value_to_user(
    type: DataType, sequence: Callable[[Iterable[Any]], Any] = list
) -> Callable[[Any], Any] | None:
    """Make a function from internal to user values, or None if they are the same. sequence: makes lists."""
    if isinstance(type, StructType):
        return _row_to_user(type.fields, row_class(Schema(type.fields, type.row_class)), sequence)
    if isinstance(type, ListType):
        convert = _value_to_user(type.element, sequence)
        if convert is None:
            return None if sequence is tuple else sequence
        return lambda values: sequence(None if v is None else convert(v) for v in values)
    if isinstance(type, MapType):
        return _map_to_user(type)
    return None


def _map_to_user(type: MapType) -> Callable[[Any], Any]:
    # A list is no key of a dict, nor part of one; a tuple is.
    key = _value_to_user(type.key, tuple)
    value = _value_to_user(type.value)
    if key is None and value is None:
        return dict

    def convert(entries: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
        return {
            k if key is None else key(k): v if v is None or value is None else value(v) for k, v in entries
        }

    return convert


# --- rows held by key, and the columns of the records that change them ----------------------------


PLACE = StructType((Field("file", STR), Field("row", INT64)))
"""Type of the place of a record: path of its file, and its number in it from 1."""

_UNAVAILABLE = "\0unavailable"
"""Text in place of an unknown value. PostgreSQL's texts have no zeros."""


@singledispatch
def placeholder(data_type: DataType, text: str) -> Any:
    """Return a text in the form in which it stands for a value of a type; None if it has none."""
    return None


@placeholder.register
def _(data_type: StrType, text: str) -> Any:
    return text


@placeholder.register
def _(data_type: BytesType, text: str) -> Any:
    return text.encode()


@placeholder.register
def _(data_type: ListType, text: str) -> Any:
    if isinstance(data_type.element, IntegerType):
        return tuple(text.encode())
    one = placeholder(data_type.element, text)
    return None if one is None else (one,)


@placeholder.register
def _(data_type: MapType, text: str) -> Any:
    one = placeholder(data_type.key, text), placeholder(data_type.value, text)
    return None if None in one else (one,)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Values of rows that a record does not tell, because it does not change them.

    marks: position, name and placeholder of each column that may be unknown.
    """

    marks: tuple[tuple[int, str, Any], ...]

    @classmethod
    def of(cls, fields: tuple[Field, ...], text: str = _UNAVAILABLE) -> Unavailable:
        """Return the unknown values of rows in which a text stands for them."""
        found = ((at, f.name, placeholder(f.type, text)) for at, f in enumerate(fields))
        return cls(tuple(each for each in found if each[2] is not None))

    def names(self, row: tuple[Any, ...]) -> list[str]:
        """Return the columns whose value a row does not tell."""
        return [name for at, name, mark in self.marks if row[at] == mark]

    def fill(self, row: Any, held: Any) -> Any:
        """Return a row with the values that it does not tell from another one; null stays null.

        What the other one does not tell either stays as it is.
        """
        if row is None or held is None:
            return row
        unknown = [at for at, _, mark in self.marks if row[at] == mark]
        if not unknown:
            return row
        return tuple(held[at] if at in unknown else value for at, value in enumerate(row))

    def mark(self, row: tuple[Any, ...], others: Unavailable) -> tuple[Any, ...]:
        """Return a row with other placeholders in place of these."""
        if not self.names(row):
            return row
        marks = {
            at: (mark, other) for (at, _, mark), (_, _, other) in zip(self.marks, others.marks, strict=True)
        }
        return tuple(
            marks[at][1] if at in marks and value == marks[at][0] else value for at, value in enumerate(row)
        )


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of a table that are held by key.

    sequence: column that orders the records of a key; None if they count in the order in which they come.
    """

    rows: Schema
    key: tuple[str, ...]
    sequence: str | None = None

    @property
    def records(self) -> Schema:
        """Columns of records: key, row before, row, the sequence if there is one, and place in a file."""
        whole = StructType(self.rows.fields, self.rows.row_class)
        fields = (
            Field("key", StructType(self.key_fields)),
            Field("before", whole, nullable=True),
            Field("row", whole, nullable=True),
            *self.sequence_fields,
            Field("place", PLACE, nullable=True),
        )
        return Schema(fields)

    @property
    def sequence_fields(self) -> tuple[Field, ...]:
        """The field of the sequence of a record, if there is one."""
        if self.sequence is None:
            return ()
        return (Field("sequence", self._field(self.sequence).type, nullable=True),)

    @property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(map(self._field, self.key))

    @property
    def relaxed(self) -> Schema:
        """Columns of rows of which only the key need be known."""
        fields = (f if f.name in self.key else replace(f, nullable=True) for f in self.rows.fields)
        return Schema(tuple(fields), self.rows.row_class)

    def _field(self, name: str) -> Field:
        return next(f for f in self.rows.fields if f.name == name)
