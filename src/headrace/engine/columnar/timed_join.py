"""Joins with state expiry in large ticks: both sides lie in arrangements by key and bucket of time.

What the watermark has passed is taken back from the arrangement bucket by bucket. For the small ticks that
follow, the calendar holds the number of a bucket in place of the places in it: deleting that number from the
slot drops the whole bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.arrangement.batch import Batch, Layout, batch_of, bounded, merged, negated, stacked, take
from headrace.arrangement.spine import Probe, together
from headrace.columns.column_stream import ColumnStream, build_stream, empty_stream
from headrace.columns.columns import ColumnarDeclined, Columns
from headrace.columns.slot_forms import SlotForm, Values, consolidated
from headrace.engine.columnar.clocks import check_time, ticks_in, ticks_of
from headrace.engine.columnar.join import JoinPlan, JoinSideForm
from headrace.expr.types import INT64
from headrace.lowering.forms import ArrangedPlan, ArrangedState, ColumnarSite, register_arranged
from headrace.operators.event_time.due_calendar import pop_due, schedule_entry
from headrace.operators.join.interval_join import JoinOnTime
from headrace.operators.join.operator import SIDES

if TYPE_CHECKING:
    from headrace.expr.types import DataType
    from headrace.lowering.forms import ArrangedOperator
    from headrace.lowering.slot import SlotMapping

BUCKET = "bucket"
"""Column with the number of a row's bucket of time, the last part of its key."""

_ROOM = 2**62


