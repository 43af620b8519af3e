"""Prerequisites of sources and sinks: optional packages, and columns with declared types."""

from __future__ import annotations

from importlib import import_module

from penstock.errors import BadInput, SourceLocation
from penstock.expr.types import Schema, holds_any


def require_package(what: str, package: str, extra: str, *where: SourceLocation) -> None:
    """Raise `BadInput` if an extra's package is missing. what: who needs it, as in "sink 'totals'"."""
    try:
        import_module(package)
    except ImportError as error:
        raise BadInput(
            f"{what} needs {package}, which cannot be imported",
            where=where,
            why=str(error),
            fix=f"pip install 'penstock[{extra}]'",
        ) from error


def require_arrow(what: str) -> None:
    """Raise `BadInput` if pyarrow is missing."""
    require_package(what, "pyarrow", "files")


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
