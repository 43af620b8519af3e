"""Window operator: aggregates per group and event-time window, and its steps on a grid.

Windows on a grid are merged from slices and closed by the watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.check import check
from headrace.expr.constructors import col
from headrace.expr.tree import Expr, columns_of
from headrace.expr.types import Field
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import (
    EVENT_TIME,
    WHOLE,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    SessionSlots,
    SliceSlots,
    calendar_slots,
    place_by_key,
)
from headrace.lowering.reference import Examples
from headrace.lowering.row_code import MappingCode, RowCode, key_columns, tuple_source
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, step_for
from headrace.operators.aggregate import sums
from headrace.operators.aggregate.aggregation import ANSWER, Group, group_columns
from headrace.operators.aggregate.counts import count
from headrace.operators.event_time.due_calendar import (
    SliceCalendar,
    WatermarkInput,
    slice_assigner,
    window_assigner,
)
from headrace.operators.event_time.watermark import time_lower_bound
from headrace.operators.time_spans import (
    TIME_TYPES,
    Grid,
    Sessions,
    Windows,
    check_span,
    session,
    sliding,
    tumbling,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.aggregate.aggregation import Aggregation
    from headrace.operators.time_spans import Shape


START, END = "window_start", "window_end"
"""Columns that identify the window of a row."""


class Emit(Enum):
    """Time of a window's emission: once the watermark has passed its end, or in each tick that changes it."""

    CLOSE = "close"
    UPDATES = "updates"


def _count_in_windows(pairs: Any, windows: Windows, emit: str) -> Any:
    """Build an example: the count and the sum of `Pair`s per window of their first column."""
    timed = pairs.watermark(col.a, lateness=0)
    return timed.group_by(window=windows, emit=emit).agg(n=count(), sum=sums.sum(col.b))


@dataclass(frozen=True, slots=True)
class Window(Operator):
    """One row per group and window: the keys, the window's start and end, the aggregates.

    A window exists while it has rows. It closes when the watermark reaches its end: from then on no row can
    fall into it, and its state is dropped.

    CLOSE: a window is emitted once, when it closes; windows are ordered by end, and with equal ends by their
    first rows. So the output is a stream of plain rows, equal and in the same order for every cut into ticks.
    UPDATES: like an aggregate, each tick retracts old results and emits new ones; closing a window makes its
    result final, and emits nothing.

    A tick without rows and without a new watermark emits nothing.

    On a grid, rows are added up by slice, a span in which no window begins or ends; windows are merged from
    their slices, when they close or once per tick.

    >>> import headrace as hr
    >>> from headrace import col
    >>> from headrace.testing import show
    >>> def counts(at):
    ...     on_time = at.watermark(col.value, lateness=2)
    ...     return on_time.group_by(window=hr.tumbling(col.value, 10)).agg(n=hr.count())
    >>> show(counts, at=[1, 11, 9, 12, 25])
    + (window_start=0, window_end=10, n=2)
    + (window_start=10, window_end=20, n=2)
    """

    kind: ClassVar[str] = "window"
    examples: ClassVar[Examples] = {
        "sliding": lambda x, y: _count_in_windows(x, sliding(col.a, 3, 1), "close"),
        "per key": lambda x, y: (
            x.watermark(col.a, lateness=0).group_by("b", window=tumbling(col.a, 2)).agg(n=count())
        ),
        "session": lambda x, y: _count_in_windows(x, session(col.a, 1), "close"),
        "session updates": lambda x, y: _count_in_windows(x, session(col.a, 1), "updates"),
    }
    picks_representative: ClassVar[bool] = True
    keys: tuple[tuple[str, Expr], ...]
    time: Expr
    shape: Shape
    aggregations: tuple[tuple[str, Aggregation], ...]
    emit: Emit

    def ports(self) -> tuple[Port, ...]:
        return (
            Port("rows", blocking=True, why="a further row could fall into a window that closes"),
            Port("watermark", blocking=True, why="it may rise further", completeness=True),
        )

    def output(self, context: CheckContext) -> Columns:
        time = check(self.time, context.input)
        context.require(time.type in TIME_TYPES and not time.nullable, "windows are of what is no time")
        match self.shape:
            case Sessions(gap):
                check_span(gap, time.type, context)
            case Grid(size, every, offset):
                for span in (size, every, *(() if offset is None else (offset,))):
                    check_span(span, time.type, context)
                context.require(not every > size, "times lie between windows")  # type: ignore[operator]
        context.require_watermark(1, self.time, 0)
        borders = (Field(START, time.type), Field(END, time.type))
        return group_columns(context, self.keys, borders, self.aggregations)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        exprs = (expr for _, expr in self.expressions())
        return {name for expr in exprs for name in columns_of(expr)}, set(inputs[1].names)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        return self, output.fields

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        if isinstance(self.shape, Sessions):
            return dict.fromkeys(("sessions", "calendar", "due"), SessionSlots(KeyedSlot()))
        groups = KeyedSlot(of_pair=True)
        if self.emit is Emit.UPDATES or self.shape.tumbles:
            return {"groups": groups, **calendar_slots("", groups)}
        return {"groups": groups, **dict.fromkeys(("calendar", "counts", "due"), SliceSlots(groups))}

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys), None) if self.keys else WHOLE

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def required_facts(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a window is closed for good, and what it answered could not be changed any more",
                "put the windows before what takes rows back",
            ),
        )

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0].but(once=True)
        if self.emit is Emit.CLOSE:
            return rows.but(append=rows.append, ordered=rows.ordered)
        return rows.but(append=rows.append and rows.bounded, ordered=False)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        yield "time", self.time
        for name, aggregation in self.aggregations:
            for expr in aggregation.arguments():
                yield name, expr

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        by = f" by ({keys})" if keys else ""
        when = "when they close" if self.emit is Emit.CLOSE else "as updates"
        aggregates = ", ".join(f"{name}={agg}" for name, agg in self.aggregations)
        return f"{self.shape} of {self.time}{by}, {when}: {aggregates}"


