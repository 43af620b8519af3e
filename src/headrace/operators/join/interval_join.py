"""Interval join: a join that bounds the time between the rows of a pair, so that old rows can be dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.arrangement.batch import (
    Layout,
    SortedBatch,
    batch_of,
    bounded,
    concat_frames,
    merged,
    negated,
    take,
)
from headrace.arrangement.spine import Probe, together
from headrace.columns.column_stream import ColumnStream, build_stream, empty_stream
from headrace.columns.columns import ColumnarDeclined, Columns
from headrace.columns.slot_forms import SlotForm, Values, consolidated
from headrace.expr.constructors import col, left, right
from headrace.expr.tree import Column
from headrace.expr.types import INT64
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import (
    EVENT_TIME,
    EverywhereSlot,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    calendar_slots,
    place_by_key,
)
from headrace.lowering.forms import (
    ArrangedPlan,
    ArrangedState,
    ColumnarContext,
    lower_operator,
    register_arranged,
)
from headrace.lowering.reference import Examples
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import RowStep, register_step
from headrace.operators.event_time.columnar_clocks import check_time, ticks_in, ticks_of
from headrace.operators.event_time.due_calendar import (
    ExpiryCalendar,
    bucket_assigner,
    pop_due,
    schedule_entry,
)
from headrace.operators.event_time.watermark import time_lower_bound
from headrace.operators.join.columnar_join import JoinPlan, JoinSideForm
from headrace.operators.join.join import SIDES, lower_join
from headrace.operators.join.steps import JoinConditionWriter
from headrace.operators.time_spans import shown_span
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.expr.tree import Expr
    from headrace.expr.types import DataType, Field, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import ArrangedOperator, BatchContext
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.join.join import Join
    from headrace.operators.time_spans import Span


@dataclass(frozen=True, slots=True)
class IntervalJoin(Operator):
    """Inner join whose condition bounds the time difference of a pair.

    join:  the join, whose condition implies `low <= right time - left time <= high`.
    times: the time columns of both sides. width: length of the time intervals in which rows are kept and
           forgotten together.

    The output equals that of the join. A left row is forgotten when the right watermark is `high` after its
    time, a right row when the left watermark is `low` before its own.
    A tick without rows emits nothing.

    >>> from headrace import col, left, right
    >>> from headrace.testing import show
    >>> def soon(a, b):
    ...     asked, given = (s.watermark(col.value, lateness=5) for s in (a, b))
    ...     after = (right.value >= left.value) & (right.value <= left.value + 2)
    ...     return asked.join(given, on=(left.value % 2 == right.value % 2) & after, suffix="_b")
    >>> show(soon, a=[1, 4], b=[2, 3, 4])
    + (value=1, value_b=3)
    + (value=4, value_b=4)
    """

    described_as: ClassVar[str] = "JoinOnTime"
    kind: ClassVar[str] = "join"
    plan_name: ClassVar[str | None] = "join_on_time"
    examples: ClassVar[Examples] = {
        "of times": lambda x, y: x.watermark(col.a, lateness=1).join(
            x.watermark(col.a, lateness=1),
            on=(left.b == right.b) & right.a.between(left.a, left.a + 1),
            suffix="_y",
        )
    }
    join: Join
    times: tuple[str, str]
    low: Span
    high: Span
    width: Span

    def ports(self) -> tuple[Port, ...]:
        watermarks = (Port(f"{side} watermark", completeness=True) for side in ("left", "right"))
        return (Port("left"), Port("right"), *watermarks)

    def output(self, context: CheckContext) -> tuple[Field, ...] | None:
        columns = self.join.pair_columns(context)
        made = context.with_state_expiry(self.join)
        context.require_as_built_by_flow(made, self, "it forgets what could still match")
        for port, time in enumerate(self.times):
            context.require_watermark(2 + port, Column(time), port)
        return columns

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        reads = self.join.reads(inputs, output, live)
        assert reads is not None
        on_left, on_right = reads
        watermarks = (set(schema.names) for schema in inputs[2:])
        return {*on_left, self.times[0]}, {*on_right, self.times[1]}, *watermarks

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        join, fields = self.join.over(inputs, kept, output, live)
        return replace(self, join=join), fields

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (*self.join.lineage(inputs, output), {}, {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        sides = KeyedSlot(0, of_pair=True), KeyedSlot(1, of_pair=True)
        return {
            "left": sides[0],
            "right": sides[1],
            **calendar_slots("left_", sides[0]),
            **calendar_slots("right_", sides[1]),
            "left_passed": EverywhereSlot(),
            "right_passed": EverywhereSlot(),
        }

    def placement(self) -> Placement:
        return place_by_key(self.join.left_keys, self.join.right_keys, None, None)

    def required_facts(self) -> tuple[Need, ...]:
        why = "a row that was forgotten could not be taken back"
        fix = "put the watermark behind what takes rows back"
        return (Need(0, "append", why, fix), Need(1, "append", why, fix))

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return self.join.output_facts(inputs[:2])

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.join.expressions()

    def describe(self) -> str:
        apart = f"{shown_span(self.low)} to {shown_span(self.high)}"
        return f"{self.join.describe()}; apart by {apart}, forgets what has passed"


@register_step(IntervalJoin)
class IntervalJoinStep(RowStep):
    """Step of the join with state expiry. Slot per side: (key, time bucket) -> rows."""

    operator: IntervalJoin
    keeps_state = True
    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        operator = self.operator
        self._rows = JoinConditionWriter(replace(node, inputs=node.inputs[:2]), writer, operator.join)
        schemas = [writer.input_schema(node, port) for port in (0, 1)]
        self._at = [s.names.index(t) for s, t in zip(schemas, operator.times, strict=True)]
        self._type = schemas[0].fields[self._at[0]].type
        low: Any = operator.low
        high: Any = operator.high
        self._forgetting = (
            ExpiryCalendar(node, writer, "left_", operator.width, self._type, high),
            ExpiryCalendar(node, writer, "right_", operator.width, self._type, -low),
        )
        spans = ((low, high), (-high, -low))
        self._buckets = tuple(
            writer.constant("buckets", bucket_assigner(operator.width, first, last, self._type))
            for first, last in spans
        )

    def slots(self) -> tuple[Slot, ...]:
        sides = (Slot(f"{self.node.id}.{side}", thaw_list) for side in SIDES)
        return (*sides, *self._forgetting[0].slots(), *self._forgetting[1].slots())

    def begin(self) -> None:
        least = self.writer.constant("least", time_lower_bound(self._type))
        for port, forgetting in enumerate(self._forgetting):
            forgetting.begin()
            start, end, _, _ = self._variables(port)
            self.code.line(f"{start} = {end} = {least}")

    def _variables(self, port: int) -> tuple[str, ...]:
        """Return the variables of a side's last buckets. Rows arrive roughly in time order."""
        names = ("start", "end", "own", "near")
        return tuple(self.writer.node_variable(f"{SIDES[port]}_{name}", self.node.id) for name in names)

    def consume(self, port: int, row: RowCode) -> None:
        if port > 1:
            # What one side has passed, the other may forget.
            self._forgetting[3 - port].watermark.consume(row)
            return
        with self._rows.key_of(port, row) as key:
            row = self.writer.as_whole(row)
            time, (start, end, own, near) = row.columns[self._at[port]], self._variables(port)
            with self.code.block(f"if not {start} <= {time} < {end}:"):
                self.code.line(f"{start}, {end}, {own}, {near} = {self._buckets[port]}({time})")
            self._match(port, row, key, near)
            with self._forgetting[port].if_open(own):
                self._add(port, row, key, own)

    def _match(self, port: int, row: RowCode, key: str, near: str) -> None:
        writer, other = self.writer, 1 - port
        number = writer.fresh("number")
        with (
            self.code.block(f"for {number} in {near}:"),
            self.state(SIDES[other]).each_item(f"({key}, {number})") as partner,
        ):
            columns = writer.unpack(self.input_schema(other), partner)
            with self._rows.joined(port, row, RowCode(columns)) as pair:
                self.emit(pair)

    def _add(self, port: int, row: RowCode, key: str, number: str) -> None:
        writer, code = self.writer, self.code
        place, own = writer.fresh("place"), writer.fresh("own")
        code.line(f"{place} = ({key}, {number})")
        code.line(f"{own} = {self.slot_getter(SIDES[port])}({place})")
        with code.block(f"if {own} is None:"):
            code.line(f"{self.slot(SIDES[port])}[{place}] = [{row.whole}]")
            self._forgetting[port].schedule_expiry(number, place)
        with code.block("else:"):
            code.line(f"{own}.append({row.whole})")

    def finish(self) -> None:
        for side, forgetting in zip(SIDES, self._forgetting, strict=True):
            with forgetting.each_passed() as place:
                self.code.line(f"del {self.slot(side)}[{place}]")


