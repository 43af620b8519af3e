"""Steps of session windows: per key, rows in close succession; one row may merge two sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engine.session_runtime import GROUP, LAST, NUMBER, START, SessionRule
from headrace.engine.steps.group_code import ANSWER
from headrace.engine.steps.windows import WindowStep, grid_step
from headrace.lowering.slot import Slot, Thaw, thaw_list
from headrace.lowering.step import Step, step_for
from headrace.operators.event_time.due_calendar import thaw_calendar
from headrace.operators.event_time.window import Grid, Sessions, Window

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.row_code import Row
    from headrace.lowering.step_writer import StepWriter


def thaw_sessions(thaw_group: Thaw) -> Thaw:
    """Thaw function for a key's sessions."""

    def thaw(sessions: Any) -> list[list[Any]]:
        return [[start, last, number, thaw_group(group)] for start, last, number, group in sessions]

    return thaw


class SessionStep(WindowStep):
    """Step of session windows.

    Slots: sessions, key -> list of sessions; and their calendar (see `headrace.engine.session_runtime`).

    `touched`: number -> key and session; `absorbed`: the sessions that became part of others.
    """

    def __init__(self, node: Node, writer: StepWriter, operator: Window, shape: Sessions) -> None:
        super().__init__(node, writer, operator)
        self.shape = shape
        self.absorbed = writer.node_variable("absorbed", node.id)
        self.rule = writer.node_variable("rule", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (
            Slot(f"{self.node.id}.sessions", thaw_sessions(self.group.thaw)),
            Slot(f"{self.node.id}.calendar", thaw_calendar),
            Slot(f"{self.node.id}.due", thaw_list),
        )

    def begin(self) -> None:
        super().begin()
        self._write_rule()
        self.code.line(f"{self.absorbed} = []")

    def _write_rule(self) -> None:
        writer, node = self.writer, self.node.id
        writer.function(f"def empty_of_{node}():", f"return {self.group.empty}")
        with writer.function_body(node, f"def merge_of_{node}(group, other):"):
            self.group.merge("group", self.group.part_columns("other"))
        rule = writer.constant("SessionRule", SessionRule)
        gap, type_ = writer.constant("gap", self.shape.gap), writer.constant("type", self.type)
        made = f"{rule}({gap}, {type_}, empty_of_{node}, merge_of_{node})"
        writer.functions.line(f"{self.rule} = {made}")

    def consume_on_time(self, row: Row) -> None:
        time, key = self.assign_time(row), self.assign_key(row)
        self.group.add(self.enter("enter", key, time), row)

    def enter(self, how: str, key: str, *times: str) -> str:
        """Write the code that finds the session of a row or of some; return the variable with its list."""
        code, writer = self.code, self.writer
        session, group = writer.fresh("session"), writer.fresh("group")
        given = ", ".join((self._state(), key, *times, self.absorbed))
        code.line(f"{session} = {self.rule}.{how}({given})")
        code.line(f"{group} = {session}[{GROUP}]")
        if self.updates:
            code.line(f"{self.touched}[{session}[{NUMBER}]] = ({key}, {session})")
        return group

    def _state(self) -> str:
        return ", ".join(self.slot(what) for what in ("sessions", "calendar", "due"))

    def finish(self) -> None:
        if self.updates:
            self._write_updates()
        code, writer = self.code, self.writer
        key, end, session = writer.fresh("key"), writer.fresh("end"), writer.fresh("session")
        closing = f"{self.rule}.closing({self._state()}, {self.watermark.mark})"
        with (
            code.block(f"if {self.watermark.risen}:"),
            code.block(f"for {key}, {end}, {session} in {closing}:"),
        ):
            if self.updates:
                code.line("pass")
                return
            group = writer.fresh("group")
            code.line(f"{group} = {session}[{GROUP}]")
            self.group.settle(group)
            self.emit_tuple(self.answer(key, f"{session}[{START}]", end, group))

    def _write_updates(self) -> None:
        code, writer = self.code, self.writer
        key, session, group = writer.fresh("key"), writer.fresh("session"), writer.fresh("group")
        old, end = writer.fresh("old"), writer.fresh("end")
        with code.block(f"for {session} in {self.absorbed}:"):
            code.line(f"{self.touched}.pop({session}[{NUMBER}], None)")
            if not writer.is_append(self.node.id):
                code.line(f"{old} = {session}[{GROUP}][{ANSWER}]")
                with code.block(f"if {old} is not None:"):
                    self.emit_tuple(old, "-1")
        with code.block(f"for {key}, {session} in {self.touched}.values():"):
            code.line(f"{group} = {session}[{GROUP}]")
            code.line(f"{end} = {session}[{LAST}] + {writer.constant('gap', self.shape.gap)}")
            self.group.settle(group)
            code.line(f"{old} = {group}[{ANSWER}]")
            new = self.answer(key, f"{session}[{START}]", end, group)
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_update(old, new)


@step_for.register(Window)
def _window(operator: Window, node: Node, writer: StepWriter) -> Step:
    if isinstance(operator.shape, Grid):
        return grid_step(operator)(node, writer, operator, operator.shape)
    return SessionStep(node, writer, operator, operator.shape)
