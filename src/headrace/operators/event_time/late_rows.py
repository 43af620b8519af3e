"""On-time, late and first rows of an ordered stream, by its event time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.constructors import col
from headrace.expr.tree import Column
from headrace.expr.types import Field
from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import (
    EVENT_TIME,
    WHOLE,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    calendar_slots,
    place_by_key,
)
from headrace.lowering.reference import Examples
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import RowStep, register_step
from headrace.operators.event_time.due_calendar import ExpiringStep
from headrace.operators.event_time.watermark import NEEDS, WatermarkWriter, check_policy
from headrace.operators.time_spans import check_span, shown_span

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.event_time.watermark import WatermarkPolicy
    from headrace.operators.time_spans import Span


# --- on-time operator: drop the late rows of an ordered stream ------------------------------------


@dataclass(frozen=True, slots=True)
class OnTime(Operator):
    """The rows whose time is not below the watermark of the rows before them.

    The others are late, as are rows whose time is null, NaN or infinite; `late_rows` emits them. Because the
    watermark rises row by row rather than tick by tick, lateness does not depend on the cut into ticks. A
    tick without rows emits nothing. Rows keep their order. The state is the greatest time, and the number of
    late rows.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda at: at.watermark(col.value, lateness=2), at=[1, 5, 3, 2, 6])
    + 1
    + 5
    + 3
    + 6
    """

    kind: ClassVar[str] = "watermark"
    examples: ClassVar[Examples] = {
        "on_time": lambda x, y: x.watermark(col.a, lateness=0),
    }
    plan_name: ClassVar[str | None] = "on_time"
    row_by_row: ClassVar[bool] = True
    clock: WatermarkPolicy

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        timed = check_policy(self.clock, context)
        return tuple(Field(f.name, f.type, f.nullable and f != timed) for f in context.input.fields)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def required_facts(self) -> tuple[Need, ...]:
        return NEEDS

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({*live, self.clock.column},)

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return f"rows on time: {self.clock}; late ones are counted"


# --- late-rows operator: rows that arrive behind the watermark ------------------------------------


@dataclass(frozen=True, slots=True)
class LateRows(Operator):
    """The rows that `on_time` drops. Together, the two streams contain every row exactly once.

    A tick without rows emits nothing. Rows keep their order.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda at: at.watermark(col.value, lateness=2).late(), at=[1, 5, 3, 2, 6])
    + 2
    """

    kind: ClassVar[str] = "late_rows"
    examples: ClassVar[Examples] = {
        "late_rows": lambda x, y: x.watermark(col.a, lateness=0).late(),
    }
    row_by_row: ClassVar[bool] = True
    clock: WatermarkPolicy

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        check_policy(self.clock, context)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def required_facts(self) -> tuple[Need, ...]:
        return NEEDS

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({*live, self.clock.column},)

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return str(self.clock)


@register_step(OnTime, LateRows)
class PunctualityStep(RowStep):
    """Filter for rows on time, or for late ones."""

    operator: OnTime | LateRows

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self._clockwork = WatermarkWriter(node, writer, self.operator.clock)
        self._late = isinstance(self.operator, LateRows)

    def slots(self) -> tuple[Slot, ...]:
        return (self._clockwork.slot(),)

    def begin(self) -> None:
        self._clockwork.begin()

    def consume(self, port: int, row: RowCode) -> None:
        clockwork, code = self._clockwork, self.code
        time = row.columns[clockwork.at]
        unusable = clockwork.invalid_time_test(time)
        is_late = f"{time} < {clockwork.mark}"
        if unusable is None:
            clockwork.advance_watermark(time)
        else:
            bad = self.writer.fresh("bad")
            code.line(f"{bad} = {unusable}")
            with code.block(f"if not ({bad}):"):
                clockwork.advance_watermark(time)
            is_late = f"{bad} or {is_late}"
        with code.block(f"if {is_late}:"):
            code.line(f"{clockwork.count} += 1")
            if self._late:
                self.emit(row)
        if not self._late:
            with code.block("else:"):
                self.emit(row)

    def finish(self) -> None:
        self._clockwork.keep()


@dataclass(frozen=True, slots=True)
class FirstWithin(Operator):
    """Rows at least `within` apart from every row emitted before with the same keys.

    keys: null is a key like any other. time: a column with a watermark.

    Rows are processed in order of arrival, and keep their order. An output row is remembered until the
    watermark is `within` after its time. A tick without rows emits nothing.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> def once(at):
    ...     return at.watermark(col.value, lateness=5).first_within("10s", by=(), unit="s")
    >>> show(once, at=[1, 3, 11, 20, 21])
    + 1
    + 11
    + 21
    """

    kind: ClassVar[str] = "first_within"
    examples: ClassVar[Examples] = {
        "first_within": lambda x, y: x.watermark(col.a, lateness=1).first_within(2, by="b"),
    }
    keys: tuple[Expr, ...]
    time: str
    within: Span

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows"), Port("watermark"))

    def output(self, context: CheckContext) -> Columns:
        context.check_keys(self.keys)
        timed = context.timed_columns(0)
        context.require(self.time in timed, f"{self.time!r} has no watermark")
        check_span(self.within, timed[self.time], context)
        context.require_watermark(1, Column(self.time), 0)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"kept": KeyedSlot(), **calendar_slots("", KeyedSlot())}

    def placement(self) -> Placement:
        return place_by_key(self.keys, None)

    def required_facts(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "the rows near to one that is taken back are forgotten",
                "put it before what takes rows back",
            ),
            Need(
                0,
                "ordered",
                "of rows near to each other the one that came first is kept",
                "put it before what loses the order: union(), joins, distinct()",
            ),
        )

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0]

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.keys:
            yield "by", expr

    def describe(self) -> str:
        return f"{shown_span(self.within)} of {self.time} by ({', '.join(map(str, self.keys))})"


@register_step(FirstWithin)
class FirstWithinStep(ExpiringStep):
    """Step of first_within. Slot: kept, key -> times of the emitted rows, in order."""

    operator: FirstWithin

    def __init__(self, node: Node, writer: StepWriter) -> None:
        operator = node.operator
        assert isinstance(operator, FirstWithin)
        super().__init__(node, writer, operator.time, operator.within)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.kept", thaw_list), *self._forgetting.slots())

    def consume_on_time(self, row: RowCode) -> None:
        writer, code = self.writer, self.code
        key, kept, time = writer.fresh("key"), writer.fresh("kept"), row.columns[self._at]
        writer.assign_key(key, self.operator.keys, self.node.schema, row.columns)
        within = writer.constant("within", self.operator.within)
        self.state("kept").get_or_add(kept, key, "[]")
        with code.block(f"if {writer.constant('is_first', is_first)}({kept}, {time}, {within}):"):
            self._forgetting.schedule_expiry(self._forgetting.bucket(time, within), key)
            self.emit(row)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        kept, slot = writer.fresh("kept"), self.slot("kept")
        still = writer.constant("still_near", times_still_near)
        with self._forgetting.each_passed() as key:
            times = f"{self.slot_getter('kept')}({key}) or []"
            within = writer.constant("within", self.operator.within)
            code.line(f"{kept} = {still}({times}, {self._forgetting.watermark.mark}, {within})")
            with code.block(f"if {kept}:"):
                code.line(f"{slot}[{key}] = {kept}")
            with code.block(f"elif {self.slot_getter('kept')}({key}) is not None:"):
                code.line(f"del {slot}[{key}]")


def is_first(kept: list[Any], time: Any, within: Any) -> bool:
    """Return whether all times in sorted `kept` are at least `within` away; if so, insert the time."""
    at = bisect_left(kept, time)
    if at < len(kept) and kept[at] - time < within:
        return False
    if at and time - kept[at - 1] < within:
        return False
    kept.insert(at, time)
    return True


def times_still_near(kept: list[Any], mark: Any, within: Any) -> list[Any]:
    """Return the times that a future row may still be close to. mark: None for the end of time."""
    return [] if mark is None else [time for time in kept if mark - time < within]
