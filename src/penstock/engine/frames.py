"""Frames that users give and take: tables with named columns, of Polars, pyarrow, or what speaks Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.expr.types import Schema

Rows = list[tuple[Any, ...]]

WEIGHT_COLUMN = "weight"
"""The column of a frame that says how many copies of each row come or go."""


class InColumns(Protocol):
    """Internal rows that stand in columns (`penstock.engine.columnar`)."""

    def __len__(self) -> int: ...

    def rows(self) -> Rows:
        """The rows as tuples."""
        ...

    def for_user(self) -> Any:
        """The rows as a Polars frame with the names of their columns."""
        ...


def is_frame(given: object) -> bool:
    """Whether it is a table with columns: a Polars `DataFrame`, a pyarrow `Table`, or one of their kind."""
    return hasattr(given, "__arrow_c_stream__")


def rows_of_frame(frame: Any, schema: Schema, change: type | None) -> list[Any]:
    """A frame as users give rows, to be checked as they are.

    change: the class of a row with its weight, for a table; the weights are in a column
            `weight`, where the rows themselves have none of that name.

    Raises `BadInput` for a frame that cannot be read without Polars or pyarrow.
    """
    columns = _columns(frame)
    weights = None
    if change is not None and WEIGHT_COLUMN in columns and WEIGHT_COLUMN not in schema.names:
        weights = columns.pop(WEIGHT_COLUMN)
    rows: list[Any]
    if schema.scalar and len(columns) == 1:
        (rows,) = columns.values()
    elif set(columns) == set(schema.names):
        rows = list(zip(*(columns[name] for name in schema.names), strict=True))
    else:
        # The check of rows tells what is missing, or too much.
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if weights is None or change is None:
        return rows
    return [change(row, weight) for row, weight in zip(rows, weights, strict=True)]


def in_columns(schema: Schema, append: bool, rows: Rows) -> InColumns:
    """Internal rows in columns. Raises `BadInput` where Polars is missing or has no type for one."""
    try:
        from penstock.engine.columnar.columns import can_hold, of_rows
    except ImportError as error:
        raise BadInput(
            "a frame needs Polars, which cannot be imported",
            why=str(error),
            fix="pip install 'penstock[columnar]'",
        ) from error
    if not can_hold(schema):
        raise BadInput(f"rows of {schema} cannot stand in columns", fix="read them as rows")
    return of_rows(schema, append, rows)


def _columns(frame: Any) -> dict[str, list[Any]]:
    if hasattr(frame, "column_names") and hasattr(frame, "to_pydict"):  # of pyarrow
        return cast("dict[str, list[Any]]", frame.to_pydict())
    if not hasattr(frame, "to_dict") or not hasattr(frame, "get_columns"):
        try:
            import polars as pl
        except ImportError as error:
            raise BadInput(
                f"a {type(frame).__name__} is read by Polars, which cannot be imported",
                why=str(error),
                fix="pip install 'penstock[columnar]', or give rows",
            ) from error
        frame = pl.DataFrame(frame)
    try:
        return {series.name: series.to_list() for series in frame.get_columns()}
    except (ValueError, OverflowError) as error:
        raise BadInput(
            "a frame holds what no value of Python is", why=str(error), fix="leave it out"
        ) from error
