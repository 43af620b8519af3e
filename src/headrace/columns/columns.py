"""Columnar representation of a stream's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from headrace.errors import BadInput
from headrace.expr.polars_columns import (
    LoweredExpression,
    bounds_in,
    from_series,
    polars_type,
    repeated,
    to_series,
)
from headrace.expr.types import INT64, TIMESTAMP, Rows
from headrace.requirements import pl

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
    """Convert the times of a series to UTC: for old times, Python and Polars use different offsets."""
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


WEIGHT = "w"
"""Name of a stream's weight column, if it has weights; the data columns are named "0", "1", ..."""

FAILS = "f"
"""Name of the column that marks rows on which the row path might raise, if there may be any."""


class Columns:
    """Rows of `schema` as a frame, converted to tuples on demand.

    append: they come without weights.
    unread: names of columns that rows need not have, as nobody reads them: they get nulls there.
    rows:   how to make the internal rows, where that is cheaper than from the frame.
    """

    __slots__ = ("_make_rows", "_rows", "append", "frame", "schema", "unread")

    def __init__(
        self,
        schema: Schema,
        append: bool,
        frame: pl.DataFrame,
        rows: Callable[[], Rows] | None = None,
        *,
        unread: AbstractSet[str] = frozenset(),
    ) -> None:
        self.schema = schema
        self.append = append
        self.frame = frame
        self.unread = unread
        self._make_rows = rows
        self._rows: Rows | None = None

    def __len__(self) -> int:
        return self.frame.height

    def rows(self) -> Rows:
        """Return the internal rows: tuples, with the weight last unless append-only."""
        if self._rows is None:
            self._rows = self._made_rows() if self._make_rows is None else self._make_rows()
        return self._rows

    def estimated_bytes(self) -> int:
        """Estimate the memory of the frame."""
        return int(self.frame.estimated_size())

    def user_frame(self) -> pl.DataFrame:
        """Return the rows under their column names, with a weight column unless append-only."""
        taken: dict[str, pl.Series] = {}
        for at, field in enumerate(self.schema.fields):
            series = self.frame[str(at)]
            taken[field.name] = series.dt.replace_time_zone("UTC") if field.type == TIMESTAMP else series
        if not self.append:
            name = WEIGHT_COLUMN
            while name in taken:
                name = f"_{name}"
            taken[name] = self.frame[WEIGHT]
        return pl.DataFrame(taken)

    def _made_rows(self) -> Rows:
        nulls = [None] * len(self)
        columns = [
            nulls if f.name in self.unread else from_series(f.type, self.frame[str(at)])
            for at, f in enumerate(self.schema.fields)
        ]
        if not self.append:
            columns.append(self.frame[WEIGHT].to_list())
        return list(zip(*columns, strict=True))


class ColumnarDeclined(Exception):
    """Exception for a tick that must run row by row, because a row fails or Polars cannot decide."""


def rows_to_columns(
    schema: Schema, append: bool, rows: Rows, *, unread: AbstractSet[str] = frozenset()
) -> Columns:
    """Convert internal rows to columns. Raises `ColumnarDeclined` for a value that Polars cannot hold.

    unread: names of columns that nobody reads, which become nulls.
    """
    nulls: list[Any] = [None] * len(rows)
    try:
        taken = {
            str(at): to_series(f.type, nulls if f.name in unread else [row[at] for row in rows])
            for at, f in enumerate(schema.fields)
        }
        if not append:
            taken[WEIGHT] = to_series(INT64, [row[-1] for row in rows])
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ColumnarDeclined from error
    return Columns(schema, append, pl.DataFrame(taken), lambda: rows)


def constant_weights(weight: int, count: int) -> pl.Series:
    """Return a column of `count` equal weights."""
    return repeated(weight, pl.Int64(), count).alias(WEIGHT)


def can_hold(schema: Schema) -> bool:
    """Return whether every column of the schema has a Polars type and is not a list."""
    return all(polars_type(f.type) is not None for f in schema.fields)


class ColumnsOfFrame(Sequence[LoweredExpression]):
    """Columns of a frame of `schema`. Bounds of integers and decimals are computed on first access."""

    def __init__(self, schema: Schema, frame: pl.DataFrame) -> None:
        self._schema = schema
        self._frame = frame
        self._known: dict[int, LoweredExpression] = {}

    def __len__(self) -> int:
        return len(self._schema.fields)

    @overload
    def __getitem__(self, at: int) -> LoweredExpression: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[LoweredExpression]: ...
    def __getitem__(self, at: int | slice) -> LoweredExpression | Sequence[LoweredExpression]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        found = self._known.get(at)
        if found is None:
            name = str(at)
            bounds = bounds_in(self._schema.fields[at].type, self._frame[name])
            found = self._known[at] = LoweredExpression(pl.col(name), bounds)
        return found
