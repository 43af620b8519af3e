"""Watermarks in large ticks: a running maximum tells on-time rows from late ones.

The state is one tuple per operator, which stays a Python value. Times that are floats stay in rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.arrangement.batch import take
from headrace.columns.column_stream import ColumnStream, build_stream, decline_marked
from headrace.columns.columns import FAILS, ColumnarDeclined, Columns
from headrace.engine.columnar.pre_reduction import PreReduction, choose_reduction
from headrace.expr.code_runtime import EPOCH
from headrace.expr.polars_columns import NotLowered, dtype_of
from headrace.expr.types import DATE, FLOAT64, TIMESTAMP, Rows
from headrace.lowering.forms import ArrangedPlan, ArrangedState, ColumnarSite, register_arranged
from headrace.operators.event_time.late_rows import LateRows, OnTime
from headrace.operators.event_time.watermark import EARLIEST, Watermark, time_lower_bound

if TYPE_CHECKING:
    from headrace.columns.slot_forms import SlotForm
    from headrace.expr.types import DataType, Schema
    from headrace.lowering.forms import ArrangedOperator
    from headrace.lowering.slot import SlotMapping


MICROSECOND = timedelta(microseconds=1)
_LOWEST = -(2**63)


def ticks_of(span: Any) -> int:
    """Return a span or a time as columns hold it: microseconds or days, since 1970; or the number."""
    if isinstance(span, timedelta):
        return span // MICROSECOND
    if isinstance(span, datetime):
        return (span - EPOCH) // MICROSECOND
    return span if isinstance(span, int) else (span - EPOCH.date()).days


def time_of(ticks: int, type: DataType) -> Any:
    """Return the time that columns hold as a number."""
    if type == DATE:
        return EPOCH.date() + timedelta(ticks)
    return EPOCH + timedelta(0, 0, ticks) if type == TIMESTAMP else ticks


def ticks_in(series: pl.Series) -> Any:
    """Return a column of times, none of which is null, as numbers of 64 bits."""
    return series.to_physical().cast(pl.Int64).to_numpy()


@register_arranged(OnTime, LateRows)
@dataclass(frozen=True)
class PunctualityPlan(ArrangedPlan):
    """Plan for telling rows apart by the watermark. schema: of the output. at: place of the time."""

    node: int
    operator: OnTime | LateRows
    schema: Schema
    at: int
    type: DataType
    keeps_values = True
    acts_alone = True

    @classmethod
    def of(cls, site: ColumnarSite) -> PunctualityPlan:
        operator, schema = site.node.operator, site.schemas[0]
        assert isinstance(operator, OnTime | LateRows)
        at = schema.position(operator.clock.column)
        assert at is not None
        for field_ in schema.fields:
            dtype_of(field_.type)
        check_time(schema.fields[at].type)
        return cls(site.node.id, operator, site.node.schema, at, schema.fields[at].type)

    @property
    def slot(self) -> str:
        return f"{self.node}.clock"

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        return {}

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarPunctuality(self, state)


def check_time(type: DataType) -> None:
    """Raise `NotLowered` for times that stay in rows."""
    if type == FLOAT64:
        raise NotLowered("times that are floats stay in rows")


@dataclass(slots=True)
class ColumnarPunctuality:
    """Rows on time, or late ones, in large ticks."""

    plan: PunctualityPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the rows whose time is, or is not, below the watermark of the rows before them."""
        plan, frame = self.plan, inputs[0].collected()
        least = time_lower_bound(plan.type)
        top, mark, count = self.slots.value(plan.slot) or (least, least, 0)
        times = frame[str(plan.at)]
        late = np.zeros(0, np.bool_)
        if frame.height:
            late, top, mark = self._judged(times, top, mark)
        self.slots.prepare_value(plan.slot, (top, mark, count + int(late.sum())))
        wanted = late if isinstance(plan.operator, LateRows) else ~late
        made = frame if wanted.all() else take(frame, np.flatnonzero(wanted))
        return build_stream(Columns(plan.schema, True, made))

    def _judged(self, times: pl.Series, top: Any, mark: Any) -> tuple[Any, Any, Any]:
        """Return which rows are late, the greatest time, and the watermark. top, mark: those before."""
        plan, unusable = self.plan, None
        if times.null_count():
            unusable = times.is_null().to_numpy()
            if unusable.all():
                return unusable, top, mark
            # The least one rises above none.
            times = times.fill_null(times.min())
        own = ticks_in(times)
        begun = top != time_lower_bound(plan.type)
        running = np.maximum.accumulate(own)
        risen = running > ticks_of(top) if begun else np.ones(len(own), np.bool_)
        marks = self._marks(running)
        if unusable is not None and not begun:
            risen = np.maximum.accumulate(~unusable)
        late = own < marks
        if not risen.all():
            late[~risen] = own[~risen] < ticks_of(mark) if mark != time_lower_bound(plan.type) else False
        if unusable is not None:
            late |= unusable
        if risen[-1]:
            top, mark = time_of(int(running[-1]), plan.type), time_of(int(marks[-1]), plan.type)
        return late, top, mark

    def _marks(self, running: Any) -> Any:
        """Return the watermarks of greatest times. Raises `ColumnarDeclined` where 64 bits may not do."""
        clock = self.plan.operator.clock
        lateness, every = ticks_of(clock.lateness), 0 if clock.every is None else ticks_of(clock.every)
        if int(running[0]) - lateness - every <= _LOWEST:
            raise ColumnarDeclined
        passed = running - lateness
        if every:
            passed = passed - passed % every
        # Before the year 1, it is as low as it can be.
        return np.maximum(passed, ticks_of(EARLIEST)) if self.plan.type == TIMESTAMP else passed


@dataclass(frozen=True)
class GreatestTime(PreReduction):
    """Reduction to one row with the greatest time, all that a watermark reads."""

    at: int
    schema: Schema

    def reduce_lazily(self, stream: ColumnStream) -> pl.LazyFrame:
        marks = [pl.col(FAILS).any()] * stream.checked
        return stream.frame.select(pl.col(str(self.at)).max(), pl.len().alias("rows"), *marks)

    def reduce_rows(self, stream: ColumnStream) -> Rows:
        whole = stream.at_hand
        if whole is None:
            frame = self.reduce_lazily(stream).collect()
            if stream.checked:
                decline_marked(frame)
            rows, top = frame["rows"][0], frame[str(self.at)]
        else:
            rows, times = whole.height, whole[str(self.at)]
            top = pl.Series([times.max()], dtype=times.dtype)
        if not rows:
            return []
        time = None if top[0] is None else time_of(int(ticks_in(top)[0]), self.schema.fields[self.at].type)
        return [tuple(time if at == self.at else None for at in range(len(self.schema.fields)))]


@choose_reduction.register(Watermark)
def _watermark(operator: Watermark, schema: Schema, append: bool) -> PreReduction:
    at = schema.position(operator.clock.column)
    assert at is not None
    check_time(schema.fields[at].type)
    return GreatestTime(at, schema)
