"""Columnar representation of a stream's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from headrace.columns.frames import WEIGHT_COLUMN
from headrace.expr.deferred_imports import pl
from headrace.expr.polars_columns import (
    LoweredExpression,
    bounds_in,
    from_series,
    polars_type,
    repeated,
    to_series,
)
from headrace.expr.types import INT64, TIMESTAMP, Rows

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema


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


def weights_of(weight: int, count: int) -> pl.Series:
    """Return one weight for so many rows."""
    return repeated(weight, pl.Int64(), count).alias(WEIGHT)


def can_hold(schema: Schema) -> bool:
    """Return whether every column of the schema has a Polars type, and is no list."""
    return all(polars_type(f.type) is not None for f in schema.fields)


class ColumnsOfFrame(Sequence[LoweredExpression]):
    """Columns of a frame of `schema`; those that are looked at get the bounds of integers and decimals."""

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
