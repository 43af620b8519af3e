"""Rows held by key, and the columns of the records that change them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.expr.types import INT64, STR, Field, Schema, StructType

PLACE = StructType((Field("file", STR), Field("row", INT64)))
"""Type of the place of a record: path of its file, and its number in it from 1."""


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
