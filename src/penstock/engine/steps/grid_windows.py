"""Windows on a grid: a group's list per key and window, dropped when the watermark reaches its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.slot import Slot, as_list
from penstock.engine.steps.group import ANSWER
from penstock.engine.steps.sessions import SessionStep
from penstock.engine.steps.step import Step, step_for
from penstock.engine.steps.windows import WindowStep
from penstock.engine.windows import before_all, closing, note, windows_of
from penstock.expr.types import FLOAT64, TIMESTAMP
from penstock.flow.operators.window import Window
from penstock.flow.windows import Grid

if TYPE_CHECKING:
    from penstock.engine.row_codegen import Row
    from penstock.engine.step_writer import StepWriter
    from penstock.engine.steps.group import Group
    from penstock.graph.node import Node


class GridStep(WindowStep):
    """Slots: groups, (key, start) -> list; and the calendar (see `penstock.engine.windows`).

    Rows come about in the order of time, so the window of the last row is tried first.
    """

    def __init__(
        self, node: Node, writer: StepWriter, operator: Window, grid: Grid, group: Group | None = None
    ) -> None:
        super().__init__(node, writer, operator, group)
        self.grid = grid
        self.start = writer.named("start", node.id)
        self.end = writer.named("end", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (
            Slot(f"{self.node.id}.groups", self.group.thaw),
            Slot(f"{self.node.id}.calendar", as_list),
            Slot(f"{self.node.id}.counts"),
            Slot(f"{self.node.id}.due", as_list),
        )

    def begin(self) -> None:
        super().begin()
        if self.grid.tumbles:
            least = self.writer.constant("least", before_all(self.type))
            self.code.line(f"{self.start} = {self.end} = {least}")

    def take(self, row: Row) -> None:
        writer, code = self.writer, self.code
        time, key = self.assign_time(row), self.assign_key(row)
        start, end = self.start, self.end
        if not self.grid.tumbles:
            windows = writer.constant("windows", windows_of(self.grid, self.type))
            with code.block(f"for {start}, {end} in {windows}({time}):"):
                self.fold(key, row)
            return
        with code.block(f"if not {start} <= {time} < {end}:"):
            if self.type in (FLOAT64, TIMESTAMP):
                windows = writer.constant("windows", windows_of(self.grid, self.type))
                code.line(f"(({start}, {end}),) = {windows}({time})")
            else:
                since = time if self.grid.offset is None else f"({time} - {self.grid.offset!r})"
                code.line(f"{start} = {time} - {since} % {self.grid.size!r}")
                code.line(f"{end} = {start} + {self.grid.size!r}")
        self.fold(key, row)

    def fold(self, key: str, row: Row) -> None:
        """Write what a row does to the window that `start` and `end` tell."""
        writer, code = self.writer, self.code
        window, group = writer.fresh("window"), writer.fresh("group")
        code.line(f"{window} = ({key}, {self.start})")
        code.line(f"{group} = {self.get('groups')}({window})")
        with code.block(f"if {group} is None:"):
            code.line(f"{group} = {self.slot('groups')}[{window}] = {self.group.empty}")
            noted = writer.constant("note", note)
            code.line(f"{noted}({self._calendar()}, {self.end}, {window})")
        if self.updates:
            code.line(f"{self.touched}[{window}] = ({group}, {self.end})")
        self.add(group, row)

    def add(self, group: str, row: Row) -> None:
        """Write what a row does to its group's list."""
        self.group.add(group, row)

    def _calendar(self) -> str:
        return ", ".join(self.slot(what) for what in ("calendar", "counts", "due"))

    def finish(self) -> None:
        if self.updates:
            self._tell_updates()
        writer, code = self.writer, self.code
        end, window, group = writer.fresh("end"), writer.fresh("window"), writer.fresh("group")
        with code.block(f"if {self.risen}:"):
            ended = writer.constant("closing", closing)
            with code.block(f"for {end}, {window} in {ended}({self._calendar()}, {self.mark}):"):
                if not self.updates:
                    code.line(f"{group} = {self.get('groups')}({window})")
                    self.group.settle(group)
                    self.emit_answer(self.answer(f"{window}[0]", f"{window}[1]", end, group), None)
                code.line(f"del {self.slot('groups')}[{window}]")

    def _tell_updates(self) -> None:
        writer, code = self.writer, self.code
        end, window, group = writer.fresh("end"), writer.fresh("window"), writer.fresh("group")
        with code.block(f"for {window}, ({group}, {end}) in {self.touched}.items():"):
            self.group.settle(group)
            old = writer.fresh("old")
            code.line(f"{old} = {group}[{ANSWER}]")
            new = self.answer(f"{window}[0]", f"{window}[1]", end, group)
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_update(old, new)


@step_for.register(Window)
def _window(operator: Window, node: Node, writer: StepWriter) -> Step:
    if isinstance(operator.shape, Grid):
        return GridStep(node, writer, operator, operator.shape)
    return SessionStep(node, writer, operator, operator.shape)
