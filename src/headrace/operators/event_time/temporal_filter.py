"""Temporal filter operator: rows valid from, or until, a moment of their own."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import EvaluationError
from headrace.expr.check import Monotonicity, check, monotonicity
from headrace.expr.compile_python import compile_rows
from headrace.expr.constructors import col
from headrace.expr.types import DATE, INTEGERS, TIMESTAMP
from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import (
    EverywhereSlot,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    calendar_slots,
    meet,
    place_by_key,
)
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, function_of
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_step
from headrace.operators.endpoints import TICK_TIME
from headrace.operators.event_time.due_calendar import DueCalendar
from headrace.operators.rows import Select

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, FlowGraph, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter


class Presence(Enum):
    """Condition for the presence of a row. The value is the comparison of the clock with the row's moment."""

    SINCE = ">="
    AFTER = ">"
    BEFORE = "<"
    UNTIL = "<="

    @property
    def begins(self) -> bool:
        """Return whether rows appear, not disappear, when the clock reaches or passes their moment."""
        return self in (Presence.SINCE, Presence.AFTER)

    @property
    def turns_at(self) -> bool:
        """Return whether rows appear or disappear when the clock reaches their moment, not just after it."""
        return self in (Presence.SINCE, Presence.BEFORE)


MOMENTS = (TIMESTAMP, DATE, *INTEGERS)
"""Types of a moment and of a clock."""


@dataclass(frozen=True, slots=True)
class TemporalFilter(Operator):
    """The rows for which `clock presence moment` holds, such as `clock < moment`.

    The clock shows the greatest value that its stream has had. As it rises, rows come or go by themselves,
    each at a cost of its own: they are found in a calendar of moments. Before the first value of the clock no
    moment has come. A row whose moment is null is never there.

    columns: every column of the input, as expressions.

    >>> import headrace as hr
    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda ends, clock: ends.valid(clock, until=col.value), ends=[1, 3], clock=[2])
    + 3

    Source: temporal filters of Materialize; the calendar is that of event-time windows.
    """

    kind: ClassVar[str] = "temporal_filter"
    examples: ClassVar[Examples] = {
        "until": lambda x, y: y.valid(x.select(t=col.a), until=col.b),
        "since": lambda x, y: y.valid(x.select(t=col.a), since=col.b),
        "since and until": lambda x, y: y.valid(x.select(t=col.a), since=col.a, until=col.b),
    }
    picks_representative: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    presence: Presence
    moment: Expr

    def ports(self) -> tuple[Port, ...]:
        why = "as time goes by, rows may go"
        return (Port("rows"), Port("clock", blocking=not self.presence.begins, why=why))

    def output(self, context: CheckContext) -> Columns:
        context.all_columns(self.columns)
        clock = context.inputs[1]
        context.require(len(clock.fields) == 1, "a clock has one column")
        moment = check(self.moment, context.input).type
        context.require(moment in MOMENTS, "the moment is no time and no integer")
        context.require(clock.fields[0].type == moment, "the clock is of another type than the moment")
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        held = KeyedSlot(bare=False)
        return {"held": held, "now": EverywhereSlot(), **calendar_slots("", held)}

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return meet(inputs).but(append=False, ordered=False)

    def required_facts(self) -> tuple[Need, ...]:
        return (
            Need(
                1,
                "append",
                "time only moves forward",
                "give the clock as a source of rows that are only added",
            ),
        )

    def placement(self) -> Placement:
        return place_by_key(self.columns, None)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield "moment", self.moment

    def describe(self) -> str:
        return f"while clock {self.presence.value} {self.moment}; a change costs the row"


@register_step(TemporalFilter)
class TemporalFilterStep(RowStep):
    """Step of a temporal filter.

    Slots: held, row -> copies, of rows whose moment is to come; now, () -> the clock; the calendar. A row
    stays held with 0 copies, so that it is in the calendar once however often it comes and goes.
    """

    operator: TemporalFilter
    keeps_state = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self._calendar = DueCalendar(node, writer)
        self._now = writer.node_variable("now", node.id)
        # How the clock compares with a moment that has come.
        self._reached = ">=" if self.operator.presence.turns_at else ">"

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.held"), Slot(f"{self.node.id}.now"), *self._calendar.slots())

    def begin(self) -> None:
        self.code.line(f"{self._now} = {self.slot_getter('now')}(())")

    def consume(self, port: int, row: RowCode) -> None:
        if port == 1:
            (time,) = row.columns
            test = f"{time} is not None and ({self._now} is None or {time} > {self._now})"
            with self.code.block(f"if {test}:"):
                self.code.line(f"{self.slot('now')}[()] = {self._now} = {time}")
            return
        moment = self.writer.fresh("moment")
        value = self.writer.value(self.operator.moment, self.input_schema(), row.columns)
        self.code.line(f"{moment} = {value}")
        with self.code.block(f"if {moment} is not None:"):
            self._place(row, moment)

    def _place(self, row: RowCode, moment: str) -> None:
        writer, code, key = self.writer, self.code, self.writer.fresh("row")
        code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        begins = self.operator.presence.begins
        with code.block(f"if {self._now} is None or not {self._now} {self._reached} {moment}:"):
            if not begins:
                self.emit_unpacked(key, row.copies)
            held = writer.fresh("held")
            code.line(f"{held} = {self.slot_getter('held')}({key})")
            with code.block(f"if {held} is None:"):
                self._calendar.schedule_end(moment, key)
                code.line(f"{held} = 0")
            code.line(f"{self.slot('held')}[{key}] = {held} + {row.copies}")
        if begins:
            with code.block("else:"):
                self.emit_unpacked(key, row.copies)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, copies = writer.fresh("row"), writer.fresh("copies")
        due = self._calendar.due_rows(
            self.slot("held"), self._now, before=not self.operator.presence.turns_at
        )
        with code.block(f"if {self._now} is not None:"), code.block(f"for {key} in {due}:"):
            code.line(f"{copies} = {self.slot_getter('held')}({key})")
            code.line(f"del {self.slot('held')}[{key}]")
            with code.block(f"if {copies}:"):
                self.emit_unpacked(key, copies if self.operator.presence.begins else f"-{copies}")


