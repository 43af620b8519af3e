"""Temporal filter: rows are held in a calendar of their moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.steps.windows import WindowCalendar
from headrace.lowering.row_code import Row
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step
from headrace.operators.temporal_filter import TemporalFilter

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


@register_step(TemporalFilter)
class TemporalFilterStep(Step):
    """Step of a temporal filter.

    Slots: held, row -> copies, of rows whose moment is to come; now, () -> the clock; the calendar. A row
    stays held with 0 copies, so that it is in the calendar once however often it comes and goes.
    """

    operator: TemporalFilter
    keeps_state = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self._calendar = WindowCalendar(node, writer)
        self._now = writer.node_variable("now", node.id)
        # How the clock compares with a moment that has come.
        self._reached = ">=" if self.operator.presence.turns_at else ">"

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.held"), Slot(f"{self.node.id}.now"), *self._calendar.slots())

    def begin(self) -> None:
        self.code.line(f"{self._now} = {self.slot_getter('now')}(())")

    def consume(self, port: int, row: Row) -> None:
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

    def _place(self, row: Row, moment: str) -> None:
        writer, code, key = self.writer, self.code, self.writer.fresh("row")
        code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        begins = self.operator.presence.begins
        with code.block(f"if {self._now} is None or not {self._now} {self._reached} {moment}:"):
            if not begins:
                self._emit(key, row.copies)
            held = writer.fresh("held")
            code.line(f"{held} = {self.slot_getter('held')}({key})")
            with code.block(f"if {held} is None:"):
                self._calendar.schedule_end(moment, key)
                code.line(f"{held} = 0")
            code.line(f"{self.slot('held')}[{key}] = {held} + {row.copies}")
        if begins:
            with code.block("else:"):
                self._emit(key, row.copies)

    def _emit(self, key: str, copies: str) -> None:
        self.emit(Row(self.writer.unpack(self.node.schema, key), key, copies))

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
                self._emit(key, copies if self.operator.presence.begins else f"-{copies}")