@register_arranged(JoinOnTime)
@dataclass(frozen=True)
class TimedJoinPlan(ArrangedPlan):
    """Plan for a join with state expiry. join: of the join. at: places of the times, of `type`."""

    acts_alone = True
    pairs_rows = True
    node: int
    join: JoinPlan
    operator: JoinOnTime
    at: tuple[int, int]
    type: DataType

    @classmethod
    def of(cls, site: ColumnarSite) -> TimedJoinPlan:
        node, operator = site.node, site.node.operator
        assert isinstance(operator, JoinOnTime)
        inner = replace(node, operator=operator.join, inputs=node.inputs[:2])
        join = JoinPlan.of(ColumnarSite(inner, site.schemas[:2], site.appends[:2], site.append))
        times = zip(join.schemas, operator.times, strict=True)
        one, other = (schema.names.index(time) for schema, time in times)
        type_ = join.schemas[0].fields[one].type
        check_time(type_)
        return cls(node.id, join, operator, (one, other), type_)

    def slot(self, port: int, what: str = "") -> str:
        """Return the name of a side's slot, or of one beside it."""
        return f"{self.node}.{SIDES[port]}{what}"

    @cached_property
    def layouts(self) -> tuple[Layout, Layout]:
        """Layouts of the sides."""
        one, other = (
            replace(layout, types={**layout.types, BUCKET: pl.Int64()}, keys=(*layout.keys, BUCKET))
            for layout in map(self.join.layout, (0, 1))
        )
        return one, other

    def spans(self, port: int) -> tuple[int, int]:
        """Return the least and greatest difference from a side's times to those of the other."""
        low, high = ticks_of(self.operator.low), ticks_of(self.operator.high)
        return (low, high) if port == 0 else (-high, -low)

    def buckets(self, port: int, frame: pl.DataFrame, after: int = 0) -> Any:
        """Return the numbers of the buckets of a side's times, or of times after them.

        Raises `ColumnarDeclined` where 64 bits may not do.
        """
        times = ticks_in(frame[str(self.at[port])])
        if len(times) and max(-int(times.min()), int(times.max())) + abs(after) >= _ROOM:
            raise ColumnarDeclined
        return (times + after) // ticks_of(self.operator.width)

    def with_buckets(self, port: int, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the numbers of the rows' buckets."""
        return frame.hstack([pl.Series(BUCKET, self.buckets(port, frame))])

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        return {self.slot(port): self._side_form(port) for port in (0, 1)}

    def _side_form(self, port: int) -> TimedSideForm:
        read = tuple((str(at), field.type) for at, field in enumerate(self.join.schemas[port].fields))
        keys = (*self.join.key_types(port), INT64)
        return TimedSideForm(self.layouts[port], keys, len(keys) == 2, read, self.join, port, True, self)

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarTimedJoin(self, state)


@dataclass(frozen=True)
class TimedSideForm(JoinSideForm):
    """Form of a side's slot: (key, bucket) -> list of rows."""

    timed: TimedJoinPlan
    of_pair = True
    group = BUCKET

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        if any(row[-1] < 0 for row in found):
            return [row for row, count in consolidated(found).items() for _ in range(count)] or None
        # Rows that are only added keep their -0.0.
        return [row[:-1] for row in found for _ in range(row[-1])] or None

    def weighted(self, rows: list[Values]) -> pl.DataFrame:
        return self.timed.with_buckets(self.port, super().weighted(rows))


@dataclass(frozen=True)
class Expiry:
    """Buckets of a side that a tick closes.

    open_from: the first bucket that was open before. until: the first one that is afterwards. risen: whether
    the watermark of the other side has risen. new: buckets with new rows.
    """

    open_from: float
    until: float
    risen: bool
    new: Sequence[int]


class ColumnarTimedJoin:
    """Join with state expiry in large ticks. slots: of the sides, in order; their calendars lie beside."""

    def __init__(self, plan: TimedJoinPlan, slots: ArrangedState) -> None:
        self.plan = plan
        self.slots = slots

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the pairs of new rows. Raises `ColumnarDeclined`."""
        plan, join = self.plan, self.plan.join
        news = [
            plan.with_buckets(port, join.add_keys(port, side).collected())
            for port, side in enumerate(inputs[:2])
        ]
        left, right = (self.slots.spine(plan.slot(port)) for port in (0, 1))
        new = [batch_of(layout, frame) for layout, frame in zip(plan.layouts, news, strict=True)]
        pairs = [
            self._pairs(news[0], right.batches, 0),
            self._pairs(news[1], (*left.batches, new[0]), 1),
        ]
        for port, spine in enumerate((left, right)):
            expiry = self._expiry(port, inputs[3 - port], news[port])
            left_, taken_back = _without(spine.layout, spine.batches, expiry)
            changes = [_open(spine.layout, new[port], expiry), *taken_back]
            batch = merged(spine.layout, changes)
            self.slots.prepare_batch(plan.slot(port), batch, left_)
            self.slots.prepare_effect(port, partial(self._expire, port, expiry))
        made = [frame for frame in pairs if frame is not None]
        frame = stacked(made) if made else empty_stream(join.pairs, True).frame.collect()
        return join.output(build_stream(Columns(join.pairs, True, frame)))

    def _pairs(self, asking: pl.DataFrame, held: Sequence[Batch], port: int) -> pl.DataFrame | None:
        """Pair new rows of a side, in their order, with what is held of the other."""
        plan, join = self.plan, self.plan.join
        if not asking.height or not any(map(len, held)):
            return None
        low, high = plan.spans(port)
        first, last = plan.buckets(port, asking, low), plan.buckets(port, asking, high)
        counts = last - first + 1
        if int(counts.max()) > _MOST_BUCKETS:
            raise ColumnarDeclined
        rows = np.repeat(np.arange(asking.height), counts)
        begins = np.cumsum(counts) - counts
        near = np.arange(len(rows)) - np.repeat(begins - first, counts)
        layout = plan.layouts[1 - port]
        every = len(rows) == asking.height
        keys = [asking[name] for name in join.key_names(port)]
        if not every:
            keys = take(pl.DataFrame(keys), rows).get_columns()
        probe = Probe.of(layout, [*keys, pl.Series(BUCKET, near)])
        found = together(layout, [probe.find(batch) for batch in held])
        if not len(found.asked):
            return None
        order = np.argsort(found.asked, kind="stable")
        own, other = take(asking, rows[found.asked[order]]), take(found.rows, order)
        return join.pair_rows(own, other) if port == 0 else join.pair_rows(other, own)

    def _expiry(self, port: int, marks: ColumnStream, news: pl.DataFrame) -> Expiry:
        """Return what a side forgets, whose partners have a watermark."""
        plan, risen = self.plan, marks.collected()
        # The first bucket that the watermark of the other side has not passed.
        passed = self.slots.value(plan.slot(port, "_passed"))
        open_from: float = -inf if passed is None else passed
        until = open_from
        if risen.height:
            mark = risen["0"][-1]
            after = plan.spans(port)[1]
            until = inf
            if mark is not None:
                until = (ticks_in(risen["0"].tail(1)).item() - after) // ticks_of(plan.operator.width)
        buckets = np.unique(news[BUCKET].to_numpy())
        new = buckets[(buckets >= open_from) & (buckets >= until)].tolist()
        return Expiry(open_from, until, bool(risen.height), new)

    def _expire(self, port: int, expiry: Expiry) -> None:
        """Have the calendar of a side hold its new buckets, and not those that have passed."""
        name, slot = self.plan.slot, self.slots.slot
        calendar = [slot(name(port, what)) for what in ("_calendar", "_counts", "_due")]
        for number in expiry.new:
            schedule_entry(calendar[0], calendar[1], calendar[2], number + 1, number)
        if expiry.risen:
            slot(name(port, "_passed"))[()] = expiry.until
            until = None if expiry.until == inf else expiry.until
            for _ in pop_due(calendar[0], calendar[1], calendar[2], until):
                pass


_MOST_BUCKETS = 1_000
"""Buckets in which a row may have partners; with more it is made so many rows that rows are better."""


def _open(layout: Layout, batch: Batch, expiry: Expiry) -> Batch:
    """Return the rows that are kept."""
    buckets = batch.frame[BUCKET].to_numpy()
    return _chosen(layout, batch, (buckets >= expiry.open_from) & (buckets >= expiry.until))


def _without(layout: Layout, batches: Sequence[Batch], expiry: Expiry) -> tuple[list[Batch], list[Batch]]:
    """Return batches without most of the rows that are forgotten, and what takes back the others."""
    left: list[Batch] = []
    taken_back: list[Batch] = []
    for batch in batches:
        if expiry.until > expiry.open_from:
            buckets = batch.frame[BUCKET].to_numpy()
            passed = buckets < expiry.until
            if 2 * np.count_nonzero(passed) >= len(batch):
                batch = _chosen(layout, batch, ~passed)
            else:
                passed &= buckets >= expiry.open_from
                if passed.any():
                    gone = _chosen(layout, batch, passed)
                    taken_back.append(Batch(gone.codes, negated(layout, gone.frame), gone.bounds))
        left.append(batch)
    return left, taken_back


def _chosen(layout: Layout, batch: Batch, wanted: Any) -> Batch:
    """Return some rows of a batch."""
    if wanted.all():
        return batch
    at = np.flatnonzero(wanted)
    return bounded(layout, batch.codes[at], take(batch.frame, at))
