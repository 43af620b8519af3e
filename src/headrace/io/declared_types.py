"""Prerequisite of sources and sinks: columns with declared types."""

from __future__ import annotations

from headrace.errors import BadInput
from headrace.expr.types import Schema, holds_any


def refuse_untyped(schema: Schema, what: str) -> None:
    """Raise `BadInput` for an `Any` column, also within a list or a nested row.

    what: subject of the error message: "source 'x', a JSON file".
    """
    for field in schema.fields:
        if holds_any(field.type):
            raise BadInput(
                f"{what}: column {field.name!r} is {field.type}, which a file cannot hold",
                why="A file has a type for each column, and this one may hold any Python object.",
                fix="give the column a type in the row class, or map() the rows to a class that has one",
                column=field.name,
            )
