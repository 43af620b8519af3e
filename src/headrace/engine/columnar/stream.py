"""Streams in a large tick: a lazy frame with known column bounds, and the operators on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, cast

import numpy as np
import polars as pl

from headrace.arrangement.batch import select, take, values_at
from headrace.arrangement.codes import codes_of
from headrace.engine.columnar.columns import FAILS, WEIGHT, ColumnarDeclined, Columns, ColumnsOfFrame
from headrace.engine.columnar.expressions import columns_without_bounds, lower_expression, reads_columns
from headrace.engine.partial_operators import ExchangeSink
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    bounds_hull,
    carried_dtype,
    dtype_of,
    either_condition,
    replace_negative_zero,
)
from headrace.expr.tree import Column, Expr
from headrace.expr.types import ListType, Schema
from headrace.expr.typing_rules import is_float
from headrace.flow.operators.explode import Explode
from headrace.flow.operators.filter import Filter
from headrace.flow.operators.select import Select
from headrace.flow.operators.sink import Sink
from headrace.flow.operators.union import Union
from headrace.graph.node import Operator

MOST_COPIES = 2**53
"""Limit on a frame's total weight, low enough that sums over united streams cannot overflow."""


FEW = 20_000
"""Rows below which it takes longer to make a good plan than to do without."""

AS_WRITTEN = pl.QueryOptFlags.none()


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows of `schema` in columns "0", "1", ..., with weights in "w" unless append-only.

    columns: the columns as expressions, with what is known of their values.
    most:    upper bound of the number of rows. copies: of that of their copies, those taken back included.
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
    ) -> Stream:
        """Return the stream of rows that are computed already."""
        lazy = frame.lazy()
        return cls(schema, append, lazy, columns, frame.height, copies, whole=(lazy, frame))

    @property
    def at_hand(self) -> pl.DataFrame | None:
        """Return the rows if they are computed already."""
        return self.whole[1] if self.whole is not None and self.whole[0] is self.frame else None

    @property
    def names(self) -> list[str]:
        """Columns of the frame, those of the rows first."""
        own = [str(at) for at in range(len(self.schema.fields))]
        return own + [WEIGHT] * (not self.append) + [FAILS] * self.checked

    def lower(self, expr: Expr) -> LoweredExpression:
        """Lower an expression over the rows. Raises `NotLowered`."""
        return lower_expression(expr, self.schema, self.columns)

    def taking(self, schema: Schema, append: bool, places: Sequence[int]) -> Stream | None:
        """Return the stream of the columns at some places, of `schema`; None if rows are not computed yet."""
        whole = self.at_hand
        if whole is None:
            return None
        columns = [whole[str(at)].alias(str(to)) for to, at in enumerate(places)]
        frame = pl.DataFrame(columns if append else [*columns, whole[WEIGHT]])
        return Stream.of_frame(schema, append, frame, ColumnsOfFrame(schema, frame), self.copies)

    def noting(self, *failures: pl.Expr | None) -> Stream:
        """Mark the rows for which any of `failures` is true."""
        fails = either_condition(*failures)
        if fails is None:
            return self
        marks = fails.fill_null(False)
        if self.checked:
            marks = pl.col(FAILS) | marks
        return replace(self, frame=self.frame.with_columns(marks.alias(FAILS)), checked=True)

    def collected(self) -> pl.DataFrame:
        """Collect the rows, without the marks. Raises `ColumnarDeclined` where one is marked."""
        if self.at_hand is not None:
            return self.at_hand
        frame = self._computed()
        if not self.checked:
            return frame
        decline_marked(frame)
        return frame.drop(FAILS)

    def unmarked(self) -> pl.DataFrame:
        """Collect the rows, also those that are marked."""
        return self.at_hand if self.at_hand is not None else self._computed().drop(FAILS, strict=False)

    def _computed(self) -> pl.DataFrame:
        return self.frame.collect(optimizations=AS_WRITTEN) if self.most < FEW else self.frame.collect()

    def kept(self) -> Stream:
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
    """Return a bound of the number of copies of rows. Raises `ColumnarDeclined` for too many to sum."""
    copies = greatest_weight(frame) * frame.height
    if copies >= MOST_COPIES:
        raise ColumnarDeclined
    return copies