@lower_operator.register(IntervalJoin)
def _on_spark(operator: IntervalJoin, context: BatchContext) -> DataFrame:
    # Time tells it what to forget, and a batch forgets nothing.
    return lower_join(operator.join, context)


BUCKET = "bucket"
"""Column with the number of a row's bucket of time, the last part of its key."""

_ROOM = 2**62


@register_arranged(IntervalJoin)
@dataclass(frozen=True)
class TimedJoinPlan(ArrangedPlan):
    """Plan for a join with state expiry. join: of the join. at: positions of the times, of `type`."""

    acts_alone = True
    pairs_rows = True
    node: int
    join: JoinPlan
    operator: IntervalJoin
    at: tuple[int, int]
    type: DataType

    @classmethod
    def of(cls, context: ColumnarContext) -> TimedJoinPlan:
        node, operator = context.node, context.node.operator
        assert isinstance(operator, IntervalJoin)
        inner = replace(node, operator=operator.join, inputs=node.inputs[:2])
        join = JoinPlan.of(ColumnarContext(inner, context.schemas[:2], context.appends[:2], context.append))
        times = zip(join.schemas, operator.times, strict=True)
        one, other = (schema.names.index(time) for schema, time in times)
        type_ = join.schemas[0].fields[one].type
        check_time(type_)
        return cls(node.id, join, operator, (one, other), type_)

    def slot(self, port: int, what: str = "") -> str:
        """Return the name of a side's slot, or of its auxiliary slot `what`."""
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
        """Return the bucket numbers of a side's times, optionally with a span added.

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
    """Join with state expiry in large ticks. slots: one per side, in order, each with its calendar."""

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
        frame = concat_frames(made) if made else empty_stream(join.pairs, True).frame.collect()
        return join.output(build_stream(Columns(join.pairs, True, frame)))

    def _pairs(self, asking: pl.DataFrame, held: Sequence[SortedBatch], port: int) -> pl.DataFrame | None:
        """Join new rows of one side, in order, with the rows held for the other side."""
        plan, join = self.plan, self.plan.join
        if not asking.height or not any(map(len, held)):
            return None
        low, high = plan.spans(port)
        first, last = plan.buckets(port, asking, low), plan.buckets(port, asking, high)
        counts = last - first + 1
        if int(counts.max()) > _MAX_BUCKETS:
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
        """Return the time buckets that a side drops, given the other side's watermark."""
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
        """Schedule a side's new buckets in its calendar, and remove the passed buckets."""
        name, slot = self.plan.slot, self.slots.slot
        calendar = [slot(name(port, what)) for what in ("_calendar", "_counts", "_due")]
        for number in expiry.new:
            schedule_entry(calendar[0], calendar[1], calendar[2], number + 1, number)
        if expiry.risen:
            slot(name(port, "_passed"))[()] = expiry.until
            until = None if expiry.until == inf else expiry.until
            for _ in pop_due(calendar[0], calendar[1], calendar[2], until):
                pass


_MAX_BUCKETS = 1_000
"""Buckets in which a row may have partners; with more it is made so many rows that rows are better."""


def _open(layout: Layout, batch: SortedBatch, expiry: Expiry) -> SortedBatch:
    """Return the rows in buckets that are still open."""
    buckets = batch.frame[BUCKET].to_numpy()
    return _chosen(layout, batch, (buckets >= expiry.open_from) & (buckets >= expiry.until))


def _without(
    layout: Layout, batches: Sequence[SortedBatch], expiry: Expiry
) -> tuple[list[SortedBatch], list[SortedBatch]]:
    """Drop most expired rows from batches; return the batches, and retractions of the other expired rows."""
    left: list[SortedBatch] = []
    taken_back: list[SortedBatch] = []
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
                    taken_back.append(SortedBatch(gone.codes, negated(layout, gone.frame), gone.bounds))
        left.append(batch)
    return left, taken_back


def _chosen(layout: Layout, batch: SortedBatch, wanted: Any) -> SortedBatch:
    """Return the rows of a batch that a mask selects."""
    if wanted.all():
        return batch
    at = np.flatnonzero(wanted)
    return bounded(layout, batch.codes[at], take(batch.frame, at))