@step_for.register(Window)
def _step(operator: Window, node: Node, writer: StepWriter) -> RowStep:
    from headrace.operators.event_time.session_windows import SessionStep

    if isinstance(operator.shape, Grid):
        return grid_step(operator)(node, writer, operator, operator.shape)
    return SessionStep(node, writer, operator, operator.shape)


NUMBER = ANSWER
"""Field of a slice's group with its number, by first row; it has no answer of its own."""


def by_first_row(groups: Mapping[Any, list[Any]]) -> list[tuple[Any, list[Any]]]:
    """Return keys with the groups of their slices, ordered by the lowest number of a key's groups."""

    def number(slices: tuple[Any, list[Any]]) -> int:
        return min([group[NUMBER] for group in slices[1]])

    return sorted(groups.items(), key=number)


class WindowStep(RowStep):
    """Base of window steps."""

    operator: Window
    keeps_state = True
    consolidates = True
    heavy = True

    def __init__(self, node: Node, writer: StepWriter, operator: Window, group: Group | None = None) -> None:
        super().__init__(node, writer)
        self.operator = operator
        self.schema = self.input_schema()
        self.type = check(operator.time, self.schema).type
        self.updates = operator.emit is Emit.UPDATES
        self.sites = 1 if writer.is_append(node.id) else 4
        self.watermark = WatermarkInput(node, writer)
        self.touched = writer.node_variable("touched", node.id)
        aggregations = tuple(aggregation for _, aggregation in operator.aggregations)
        self.group = group or Group(writer, self.schema, aggregations, appends=True)

    def begin(self) -> None:
        self.watermark.begin()
        if self.updates:
            self.code.line(f"{self.touched} = {{}}")

    def consume(self, port: int, row: RowCode) -> None:
        if port == 0:
            self.consume_on_time(row)
        else:
            self.watermark.consume(row)

    def consume_on_time(self, row: RowCode) -> None:
        """Write the code for one row on time."""
        raise NotImplementedError

    def assign_key(self, row: RowCode) -> str:
        key = self.writer.fresh("key")
        self.writer.assign_key(key, [expr for _, expr in self.operator.keys], self.schema, row.columns)
        return key

    def assign_time(self, row: RowCode) -> str:
        time = self.writer.value(self.operator.time, self.schema, row.columns)
        time = self.writer.key_source(self.type, time)
        if time.isidentifier():
            return time
        variable = self.writer.fresh("time")
        self.code.line(f"{variable} = {time}")
        return variable

    def answer(self, key: str, start: str, end: str, group: str) -> str:
        """Write the result of a non-empty window; return its variable."""
        new, keys = self.writer.fresh("new"), key_columns(key, len(self.operator.keys))
        self.code.line(f"{new} = {tuple_source([*keys, start, end, *self.group.aggregate_sources(group)])}")
        return new

    def emit_update(self, old: str, new: str) -> None:
        """Write the change from an old result, None if there was none, to a new one."""
        with self.code.block(f"if {old} != {new}:"):
            if not self.writer.is_append(self.node.id):
                with self.code.block(f"if {old} is not None:"):
                    self.emit_tuple(old, "-1")
            self.emit_tuple(new, None if self.writer.is_append(self.node.id) else "1")


