"""Streams in a large tick: a lazy frame with known column bounds, and the operators on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from headrace.arrangement.batch import select, take
from headrace.arrangement.codes import codes_of
from headrace.columns.columns import FAILS, WEIGHT, ColumnarDeclined, Columns, ColumnsOfFrame
from headrace.columns.expressions import columns_without_bounds, lower_expression
from headrace.expr.polars_columns import (
    LoweredExpression,
    carried_dtype,
    dtype_of,
    either_condition,
    replace_negative_zero,
)
from headrace.expr.tree import Expr
from headrace.expr.types import Schema
from headrace.expr.typing_rules import is_float
from headrace.requirements import np, pl

MAX_COPIES = 2**53
"""Limit on a frame's total weight, low enough that sums over united streams cannot overflow."""

FEW = 20_000
"""Rows below which it takes longer to make a good plan than to do without."""


@cache
def as_written() -> pl.QueryOptFlags:
    """Return the Polars flags that compute a query as written, without optimization."""
    return pl.QueryOptFlags.none()


@dataclass(frozen=True, slots=True)
class ColumnStream:
    """Rows of `schema` in columns "0", "1", ..., with weights in "w" unless append-only.

    columns: the columns as expressions, with what is known of their values.
    most:    upper bound on the number of rows. copies: on that of their copies, including retractions.
    whole:   the frame, if it is computed already, and the rows as they are in it.
    checked: column "f" is true on rows on which the row path might raise. No operator
             drops such a row, so that none goes unnoticed.
    """

    schema: Schema
    append: bool
    frame: pl.LazyFrame
    columns: Sequence[LoweredExpression]
    most: int
    copies: int
    checked: bool = False
    whole: tuple[pl.LazyFrame, pl.DataFrame] | None = None

    @classmethod
    def of_frame(
        cls,
        schema: Schema,
        append: bool,
        frame: pl.DataFrame,
        columns: Sequence[LoweredExpression],
        copies: int,
    ) -> ColumnStream:
        """Return a stream of already computed rows."""
        lazy = frame.lazy()
        return cls(schema, append, lazy, columns, frame.height, copies, whole=(lazy, frame))

    @property
    def at_hand(self) -> pl.DataFrame | None:
        """Return the rows if they are computed already."""
        return self.whole[1] if self.whole is not None and self.whole[0] is self.frame else None

    @property
    def names(self) -> list[str]:
        """Column names of the frame, row columns first."""
        own = [str(at) for at in range(len(self.schema.fields))]
        return own + [WEIGHT] * (not self.append) + [FAILS] * self.checked

    def lower(self, expr: Expr) -> LoweredExpression:
        """Lower an expression over the rows. Raises `NotLowered`."""
        return lower_expression(expr, self.schema, self.columns)

    def taking(self, schema: Schema, append: bool, places: Sequence[int]) -> ColumnStream | None:
        """Return a stream of `schema` with the columns at `places`; None if rows are not computed yet."""
        whole = self.at_hand
        if whole is None:
            return None
        columns = [whole[str(at)].alias(str(to)) for to, at in enumerate(places)]
        frame = pl.DataFrame(columns if append else [*columns, whole[WEIGHT]])
        return ColumnStream.of_frame(schema, append, frame, ColumnsOfFrame(schema, frame), self.copies)

    def noting(self, *failures: pl.Expr | None) -> ColumnStream:
        """Mark the rows for which any of `failures` is true."""
        fails = either_condition(*failures)
        if fails is None:
            return self
        marks = fails.fill_null(False)
        if self.checked:
            marks = pl.col(FAILS) | marks
        return replace(self, frame=self.frame.with_columns(marks.alias(FAILS)), checked=True)

    def collected(self) -> pl.DataFrame:
        """Collect the rows, without the marks. Raises `ColumnarDeclined` if any is marked."""
        if self.at_hand is not None:
            return self.at_hand
        frame = self._computed()
        if not self.checked:
            return frame
        decline_marked(frame)
        return frame.drop(FAILS)

    def unmarked(self) -> pl.DataFrame:
        """Collect all rows, marked or not, without the marks."""
        return self.at_hand if self.at_hand is not None else self._computed().drop(FAILS, strict=False)

    def _computed(self) -> pl.DataFrame:
        return self.frame.collect(optimizations=as_written()) if self.most < FEW else self.frame.collect()

    def kept(self) -> ColumnStream:
        """Cache the stream, so that several readers share one computation."""
        if self.at_hand is not None:
            return self
        frame = self._computed()
        lazy = frame.lazy()
        return replace(self, frame=lazy, whole=None if self.checked else (lazy, frame))