def build_stream(columns: Columns) -> Stream:
    """Build a stream from the given rows. Raises `ColumnarDeclined` if their weights are too large to sum."""
    frame = columns.frame
    copies = frame.height if columns.append else copies_in(frame)
    known = ColumnsOfFrame(columns.schema, frame)
    return Stream.of_frame(columns.schema, columns.append, frame, known, copies)


def empty_stream(schema: Schema, append: bool) -> Stream:
    """Return an empty stream, for testing which operators can be lowered.

    Raises `NotLowered` for a type that stays in rows.
    """
    types = {str(at): carried_dtype(f.type) for at, f in enumerate(schema.fields)}
    if not append:
        types[WEIGHT] = pl.Int64()
    return Stream(schema, append, pl.LazyFrame(schema=types), tuple(columns_without_bounds(schema)), 0, 0)


@singledispatch
def apply_operator(operator: Operator, schema: Schema, append: bool, inputs: Sequence[Stream]) -> Stream:
    """Apply a row-by-row operator to a stream. Raises `NotLowered`.

    schema, append: of the output.
    """
    raise NotLowered("it works on rows")


@apply_operator.register(Filter)
def _filter(operator: Filter, schema: Schema, append: bool, inputs: Sequence[Stream]) -> Stream:
    (stream,) = inputs
    if not isinstance(operator.predicate, Expr):
        raise NotLowered("it calls a function on each row")
    lowered = stream.lower(operator.predicate)
    noted = stream.noting(lowered.fails)
    passes = lowered.value
    if noted.checked:
        passes = passes.fill_null(False) | pl.col(FAILS)
    return replace(noted, schema=schema, frame=noted.frame.filter(passes))


@apply_operator.register(Select)
def _select(operator: Select, schema: Schema, append: bool, inputs: Sequence[Stream]) -> Stream:
    (stream,) = inputs
    if all(isinstance(expr, Column) for _, expr in operator.columns):
        names = [cast("Column", expr).name for _, expr in operator.columns]
        taken = stream.taking(schema, append, [stream.schema.names.index(name) for name in names])
        if taken is not None:
            return taken
    lowered = [stream.lower(expr) for _, expr in operator.columns]
    if not any(reads_columns(expr) for _, expr in operator.columns):
        raise NotLowered("constants alone stay in rows")
    noted = stream.noting(*(one.fails for one in lowered))
    beside = [*([] if append else [WEIGHT]), *([FAILS] if noted.checked else [])]
    values = [one.value.alias(str(at)) for at, one in enumerate(lowered)]
    columns = tuple(LoweredExpression(pl.col(str(at)), one.bounds) for at, one in enumerate(lowered))
    frame = noted.frame.select(*values, *beside)
    return Stream(schema, append, frame, columns, stream.most, stream.copies, noted.checked)


@apply_operator.register(Union)
def _union(operator: Union, schema: Schema, append: bool, inputs: Sequence[Stream]) -> Stream:
    there = [stream for stream in inputs if stream.most]
    if len(there) == 1 and there[0].append == append:
        return replace(there[0], schema=schema)
    checked = any(stream.checked for stream in inputs)
    frames: list[pl.LazyFrame] = []
    for stream in inputs:
        frame = stream.frame
        if not append and stream.append:
            frame = frame.with_columns(pl.lit(1, dtype=pl.Int64).alias(WEIGHT))
        if checked and not stream.checked:
            frame = frame.with_columns(pl.lit(False).alias(FAILS))
        names = replace(stream, append=append, checked=checked).names
        frames.append(frame.select(names))
    alike = zip(*(stream.columns for stream in inputs), strict=True)
    columns = tuple(LoweredExpression(pl.col(str(at)), bounds_hull(each)) for at, each in enumerate(alike))
    most, copies = sum(stream.most for stream in inputs), sum(stream.copies for stream in inputs)
    return Stream(schema, append, pl.concat(frames), columns, most, copies, checked)