class GridStep(WindowStep):
    """Base of steps of grid windows, which assign each row to its slice.

    start, end: variables of the slice of the last row. Rows arrive roughly in time order, so it is tried
          first.
    windows_of: the function from a time to the windows of its slice.
    """

    def __init__(
        self, node: Node, writer: StepWriter, operator: Window, grid: Grid, group: Group | None = None
    ) -> None:
        super().__init__(node, writer, operator, group)
        self.grid = grid
        self.start = writer.node_variable("start", node.id)
        self.end = writer.node_variable("end", node.id)
        self.windows_of = writer.constant("windows_of", window_assigner(grid, self.type))

    def begin(self) -> None:
        super().begin()
        least = self.writer.constant("least", time_lower_bound(self.type))
        self.code.line(f"{self.start} = {self.end} = {least}")

    def consume_on_time(self, row: RowCode) -> None:
        time, key = self.assign_time(row), self.assign_key(row)
        self.find_slice(time)
        self.fold(key, time, row)

    def find_slice(self, time: str) -> None:
        """Write code that sets the variables of the slice of a time."""
        with self.code.block(f"if not {self.start} <= {time} < {self.end}:"):
            slice_of = self.writer.constant("slice_of", slice_assigner(self.grid, self.type))
            self.code.line(f"{self.start}, {self.end} = {slice_of}({time})")

    def fold(self, key: str, time: str, row: RowCode) -> None:
        """Write code that adds a row of a group to its slice."""
        raise NotImplementedError

    def add(self, group: str, row: RowCode) -> None:
        """Write code that adds a row to its group's list."""
        self.group.add(group, row)


class KeptGridStep(GridStep):
    """Base of steps of grid windows with state. Slots: groups, (key, start) -> list; and the calendar."""

    def __init__(
        self, node: Node, writer: StepWriter, operator: Window, grid: Grid, group: Group | None = None
    ) -> None:
        super().__init__(node, writer, operator, grid, group)
        self.calendar = SliceCalendar(node, writer)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.groups", self.group.thaw), *self.calendar.slots())


class ClosedWindowStep(KeptGridStep):
    """Step of grid windows that are emitted when they close, merged from their slices.

    `groups` has a list per slice. A tumbling window is one slice.
    """

    def fold(self, key: str, time: str, row: RowCode) -> None:
        writer, code = self.writer, self.code
        entry, group = writer.fresh("entry"), writer.fresh("group")
        code.line(f"{entry} = ({key}, {self.start})")
        code.line(f"{group} = {self.slot_getter('groups')}({entry})")
        with code.block(f"if {group} is None:"):
            code.line(f"{group} = {self.slot('groups')}[{entry}] = {self.group.empty}")
            if self.grid.tumbles:
                self.calendar.schedule_end(self.end, entry)
            else:
                number = self.calendar.schedule_slice(self.start, entry, self.windows_of, time)
                code.line(f"{group}[{NUMBER}] = {number}")
        self.add(group, row)

    def finish(self) -> None:
        with self.code.block(f"if {self.watermark.risen}:"):
            if self.grid.tumbles:
                self._emit_slices()
            else:
                self._emit_windows()

    def _emit_slices(self) -> None:
        end, entry, group = (self.writer.fresh(name) for name in ("end", "entry", "group"))
        ended = self.calendar.closed_entries(self.watermark.mark)
        with self.code.block(f"for {end}, {entry} in {ended}:"):
            self.code.line(f"{group} = {self.slot_getter('groups')}({entry})")
            self._emit(f"{entry}[0]", f"{entry}[1]", end, group)
            self.code.line(f"del {self.slot('groups')}[{entry}]")

    def _emit_windows(self) -> None:
        start, end, entries, dropped, entry = (
            self.writer.fresh(name) for name in ("start", "end", "entries", "dropped", "entry")
        )
        windows = self.calendar.closing_windows(self.watermark.mark)
        with self.code.block(f"for {start}, {end}, {entries}, {dropped} in {windows}:"):
            self._emit_merged(start, end, entries)
            with self.code.block(f"for {entry} in {dropped}:"):
                self.code.line(f"del {self.slot('groups')}[{entry}]")

    def _emit_merged(self, start: str, end: str, entries: str) -> None:
        """Write code that merges the slices of a window by key, and emits its groups."""
        writer, code = self.writer, self.code
        slices, entry, key, group = (writer.fresh(name) for name in ("slices", "entry", "key", "group"))
        found, part = writer.fresh("found"), writer.fresh("part")
        code.line(f"{slices} = {{}}")
        with code.block(f"for {entry} in {entries}:"):
            lists = MappingCode(writer, slices)
            lists.get_or_add(found, f"{entry}[0]", "[]")
            code.line(f"{found}.append({self.slot_getter('groups')}({entry}))")
        ordered = f"{writer.constant('by_first_row', by_first_row)}({slices})"
        with code.block(f"for {key}, {found} in {ordered}:"):
            with code.block(f"if len({found}) == 1:"):
                code.line(f"{group} = {found}[0]")
            with code.block("else:"):
                code.line(f"{group} = {self.group.empty}")
                with code.block(f"for {part} in {found}:"):
                    self.group.merge(group, self.group.part_columns(part))
            self._emit(key, start, end, group)

    def _emit(self, key: str, start: str, end: str, group: str) -> None:
        self.group.settle(group)
        self.emit_tuple(self.answer(key, start, end, group))


