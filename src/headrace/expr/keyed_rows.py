"""Rows held by key, and the columns of the records that change them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

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
