"""Steps of windows: common code, and grid windows, dropped when the watermark reaches their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.row_codegen import Row, key_columns, tuple_source
from penstock.engine.slot import Slot, thaw_list
from penstock.engine.steps.group_code import ANSWER, Group
from penstock.engine.steps.step import Step
from penstock.engine.window_runtime import closing, schedule_window, time_lower_bound, window_assigner
from penstock.expr.check import check
from penstock.expr.types import FLOAT64, TIMESTAMP
from penstock.flow.operators.window import Emit, Window

if TYPE_CHECKING:
    from penstock.engine.step_writer import StepWriter
    from penstock.flow.event_time_windows import Grid
    from penstock.graph.node import Node


class WatermarkInput:
    """Writer of code over the watermark read by a step.

    prefix: distinguishes several watermarks of one node. risen, mark: variables that tell whether the
          watermark rose in this tick, and its value.
    """

    def __init__(self, node: Node, writer: StepWriter, prefix: str = "") -> None:
        self._code = writer.code
        self.risen = writer.node_variable(f"{prefix}risen", node.id)
        self.mark = writer.node_variable(f"{prefix}mark", node.id)

    def begin(self) -> None:
        self._code.line(f"{self.risen} = False")

    def consume(self, row: Row) -> None:
        """Write code that advances the watermark.

        The watermarks of a tick rise, so the last one counts.
        """
        self._code.line(f"{self.risen} = True")
        self._code.line(f"{self.mark} = {row.columns[0]}")


class WindowCalendar:
    """Writer of code for the calendar of windows to close (see `penstock.engine.window_runtime`).

    prefix: distinguishes several calendars of one node.
    """

    def __init__(self, node: Node, writer: StepWriter, prefix: str = "") -> None:
        self._node, self._writer = node.id, writer
        self._slots = tuple(f"{prefix}{what}" for what in ("calendar", "counts", "due"))
        self._state = ", ".join(writer.slot(node.id, what) for what in self._slots)

    def slots(self) -> tuple[Slot, ...]:
        calendar, counts, due = (f"{self._node}.{what}" for what in self._slots)
        return (Slot(calendar, thaw_list), Slot(counts), Slot(due, thaw_list))

    def schedule_end(self, end: str, entry: str) -> None:
        """Write code that schedules an entry to be closed at `end`."""
        self._writer.code.line(
            f"{self._writer.constant('note', schedule_window)}({self._state}, {end}, {entry})"
        )

    def closed_windows(self, mark: str) -> str:
        """Return the source of the iterator over the entries that end by `mark`, with their ends."""
        return f"{self._writer.constant('closing', closing)}({self._state}, {mark})"


class WindowStep(Step):
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

    def consume(self, port: int, row: Row) -> None:
        if port == 0:
            self.consume_on_time(row)
        else:
            self.watermark.consume(row)

    def consume_on_time(self, row: Row) -> None:
        """Write the code for one row on time."""
        raise NotImplementedError

    def assign_key(self, row: Row) -> str:
        key = self.writer.fresh("key")
        self.writer.assign_key(key, [expr for _, expr in self.operator.keys], self.schema, row.columns)
        return key

    def assign_time(self, row: Row) -> str:
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
        """Write the change from one result, or None if there was none, to another."""
        with self.code.block(f"if {old} != {new}:"):
            if not self.writer.is_append(self.node.id):
                with self.code.block(f"if {old} is not None:"):
                    self.emit_tuple(old, "-1")
            self.emit_tuple(new, None if self.writer.is_append(self.node.id) else "1")


class GridStep(WindowStep):
    """Step of grid windows. Slots: groups, (key, start) -> list; and the calendar.

    Rows arrive roughly in time order, so the last row's window is tried first.
    """

    def __init__(
        self, node: Node, writer: StepWriter, operator: Window, grid: Grid, group: Group | None = None
    ) -> None:
        super().__init__(node, writer, operator, group)
        self.grid = grid
        self.calendar = WindowCalendar(node, writer)
        self.start = writer.node_variable("start", node.id)
        self.end = writer.node_variable("end", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.groups", self.group.thaw), *self.calendar.slots())

    def begin(self) -> None:
        super().begin()
        if self.grid.tumbles:
            least = self.writer.constant("least", time_lower_bound(self.type))
            self.code.line(f"{self.start} = {self.end} = {least}")

    def consume_on_time(self, row: Row) -> None:
        writer, code = self.writer, self.code
        time, key = self.assign_time(row), self.assign_key(row)
        start, end = self.start, self.end
        if not self.grid.tumbles:
            windows = writer.constant("windows", window_assigner(self.grid, self.type))
            with code.block(f"for {start}, {end} in {windows}({time}):"):
                self.fold(key, row)
            return
        with code.block(f"if not {start} <= {time} < {end}:"):
            if self.type in (FLOAT64, TIMESTAMP):
                windows = writer.constant("windows", window_assigner(self.grid, self.type))
                code.line(f"(({start}, {end}),) = {windows}({time})")
            else:
                since = time if self.grid.offset is None else f"({time} - {self.grid.offset!r})"
                code.line(f"{start} = {time} - {since} % {self.grid.size!r}")
                code.line(f"{end} = {start} + {self.grid.size!r}")
        self.fold(key, row)

    def fold(self, key: str, row: Row) -> None:
        """Write code that adds a row to the window from `start` to `end`."""
        writer, code = self.writer, self.code
        window, group = writer.fresh("window"), writer.fresh("group")
        code.line(f"{window} = ({key}, {self.start})")
        code.line(f"{group} = {self.slot_getter('groups')}({window})")
        with code.block(f"if {group} is None:"):
            code.line(f"{group} = {self.slot('groups')}[{window}] = {self.group.empty}")
            self.calendar.schedule_end(self.end, window)
        if self.updates:
            code.line(f"{self.touched}[{window}] = ({group}, {self.end})")
        self.add(group, row)

    def add(self, group: str, row: Row) -> None:
        """Write code that adds a row to its group's list."""
        self.group.add(group, row)

    def finish(self) -> None:
        if self.updates:
            self._write_updates()
        writer, code = self.writer, self.code
        end, window, group = writer.fresh("end"), writer.fresh("window"), writer.fresh("group")
        ended = self.calendar.closed_windows(self.watermark.mark)
        with code.block(f"if {self.watermark.risen}:"), code.block(f"for {end}, {window} in {ended}:"):
            if not self.updates:
                code.line(f"{group} = {self.slot_getter('groups')}({window})")
                self.group.settle(group)
                self.emit_tuple(self.answer(f"{window}[0]", f"{window}[1]", end, group))
            code.line(f"del {self.slot('groups')}[{window}]")

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