class UpdatedWindowStep(KeptGridStep):
    """Step of grid windows that are emitted as they change. Each row updates one slice of the tick.

    `groups` has a list per window. Of a tick's rows, `slices`: (key, start of slice) -> their list, and the
    slice's windows; `windows`: start of slice -> its windows, which all keys share.
    """

    def __init__(
        self, node: Node, writer: StepWriter, operator: Window, grid: Grid, group: Group | None = None
    ) -> None:
        super().__init__(node, writer, operator, grid, group)
        self._slices = writer.node_variable("slices", node.id)
        self._windows = writer.node_variable("windows", node.id)

    def begin(self) -> None:
        super().begin()
        if not self.grid.tumbles:
            self.code.line(f"{self._slices}, {self._windows} = {{}}, {{}}")

    def fold(self, key: str, time: str, row: RowCode) -> None:
        writer, code = self.writer, self.code
        group = writer.fresh("group")
        if self.grid.tumbles:
            self._open(group, key, self.start, self.end)
        else:
            entry, windows = writer.fresh("slice"), writer.fresh("windows")
            code.line(f"{entry} = ({key}, {self.start})")
            code.line(f"{group} = {self._slices}.get({entry})")
            with code.block(f"if {group} is None:"):
                shared = MappingCode(writer, self._windows)
                shared.get_or_add(windows, self.start, f"{self.windows_of}({time})")
                code.line(f"{group} = {self._slices}[{entry}] = ({self.group.empty}, {windows})")
            code.line(f"{group} = {group}[0]")
        self.add(group, row)

    def _open(self, group: str, key: str, start: str, end: str) -> None:
        """Write code that assigns the list of a window to the variable `group`."""
        window = self.writer.fresh("window")
        self.code.line(f"{window} = ({key}, {start})")
        self.code.line(f"{group} = {self.slot_getter('groups')}({window})")
        with self.code.block(f"if {group} is None:"):
            self.code.line(f"{group} = {self.slot('groups')}[{window}] = {self.group.empty}")
            self.calendar.schedule_end(end, window)
        self.code.line(f"{self.touched}[{window}] = ({group}, {end})")

    def finish(self) -> None:
        if not self.grid.tumbles:
            self._merge_slices()
        self._write_updates()
        end, window = self.writer.fresh("end"), self.writer.fresh("window")
        ended = self.calendar.closed_entries(self.watermark.mark)
        with (
            self.code.block(f"if {self.watermark.risen}:"),
            self.code.block(f"for {end}, {window} in {ended}:"),
        ):
            self.code.line(f"del {self.slot('groups')}[{window}]")

    def _merge_slices(self) -> None:
        key, part, group, windows, start, end = (
            self.writer.fresh(name) for name in ("key", "part", "group", "windows", "start", "end")
        )
        slices = f"for ({key}, _), ({part}, {windows}) in {self._slices}.items():"
        with self.code.block(slices), self.code.block(f"for {start}, {end} in {windows}:"):
            self._open(group, key, start, end)
            self.group.merge(group, self.group.part_columns(part))

    def _write_updates(self) -> None:
        writer, code = self.writer, self.code
        end, window, group = writer.fresh("end"), writer.fresh("window"), writer.fresh("group")
        with code.block(f"for {window}, ({group}, {end}) in {self.touched}.items():"):
            self.group.settle(group)
            old = writer.fresh("old")
            code.line(f"{old} = {group}[{ANSWER}]")
            new = self.answer(f"{window}[0]", f"{window}[1]", end, group)
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_update(old, new)


def grid_step(operator: Window) -> type[ClosedWindowStep] | type[UpdatedWindowStep]:
    """Return the step of grid windows, by the time of their emission."""
    return ClosedWindowStep if operator.emit is Emit.CLOSE else UpdatedWindowStep
