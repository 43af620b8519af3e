"""Reduction of the rows of grid windows in a large tick, to one row per group and slice.

See `penstock.engine.window_slices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl

from penstock.engine.columnar.clocks import check_time, ticks_of
from penstock.engine.columnar.column_types import NotLowered, dtype_of
from penstock.engine.columnar.functions.time import count_of, moment
from penstock.engine.columnar.lowered_expression import LoweredExpression, either_condition
from penstock.engine.columnar.pre_reduction import GroupedRows, choose_reduction, group_parts
from penstock.engine.partial_operators import PartialWindow
from penstock.engine.window_runtime import window_origin
from penstock.expr.check import check
from penstock.expr.types import TIMESTAMP
from penstock.flow.event_time_windows import Grid
from penstock.flow.operators.window import Window

if TYPE_CHECKING:
    from penstock.engine.columnar.pre_reduction import PreReduction
    from penstock.engine.columnar.stream import Stream
    from penstock.expr.tree import Expr
    from penstock.expr.types import DataType, Schema

_LONGEST = timedelta(days=10_000) // timedelta(microseconds=1)
"""Length of windows up to which the sums of times and spans stay in 64 bits."""


@dataclass(frozen=True)
class SlicedRows(GroupedRows):
    """Reduction to one row per group and slice: key, start of the slice, row count, partial values."""

    time: Expr
    type: DataType
    grid: Grid

    def lowered_keys(self, stream: Stream) -> list[LoweredExpression]:
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
            made = moment(start, TIMESTAMP)
            return LoweredExpression(made.value, None, either_condition(time.fails, made.fails))
        low = -(2**63) + 2 * _LONGEST
        return LoweredExpression(
            start, (-(2**63), 2**63 - 1), either_condition(time.fails, (count < low) | (count > -low))
        )


@choose_reduction.register(PartialWindow)
def _partial_window(operator: PartialWindow, schema: Schema, append: bool) -> PreReduction:
    return choose_reduction(operator.of, schema, append)


@choose_reduction.register(Window)
def _window(operator: Window, schema: Schema, append: bool) -> PreReduction:
    grid = operator.shape
    if not isinstance(grid, Grid):
        raise NotLowered("sessions work on rows")
    type_ = check(operator.time, schema).type
    check_time(type_)
    if max(ticks_of(grid.size), abs(ticks_of(grid.offset or 0))) > _LONGEST:
        raise NotLowered("a window of that length has no columnar form")
    keys = tuple(expr for _, expr in operator.keys)
    types = tuple(check(expr, schema).type for expr in keys)
    for key in types:
        dtype_of(key)
    parts = group_parts(operator.aggregations, schema, append)
    return SlicedRows(keys, (*types, type_), parts, operator.time, type_, grid)
