"""Watermarks and temporal filters in large ticks.

A running maximum tells on-time rows from late ones. The state is one tuple per operator, which stays a Python
value. Times that are floats stay in rows.

Rows whose moment is to come lie in an arrangement, with their moments. As the clock rises, a comparison of a
column finds the rows that are due. For the small ticks that follow, one entry of the calendar stands for all
rows of the arrangement: it is there at the least of their moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from headrace.arrangement.batch import (
    Layout,
    SortedBatch,
    batch_of,
    bounded,
    concat_frames,
    merged,
    negated,
    select,
    take,
)
from headrace.columns.column_stream import (
    ColumnStream,
    build_stream,
    decline_marked,
    empty_stream,
    with_one_zero,
)
from headrace.columns.columns import FAILS, WEIGHT, ColumnarDeclined, Columns, rows_to_columns
from headrace.columns.expressions import reads_columns
from headrace.columns.slot_forms import CountForm
from headrace.expr.check import check
from headrace.expr.code_runtime import EPOCH
from headrace.expr.polars_columns import NotLowered, dtype_of, from_series
from headrace.expr.types import DATE, FLOAT64, TIMESTAMP, Rows
from headrace.lowering.forms import (
    ArrangedPlan,
    ArrangedState,
    ColumnarContext,
    PreReduction,
    choose_reduction,
    register_arranged,
)
from headrace.operators.event_time.due_calendar import ARRANGED_ROWS, CHUNK, pop_due, schedule_entry
from headrace.operators.event_time.late_rows import LateRows, OnTime
from headrace.operators.event_time.temporal_filter import TemporalFilter
from headrace.operators.event_time.watermark import EARLIEST, Watermark, time_lower_bound
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from headrace.arrangement.spine import Spine
    from headrace.columns.slot_forms import SlotForm
    from headrace.expr.types import DataType, Schema
    from headrace.lowering.forms import ArrangedOperator
    from headrace.lowering.slot import SlotMapping

MICROSECOND = timedelta(microseconds=1)
_LOWEST = -(2**63)


def ticks_of(span: Any) -> int:
    """Convert a span or a time to its form in columns: microseconds or days (since 1970), or the number."""
    if isinstance(span, timedelta):
        return span // MICROSECOND
    if isinstance(span, datetime):
        return (span - EPOCH) // MICROSECOND
    return span if isinstance(span, int) else (span - EPOCH.date()).days


def time_of(ticks: int, type: DataType) -> Any:
    """Convert a time from its form in columns, a number."""
    if type == DATE:
        return EPOCH.date() + timedelta(ticks)
    return EPOCH + timedelta(0, 0, ticks) if type == TIMESTAMP else ticks


def ticks_in(series: pl.Series) -> Any:
    """Convert a non-null column of times to 64-bit integers."""
    return series.to_physical().cast(pl.Int64).to_numpy()


@register_arranged(OnTime, LateRows)
@dataclass(frozen=True)
class LateRowsPlan(ArrangedPlan):
    """Plan for splitting rows by the watermark. schema: of the output. at: position of the time."""

    node: int
    operator: OnTime | LateRows
    schema: Schema
    at: int
    type: DataType
    keeps_values = True
    acts_alone = True

    @classmethod
    def of(cls, context: ColumnarContext) -> LateRowsPlan:
        operator, schema = context.node.operator, context.schemas[0]
        assert isinstance(operator, OnTime | LateRows)
        at = schema.position(operator.clock.column)
        assert at is not None
        for field_ in schema.fields:
            dtype_of(field_.type)
        check_time(schema.fields[at].type)
        return cls(context.node.id, operator, context.node.schema, at, schema.fields[at].type)

    @property
    def slot(self) -> str:
        return f"{self.node}.clock"

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        return {}

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarLateRows(self, state)


def check_time(type: DataType) -> None:
    """Raise `NotLowered` for times without a columnar form."""
    if type == FLOAT64:
        raise NotLowered("times that are floats stay in rows")


@dataclass(slots=True)
class ColumnarLateRows:
    """Rows on time, or late ones, in large ticks."""

    plan: LateRowsPlan
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
        """Return which rows are late, the greatest time, and the watermark. top, mark: the previous ones."""
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
        """Return the watermarks for greatest times. Raises `ColumnarDeclined` if 64 bits may overflow."""
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


MOMENT = "moment"
"""Column with a row's moment, as columns hold times."""


