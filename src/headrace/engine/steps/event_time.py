"""Steps of event time: on-time and late rows, watermarks, and the minimum of several watermarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.window_runtime import time_lower_bound, watermark_function
from headrace.expr.types import FLOAT64, INTEGERS, TIMESTAMP, Field, Schema
from headrace.lowering.row_code import Row
from headrace.lowering.slot import Slot, thaw_dict
from headrace.lowering.step import Step, register_step
from headrace.operators.late_rows import LateRows
from headrace.operators.least_watermark import LeastWatermark
from headrace.operators.on_time import OnTime
from headrace.operators.watermark import Watermark

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.watermark_policy import WatermarkPolicy


class WatermarkWriter:
    """Writer of code that advances the watermark with row times.

    Slot: () -> (greatest time, watermark, number of late rows).
    """

    def __init__(self, node: Node, writer: StepWriter, clock: WatermarkPolicy) -> None:
        self._node, self._writer, self._code = node, writer, writer.code
        schema = writer.input_schema(node, 0)
        at = schema.position(clock.column)
        assert at is not None
        self.at = at
        self._field = schema.fields[at]
        self._clock = clock
        self.top = writer.node_variable("top", node.id)
        self.mark = writer.node_variable("mark", node.id)
        self.count = writer.node_variable("late", node.id)

    def slot(self) -> Slot:
        return Slot(f"{self._node.id}.clock")

    def begin(self) -> None:
        least = self._writer.constant("least", time_lower_bound(self._field.type))
        get = self._writer.slot_get(self._node.id, "clock")
        self._code.line(f"{self.top}, {self.mark}, {self.count} = {get}(()) or ({least}, {least}, 0)")

    def keep(self) -> None:
        slot = self._writer.slot(self._node.id, "clock")
        self._code.line(f"{slot}[()] = ({self.top}, {self.mark}, {self.count})")

    def invalid_time_test(self, time: str) -> str | None:
        """Return a test for a row without a valid time; None if every row has one."""
        tests: list[str] = []
        if self._field.nullable:
            tests.append(f"{time} is None")
        if self._field.type == FLOAT64:
            tests.append(f"{time} - {time} != 0.0")
        return " or ".join(tests) if tests else None

    def advance_watermark(self, time: str) -> None:
        """Write code that advances the watermark to a valid time."""
        with self._code.block(f"if {time} > {self.top}:"):
            self._code.line(f"{self.top} = {time}")
            self._code.line(f"{self.mark} = {self.mark_source(time)}")

    def mark_source(self, time: str) -> str:
        """Return the source of the watermark for a maximum time."""
        passed, every = f"{time} - {self._clock.lateness!r}", self._clock.every
        if self._field.type != TIMESTAMP and every is None:
            return passed
        if self._field.type in INTEGERS:
            return f"({passed}) // {every!r} * {every!r}"
        return f"{self._writer.constant('mark', watermark_function(self._clock, self._field.type))}({time})"


@register_step(OnTime, LateRows)
class PunctualityStep(Step):
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

    def consume(self, port: int, row: Row) -> None:
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


@register_step(Watermark)
class WatermarkStep(Step):
    """Watermark of a tick's maximum time. Slots: the clock, and () -> True once the input has ended."""

    operator: Watermark
    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self._clockwork = WatermarkWriter(node, writer, self.operator.clock)
        self._bounded = writer.analysis.facts[node.inputs[0]].bounded

    def slots(self) -> tuple[Slot, ...]:
        return (self._clockwork.slot(), Slot(f"{self.node.id}.ended"))

    def finish(self) -> None:
        writer, code = self.writer, self.code
        rows, end = (writer.buffer(source) for source in self.node.inputs)
        ended, slot = self.slot_getter("ended"), self.slot("ended")
        if self._bounded:
            end = f"{end} or {rows}"
        with code.block(f"if {end}:"), code.block(f"if {ended}(()) is None:"):
            code.line(f"{slot}[()] = True")
            self.emit(Row(("None",)))
        with code.block(f"elif {rows}:"):
            self._read(rows)

    def _read(self, rows: str) -> None:
        code, clockwork = self.code, self._clockwork
        clockwork.begin()
        row, time, before = (self.writer.fresh(name) for name in ("row", "time", "before"))
        code.line(f"{before} = {clockwork.top}")
        with code.block(f"for {row} in {rows}:"):
            code.line(f"{time} = {row}[{clockwork.at}]")
            unusable = clockwork.invalid_time_test(time)
            test = f"{time} > {clockwork.top}"
            with code.block(f"if {test if unusable is None else f'not ({unusable}) and {test}'}:"):
                code.line(f"{clockwork.top} = {time}")
        with code.block(f"if {clockwork.top} > {before}:"):
            code.line(f"{before} = {clockwork.mark}")
            code.line(f"{clockwork.mark} = {clockwork.mark_source(clockwork.top)}")
            clockwork.keep()
            with code.block(f"if {clockwork.mark} > {before}:"):
                self.emit(Row((clockwork.mark,)))


@register_step(LeastWatermark)
class LeastWatermarkStep(Step):
    """Minimum of several watermarks. Slot: () -> {input number: its watermark, moved; -1: last emitted}.

    A bounded input is complete from its first tick on, so it does not hold the minimum back.
    """

    operator: LeastWatermark

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        facts = [writer.analysis.facts[source] for source in node.inputs]
        self._counting = [port for port, fact in enumerate(facts) if not fact.bounded]
        self._marks = writer.node_variable("marks", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.marks", thaw_dict),)

    def begin(self) -> None:
        self.code.line(f"{self._marks} = {self.slot_getter('marks')}(()) or {{}}")

    def consume(self, port: int, row: Row) -> None:
        value = self.writer.fresh("value")
        self.code.line(f"{value} = {row.columns[0]}")
        if self.operator.moves[port]:
            with self.code.block(f"if {value} is not None:"):
                for move in self.operator.moves[port]:
                    schema = Schema((Field("value", move.type),))
                    self.code.line(f"{value} = {self.writer.value(move.expr, schema, (value,))}")
        self.code.line(f"{self._marks}[{port}] = {value}")

    def finish(self) -> None:
        code, marks = self.code, self._marks
        least, ports = self.writer.fresh("least"), tuple(self._counting)
        with code.block(f"if {marks}:"):
            code.line(f"{self.slot('marks')}[()] = {marks}")
            with code.block(f"if all(port in {marks} for port in {ports}):"):
                values = f"{marks}[port] for port in {ports} if {marks}[port] is not None"
                code.line(f"{least} = min(({values}), default=None)")
                with code.block(f"if -1 not in {marks} or {least} != {marks}[-1]:"):
                    code.line(f"{marks}[-1] = {least}")
                    self.emit(Row((least,)))