@answer_of_bags.register(TemporalFilter)
def _answer(operator: TemporalFilter, node: Node, inputs: Bags) -> Bag:
    (schema, rows), (_, clock) = inputs
    shown = [time for (time,) in clock if time is not None]
    moment_of = function_of(operator.moment, schema)

    def is_present(row: tuple[Any, ...]) -> bool:
        moment = moment_of(row)
        if moment is None:
            return False
        if not shown:
            return not operator.presence.begins
        now = max(shown)
        return {
            Presence.SINCE: now >= moment,
            Presence.AFTER: now > moment,
            Presence.BEFORE: now < moment,
            Presence.UNTIL: now <= moment,
        }[operator.presence]

    return Counter({row: count for row, count in rows.items() if is_present(row)})


# --- when rows next come or go --------------------------------------------------------------------


_SEARCHED_MICROSECONDS = timedelta(days=36_525) // timedelta(microseconds=1)
"""How far from the last time on a due time is searched."""


class DueTimes:
    """The due times of a flow's temporal filters.

    A filter's clock may be computed of the time of the ticks (`date_trunc`, minus 30 days), by what never
    falls as that rises. Other filters have no due times.

    slots: names of the slots of state; filters that no sink reads have none.
    """

    def __init__(self, graph: FlowGraph, slots: Collection[str]) -> None:
        self._filters = list(_due_filters(graph, slots))

    def after(self, time: datetime, slots: Mapping[str, SlotMapping]) -> datetime | None:
        """Return the first time after `time` at which a moment is reached; None if none is within 100 years.

        time: that of the last tick. Rows that were deleted before their moment are not told apart.
        """
        due = [filter.due(time, slots) for filter in self._filters]
        return min((each for each in due if each is not None), default=None)


class _DueFilter:
    """A temporal filter with a clock computed from the time of the ticks."""

    def __init__(self, calendar: str, operator: TemporalFilter, clock: Callable[[datetime], Any]) -> None:
        self._calendar = calendar
        self._turns_at = operator.presence.turns_at
        self._clock = clock
        self._known: tuple[Any, datetime] | None = None

    def due(self, time: datetime, slots: Mapping[str, SlotMapping]) -> datetime | None:
        moments = slots[self._calendar].get(())
        if not moments:
            return None
        moment, known = moments[0], self._known
        if known is not None and known[0] == moment and known[1] > time:
            return known[1]
        due = self._reaches(moment, time)
        self._known = None if due is None else (moment, due)
        return due

    def _reaches(self, moment: Any, time: datetime) -> datetime | None:
        """Return the first time after `time` at which the clock reaches a moment."""
        aheads = range(1, _SEARCHED_MICROSECONDS + 1)
        at = bisect_left(aheads, True, key=lambda ahead: self._has_reached(moment, time, ahead))
        if at == len(aheads) or self._shown(time, aheads[at]) is None:
            return None
        return time + timedelta(microseconds=aheads[at])

    def _has_reached(self, moment: Any, time: datetime, ahead: int) -> bool:
        shown = self._shown(time, ahead)
        return shown is None or (shown >= moment if self._turns_at else shown > moment)

    def _shown(self, time: datetime, ahead: int) -> Any:
        """Return the clock's value `ahead` microseconds after `time`; None beyond the year 9999."""
        try:
            return self._clock(time + timedelta(microseconds=ahead))
        except (OverflowError, EvaluationError):
            return None


def _due_filters(graph: FlowGraph, slots: Collection[str]) -> Iterator[_DueFilter]:
    for node in graph.nodes:
        calendar = f"{node.id}.calendar"
        if isinstance(node.operator, TemporalFilter) and calendar in slots:
            clock = _clock_function(graph, graph.nodes[node.inputs[1]])
            if clock is not None:
                yield _DueFilter(calendar, node.operator, clock)


def _clock_function(graph: FlowGraph, node: Node) -> Callable[[datetime], Any] | None:
    """Return the function from the time of a tick to the value of a clock; None if the clock may decrease."""
    steps: list[Callable[[tuple[Any, ...]], tuple[Any, ...]]] = []
    while isinstance(node.operator, Select):
        above = graph.nodes[node.inputs[0]]
        ((_, expr),) = node.operator.columns
        (field, *others) = above.schema.fields
        if others or monotonicity(expr, above.schema, field.name) is not Monotonicity.INCREASING:
            return None
        steps.append(compile_rows((expr,), above.schema))
        node = above
    if graph.sources.get(TICK_TIME) != node.id:
        return None

    def clock(time: datetime) -> Any:
        row: tuple[Any, ...] = (time,)
        for step in reversed(steps):
            row = step(row)
        return row[0]

    return clock