def decline_marked(frame: pl.DataFrame) -> None:
    """Raise `ColumnarDeclined` if any row is marked."""
    if frame[FAILS].any():
        raise ColumnarDeclined


def greatest_weight(frame: pl.DataFrame) -> int:
    """Return the largest absolute weight in a frame; 0 without rows."""
    low: Any = frame[WEIGHT].min()
    high: Any = frame[WEIGHT].max()
    return max(-(low or 0), high or 0)


def copies_in(frame: pl.DataFrame) -> int:
    """Return an upper bound on the number of row copies. Raises `ColumnarDeclined` if too many to sum."""
    copies = greatest_weight(frame) * frame.height
    if copies >= MAX_COPIES:
        raise ColumnarDeclined
    return copies


def build_stream(columns: Columns) -> ColumnStream:
    """Build a stream from the given rows. Raises `ColumnarDeclined` if their weights are too large to sum."""
    frame = columns.frame
    copies = frame.height if columns.append else copies_in(frame)
    known = ColumnsOfFrame(columns.schema, frame)
    return ColumnStream.of_frame(columns.schema, columns.append, frame, known, copies)


def empty_stream(schema: Schema, append: bool) -> ColumnStream:
    """Return an empty stream, for testing which operators can be lowered.

    Raises `NotLowered` for a type that stays in rows.
    """
    types = {str(at): carried_dtype(f.type) for at, f in enumerate(schema.fields)}
    if not append:
        types[WEIGHT] = pl.Int64()
    return ColumnStream(
        schema, append, pl.LazyFrame(schema=types), tuple(columns_without_bounds(schema)), 0, 0
    )


def check_plain(schema: Schema) -> None:
    """Raise `NotLowered` if a column has a type with values that cannot be compared in columns."""
    for field in schema.fields:
        dtype_of(field.type)


def each_copy(rows: pl.DataFrame) -> pl.DataFrame:
    """Repeat each row by its weight, and drop the weights. No weight is negative."""
    copies = rows[WEIGHT].to_numpy()
    # Polars plans a query to drop a column.
    rows = select(rows, [name for name in rows.columns if name != WEIGHT])
    if (copies == 1).all():
        return rows
    return take(rows, np.repeat(np.arange(len(copies)), copies))


def are_distinct(rows: pl.DataFrame) -> bool:
    """Return whether all rows have different hashes, and so are distinct."""
    hashes = np.sort(codes_of(rows.get_columns(), exact=False))
    return not bool((hashes[1:] == hashes[:-1]).any())


def with_one_zero(stream: ColumnStream) -> ColumnStream:
    """Replace -0.0 with 0.0."""
    floats = [str(at) for at, field in enumerate(stream.schema.fields) if is_float(field.type)]
    made = [replace_negative_zero(pl.col(name)).alias(name) for name in floats]
    return replace(stream, frame=stream.frame.with_columns(*made)) if made else stream


def sum_weights(stream: ColumnStream) -> ColumnStream:
    """Consolidate rows: sum the weights of equal ones and drop weight 0, in order of first occurrence."""
    whole = stream.at_hand
    if whole is not None and whole.width > 1:
        there = bool((whole[WEIGHT].to_numpy() != 0).all())
        if there and are_distinct(select(whole, stream.names[:-1])):
            return stream
    keys = [pl.col(str(at)) for at in range(len(stream.schema.fields))]
    sums = [pl.col(WEIGHT).sum(), *[pl.col(FAILS).any()] * stream.checked]
    stays = pl.col(WEIGHT) != 0
    frame = stream.frame.group_by(keys, maintain_order=True).agg(*sums)
    frame = frame.filter(stays | pl.col(FAILS) if stream.checked else stays)
    return replace(stream, frame=frame.select(stream.names))