@apply_operator.register(Sink)
def _sink(operator: Sink, schema: Schema, append: bool, inputs: Sequence[Stream]) -> Stream:
    (stream,) = inputs
    check_plain(schema)
    return stream if append else sum_weights(stream)


@apply_operator.register(ExchangeSink)
def _exchange(operator: ExchangeSink, schema: Schema, append: bool, inputs: Sequence[Stream]) -> Stream:
    (stream,) = inputs
    check_plain(schema)
    if append:
        return stream
    if not stream.checked:
        stream = stream.kept()
        whole = stream.at_hand
        # Where no row takes back another, there are no fewer of them in the end.
        if whole is not None and bool((whole[WEIGHT].to_numpy() > 0).all()):
            return stream
    return sum_weights(stream)


def check_plain(schema: Schema) -> None:
    """Raise `NotLowered` where rows hold a value that can't be compared in columns."""
    for field in schema.fields:
        dtype_of(field.type)


@apply_operator.register(Explode)
def _explode(operator: Explode, schema: Schema, append: bool, inputs: Sequence[Stream]) -> Stream:
    (stream,) = inputs
    type = stream.schema.fields[operator.at].type
    if not isinstance(type, ListType):
        raise NotLowered("it takes values of any kind apart")
    if not stream.most:
        return empty_stream(schema, append)
    frame = stream.collected()
    lists = frame[str(operator.at)]
    counts = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    elements = lists.filter(pl.Series(counts > 0)).explode()
    copies = np.maximum(counts, 1) if operator.outer else counts
    of_row = np.repeat(np.arange(len(copies)), copies)
    numbered = pl.Series((np.arange(len(of_row)) - (np.cumsum(copies) - copies)[of_row]).astype(np.int32))
    if operator.outer:
        empty = np.flatnonzero(counts[of_row] == 0)
        places = np.cumsum(counts[of_row] != 0) - 1
        elements = values_at(elements, places, counts[of_row] != 0)
        numbered = numbered.scatter(empty, None)
    others = frame.drop(str(operator.at))
    columns = take(others, of_row).get_columns() if others.width else []
    columns[operator.at : operator.at] = [elements] if operator.position is None else [numbered, elements]
    named = [column.alias(str(at)) for at, column in enumerate(columns[: len(schema.fields)])]
    return build_stream(Columns(schema, append, pl.DataFrame([*named, *columns[len(schema.fields) :]])))


def each_copy(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows as often as their weights say, without these. None is negative."""
    copies = rows[WEIGHT].to_numpy()
    # Polars plans a query to drop a column.
    rows = select(rows, [name for name in rows.columns if name != WEIGHT])
    if (copies == 1).all():
        return rows
    return take(rows, np.repeat(np.arange(len(copies)), copies))


def are_distinct(rows: pl.DataFrame) -> bool:
    """Return whether no two rows are equal, as far as their hashes tell."""
    hashes = np.sort(codes_of(rows.get_columns(), exact=False))
    return not bool((hashes[1:] == hashes[:-1]).any())


def with_one_zero(stream: Stream) -> Stream:
    """Replace -0.0 with 0.0."""
    floats = [str(at) for at, field in enumerate(stream.schema.fields) if is_float(field.type)]
    made = [replace_negative_zero(pl.col(name)).alias(name) for name in floats]
    return replace(stream, frame=stream.frame.with_columns(*made)) if made else stream


def sum_weights(stream: Stream) -> Stream:
    """Consolidate rows: sum the weights of equal ones and drop weight 0, first seen first."""
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
