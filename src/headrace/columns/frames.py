"""Frames as user input and output: tables of Polars, pyarrow, or any library with the Arrow interface."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.errors import BadInput
from headrace.expr.types import Rows

if TYPE_CHECKING:
    from collections.abc import Generator
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema


WEIGHT_COLUMN = "weight"
"""Name of a frame's weight column: how many copies of each row are inserted or deleted."""


class ColumnarRows(Protocol):
    """Internal rows in columns (`headrace.columns.columns`)."""

    def __len__(self) -> int: ...

    def rows(self) -> Rows:
        """Return the rows as tuples."""
        ...

    def user_frame(self) -> Any:
        """Return the rows as a Polars frame with column names."""
        ...


def is_frame(given: object) -> bool:
    """Return whether a value is a table: a Polars `DataFrame`, a pyarrow `Table`, or similar."""
    return hasattr(given, "__arrow_c_stream__")


def rows_of_frame(
    frame: Any, schema: Schema, change: type | None, *, unread: AbstractSet[str] = frozenset()
) -> list[Any]:
    """Convert a frame to user rows, which are validated like any others.

    unread: columns that the frame may lack: they are null.

    change: the class of a row with its weight, for a table; the weights are in a column
            `weight`, where the rows themselves have none of that name.

    Raises `BadInput` for a frame that cannot be read, or not without Polars.
    """
    columns = _columns(frame)
    weights = None
    if change is not None and WEIGHT_COLUMN in columns and WEIGHT_COLUMN not in schema.names:
        weights = columns.pop(WEIGHT_COLUMN)
    absent = set(schema.names) - set(columns)
    if absent <= unread and not schema.scalar:
        columns |= dict.fromkeys(absent, [None] * len(frame))
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


def read_whole(given: Any) -> Any:
    """Read a frame completely, so that it can be read again. Raises `BadInput` if that fails."""
    if hasattr(given, "__len__"):
        return given
    if hasattr(given, "read_all"):  # of pyarrow
        with _read(given):
            return given.read_all()
    make = _polars_frame_class()
    with _read(given):
        return make(given)


def _columns(frame: Any) -> dict[str, list[Any]]:
    if hasattr(frame, "column_names") and hasattr(frame, "to_pydict"):  # of pyarrow
        names = frame.column_names
        if len(set(names)) < len(names):
            raise BadInput("a frame has two columns of one name", why=f"Its columns are {', '.join(names)}.")
        with _read(frame):
            return cast("dict[str, list[Any]]", frame.to_pydict())
    if not hasattr(frame, "to_dict") or not hasattr(frame, "get_columns"):
        make = _polars_frame_class()
        with _read(frame):
            frame = make(frame)
    with _read(frame):
        return {series.name: _utc_series(series).to_list() for series in frame.get_columns()}


def _utc_series(series: Any) -> Any:
    """Return a series with its times in UTC: Python knows other offsets of old times than Polars."""
    zone = getattr(series.dtype, "time_zone", None)
    return series if zone is None else series.dt.convert_time_zone("UTC")


def _polars_frame_class() -> Any:
    import polars as pl

    return pl.DataFrame


@contextmanager
def _read(frame: object) -> Generator[None]:
    """Convert read errors inside this block to invalid-value or invalid-layout errors of a frame."""
    try:
        yield
    except BaseException as error:
        # A panic of Polars, which is no `Exception`, is about a date that Python does not have.
        if isinstance(error, ValueError | OverflowError) or type(error).__name__ == "PanicException":
            raise BadInput(
                "a frame holds what no value of Python is", why=str(error), fix="leave it out"
            ) from error
        if isinstance(error, Exception):
            raise BadInput(
                f"a {type(frame).__name__} is no table", why=str(error), fix="give rows, or a data frame"
            ) from error
        raise
