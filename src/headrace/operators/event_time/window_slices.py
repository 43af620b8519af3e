"""Reduction of the rows of windows in a large tick: to one per group and slice, or per run of a session.

See `headrace.operators.event_time.due_calendar` and `headrace.operators.event_time.session_windows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.expr.check import check
from headrace.expr.functions.integer_columns import count_of, moment
from headrace.expr.polars_columns import LoweredExpression, NotLowered, dtype_of, either_condition
from headrace.expr.types import TIMESTAMP
from headrace.lowering.forms import choose_reduction, reduced_step_for
from headrace.lowering.row_code import RowCode, tuple_source
from headrace.operators.aggregate.partial_forms import GroupedRows, group_parts, merge_parts
from headrace.operators.event_time.columnar_clocks import check_time, ticks_of
from headrace.operators.event_time.due_calendar import window_origin
from headrace.operators.event_time.session_windows import SessionStep
from headrace.operators.event_time.watermark import EARLIEST, LATEST
from headrace.operators.event_time.window import (
    ClosedWindowStep,
    Emit,
    KeptGridStep,
    UpdatedWindowStep,
    Window,
    WindowStep,
)
from headrace.operators.time_spans import Grid
from headrace.requirements import pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.tree import Expr
    from headrace.expr.types import DataType, Schema
    from headrace.graph.node import Node
    from headrace.lowering.forms import PreReduction
    from headrace.lowering.step import RowStep
    from headrace.lowering.step_writer import StepWriter


_LONGEST = timedelta(days=10_000) // timedelta(microseconds=1)
"""Length of windows up to which the sums of times and spans stay in 64 bits."""


@dataclass(frozen=True)
class SlicedRows(GroupedRows):
    """Reduction to one row per group and slice: key, start of the slice, row count, partial values."""

    time: Expr
    type: DataType
    grid: Grid

    def lowered_keys(self, stream: ColumnStream) -> list[LoweredExpression]:
        return [*super().lowered_keys(stream), self._start(stream.lower(self.time))]

    def _start(self, time: LoweredExpression) -> LoweredExpression:
        """Return the start of the slice of a time, as `slice_assigner` says."""
        every, border = ticks_of(self.grid.every), ticks_of(self.grid.size % self.grid.every)  # type: ignore[operator]
        count = count_of(time.value)
        since = (count - ticks_of(window_origin(self.grid, self.type))) % every
        start = count - since
        if border:
            start += pl.when(since < border).then(0).otherwise(border)
        if self.type == TIMESTAMP:
            # A window of a row that does not fit fails with the row.
            size = ticks_of(self.grid.size)
            outside = (count < ticks_of(EARLIEST) + size) | (count > ticks_of(LATEST) - size)
            return LoweredExpression(
                moment(start, TIMESTAMP).value, None, either_condition(time.fails, outside)
            )
        low = -(2**63) + 2 * _LONGEST
        return LoweredExpression(
            start, (-(2**63), 2**63 - 1), either_condition(time.fails, (count < low) | (count > -low))
        )


@dataclass(frozen=True)
class SessionRows(GroupedRows):
    """Reduction to one row per group and run of rows less than the gap apart.

    It has the key, the first and the last time, the row count and partial values.
    """

    time: Expr
    type: DataType
    gap: int

    def lowered_keys(self, stream: ColumnStream) -> list[LoweredExpression]:
        time = stream.lower(self.time)
        count = count_of(time.value)
        # Neither the difference of two times nor the end of a session may leave what there is.
        least, most = ticks_of(EARLIEST), ticks_of(LATEST) - self.gap
        if self.type != TIMESTAMP:
            least, most = -(2**62), 2**62
        fails = either_condition(time.fails, (count < least) | (count > most))
        timed = LoweredExpression(time.value, time.bounds, fails)
        return [*super().lowered_keys(stream), timed, timed]

    def gathered(self, frame: pl.LazyFrame, named: Sequence[pl.Expr]) -> pl.LazyFrame:
        *own, first, last = (f"g{at}" for at in range(len(self.key_types)))
        times = count_of(pl.col(first))
        apart = (times - times.shift(1)) >= self.gap
        runs = (apart.over(own) if own else apart).fill_null(False).cum_sum()
        by_time = frame.with_row_index(_ROW).sort(first, maintain_order=True)
        by_time = by_time.with_columns((runs.over(own) if own else runs).alias(_RUN))
        keys = [pl.col(name).alias(f"k{at}") for at, name in enumerate(own)]
        spans = (pl.col(first).min(), pl.col(last).max())
        spanned = [span.alias(f"k{len(own) + at}") for at, span in enumerate(spans)]
        made = by_time.group_by(*keys, _RUN).agg(*spanned, *named, pl.col(_ROW).min())
        return made.sort(_ROW).drop(_ROW, _RUN)


_ROW, _RUN = "#", "@"


@choose_reduction.register(Window)
def _window(operator: Window, schema: Schema, append: bool) -> PreReduction:
    shape = operator.shape
    type_ = check(operator.time, schema).type
    check_time(type_)
    spans = (shape.size, shape.offset or 0) if isinstance(shape, Grid) else (shape.gap,)
    if any(abs(ticks_of(span)) > _LONGEST for span in spans):
        raise NotLowered("a window of that length has no columnar form")
    keys = tuple(expr for _, expr in operator.keys)
    types = tuple(check(expr, schema).type for expr in keys)
    for key in types:
        dtype_of(key)
    parts = group_parts(operator.aggregations, schema, append)
    if isinstance(shape, Grid):
        return SlicedRows(keys, (*types, type_), parts, operator.time, type_, shape)
    return SessionRows(keys, (*types, type_, type_), parts, operator.time, type_, ticks_of(shape.gap))


class ReducedWindowStep(WindowStep):
    """Windows over reduced input: key, times, row count and partial values."""

    groups: GroupedRows

    def consume_buffer(self, port: int) -> None:
        if port:
            super().consume_buffer(port)
            return
        writer = self.writer
        names = tuple(writer.fresh("part") for _ in self.groups.types)
        width, timed = len(self.groups.keys), len(self.groups.key_types)
        with self.code.block(f"for {', '.join(names)}, in {writer.buffer(self.node.inputs[0])}:"):
            key = writer.fresh("key")
            keys = names[:width]
            self.code.line(f"{key} = {keys[0] if width == 1 else tuple_source(keys) if keys else '()'}")
            self.take_reduced(key, names[width:timed], names[timed:])

    def take_reduced(self, key: str, times: Sequence[str], values: Sequence[str]) -> None:
        """Write code that adds a reduced row."""
        raise NotImplementedError


class ReducedSessionStep(ReducedWindowStep, SessionStep):
    """Sessions over reduced input, with the first and the last time of each run of rows."""

    def take_reduced(self, key: str, times: Sequence[str], values: Sequence[str]) -> None:
        merge_parts(self.writer, self.groups, self.group, self.enter("enter_span", key, *times), values)


class ReducedGridStep(ReducedWindowStep, KeptGridStep):
    """Grid windows over reduced input, whose time is the start of a slice."""

    def take_reduced(self, key: str, times: Sequence[str], values: Sequence[str]) -> None:
        self.find_slice(times[0])
        self.fold(key, times[0], RowCode(tuple(values)))

    def add(self, group: str, row: RowCode) -> None:
        merge_parts(self.writer, self.groups, self.group, group, row.columns)


class ReducedClosedWindowStep(ReducedGridStep, ClosedWindowStep):
    """Windows over reduced input that are emitted when they close."""


class ReducedUpdatedWindowStep(ReducedGridStep, UpdatedWindowStep):
    """Windows over reduced input that are emitted as they change."""


@reduced_step_for.register(Window)
def _reduced_step(operator: Window, reduction: PreReduction, node: Node, writer: StepWriter) -> RowStep:
    assert isinstance(reduction, GroupedRows)
    step = _reduced_window(node, writer, operator)
    step.groups = reduction
    return step


def _reduced_window(node: Node, writer: StepWriter, operator: Window) -> ReducedWindowStep:
    shape = operator.shape
    if not isinstance(shape, Grid):
        return ReducedSessionStep(node, writer, operator, shape)
    step = ReducedClosedWindowStep if operator.emit is Emit.CLOSE else ReducedUpdatedWindowStep
    return step(node, writer, operator, shape)