@register_arranged(TemporalFilter)
@dataclass(frozen=True)
class TemporalPlan(ArrangedPlan):
    """Plan for a temporal filter over frames. append: of the input."""

    acts_alone = True
    node: int
    operator: TemporalFilter
    schema: Schema
    append: bool

    @classmethod
    def of(cls, context: ColumnarContext) -> TemporalPlan:
        node, operator = context.node, context.node.operator
        assert isinstance(operator, TemporalFilter)
        if not reads_columns(operator.moment):
            raise NotLowered("a constant moment stays in rows")
        plan = cls(node.id, operator, node.schema, context.appends[0])
        if not plan.layout.keys:
            raise NotLowered("rows without columns stay in rows")
        empty_stream(node.schema, False).lower(operator.moment)
        return plan

    @property
    def slot(self) -> str:
        return self.beside("held")

    def beside(self, what: str) -> str:
        """Return the name of one of the slots."""
        return f"{self.node}.{what}"

    @property
    def type(self) -> DataType:
        return check(self.operator.moment, self.schema).type

    @cached_property
    def layout(self) -> Layout:
        rows = {str(at): dtype_of(field.type) for at, field in enumerate(self.schema.fields)}
        nullable = any(field.nullable for field in self.schema.fields)
        return Layout({**rows, MOMENT: pl.Int64(), WEIGHT: pl.Int64()}, tuple(rows), (WEIGHT,), nullable)

    def with_moments(self, stream: ColumnStream) -> pl.DataFrame:
        """Return the rows with a non-null moment, adding moments and weights. Raises `ColumnarDeclined`."""
        moment = stream.lower(self.operator.moment)
        noted = stream.noting(moment.fails)
        columns = [moment.value.to_physical().cast(pl.Int64).alias(MOMENT)]
        if stream.append:
            columns.append(pl.lit(1, pl.Int64()).alias(WEIGHT))
        known = pl.col(MOMENT).is_not_null()
        if noted.checked:
            known |= pl.col(FAILS)
        return replace(noted, frame=noted.frame.with_columns(columns).filter(known)).collected()

    def reached(self, moments: Any, now: Any) -> Any:
        """Return which moments the clock has reached."""
        if now is None:
            return np.zeros(len(moments), np.bool_)
        ticks = ticks_of(now)
        return moments <= ticks if self.operator.presence.turns_at else moments < ticks

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        types = tuple(field.type for field in self.schema.fields)
        return {self.slot: HeldForm(self.layout, types, False, (), self)}

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarTemporalFilter(self, state)


@dataclass(frozen=True)
class HeldForm(CountForm):
    """Form of the slot of rows with a future moment: row -> number of copies."""

    plan: TemporalPlan

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        rows = [(*row, copies) for row, copies in entries.items() if copies]
        return self.plan.with_moments(build_stream(rows_to_columns(self.plan.schema, False, rows)))

    def reached(self, spine: Spine, now: Any) -> tuple[list[Any], Any]:
        """Return the rows whose moment the clock has reached, and the next moment."""
        plan = self.plan
        due = _due(plan, spine.batches, None, now)
        columns = zip(plan.schema.fields, (due.frame[name] for name in plan.layout.keys), strict=True)
        rows = zip(*(from_series(field.type, series) for field, series in columns), strict=True)
        return list(dict.fromkeys(rows)), _next_moment(plan, spine.batches, now)


def _due(plan: TemporalPlan, batches: Sequence[SortedBatch], before: Any, now: Any) -> SortedBatch:
    """Return the rows that are due. before: clock time up to which rows were already removed."""
    layout = plan.layout
    due: list[SortedBatch] = []
    for batch in batches:
        moments = batch.numbers(MOMENT).cast(pl.Int64).to_numpy()
        at = np.flatnonzero(plan.reached(moments, now) & ~plan.reached(moments, before))
        if len(at):
            due.append(bounded(layout, batch.codes[at], batch.take(at)))
    return merged(layout, due) if due else batch_of(layout, pl.DataFrame(schema=layout.types))


def _next_moment(plan: TemporalPlan, batches: Sequence[SortedBatch], now: Any) -> Any:
    """Return the earliest moment that the clock has not reached; None if no row is pending."""
    moments = [batch.numbers(MOMENT).cast(pl.Int64).to_numpy() for batch in batches]
    later = [int(each.min()) for of in moments if len(each := of[~plan.reached(of, now)])]
    return time_of(min(later), plan.type) if later else None


@dataclass(slots=True)
class ColumnarTemporalFilter:
    """Temporal filter in large ticks. slots: the rows, and beside them the clock and the calendar."""

    plan: TemporalPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the rows inserted or retracted at the clock's new time."""
        plan, layout = self.plan, self.plan.layout
        before = self.slots.value(plan.beside("now"))
        now = self._now(inputs[1].collected(), before)
        rows = plan.with_moments(with_one_zero(inputs[0]))
        reached = plan.reached(rows[MOMENT].to_numpy(), now)
        at_once, pending = take(rows, np.flatnonzero(reached)), take(rows, np.flatnonzero(~reached))
        due = _due(plan, self.slots.spine(plan.slot).batches, before, now)
        gone = negated(layout, due.frame)
        self.slots.prepare(plan.slot, concat_frames([select(pending, layout.types), gone]))
        self.slots.prepare_effect("clock", partial(self._turn, before, now))
        names = [*layout.keys, WEIGHT]
        parts = (at_once, due.frame) if plan.operator.presence.begins else (pending, gone)
        changes = concat_frames([select(part, names) for part in parts])
        return build_stream(Columns(plan.schema, False, changes))

    def _now(self, clock: pl.DataFrame, before: Any) -> Any:
        """Return the clock's time after a tick."""
        times = clock["0"].drop_nulls()
        if not len(times):
            return before
        latest = time_of(int(ticks_in(times).max()), self.plan.type)
        return latest if before is None or latest > before else before

    def _turn(self, before: Any, now: Any) -> None:
        """Advance the clock, and schedule the next moment of the rows in the calendar."""
        plan, slots = self.plan, self.slots
        calendar, counts, due = (slots.slot(plan.beside(what)) for what in ("calendar", "counts", "due"))
        if now is not None:
            if now != before:
                slots.slot(plan.beside("now"))[()] = now
            for _ in pop_due(calendar, counts, due, now, before=not plan.operator.presence.turns_at):
                pass
        later = _next_moment(plan, slots.spine(plan.slot).batches, now)
        if later is not None:
            last = due.get((later, ((counts.get(later) or 1) - 1) // CHUNK))
            if last is None or ARRANGED_ROWS not in last:
                schedule_entry(calendar, counts, due, later, ARRANGED_ROWS)
