"""Steps that drop state behind the watermark: distinct, first within a time, join."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from headrace.engine.steps.windows import WatermarkInput, WindowCalendar
from headrace.engine.window_runtime import (
    bucket_assigner,
    bucket_function,
    is_first,
    time_lower_bound,
    times_still_near,
)
from headrace.lowering.row_code import Row
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import Step, register_step, step_for
from headrace.operators.distinct import DistinctOnTime
from headrace.operators.first_within import FirstWithin
from headrace.operators.join.interval_join import JoinOnTime
from headrace.operators.join.operator import SIDES
from headrace.operators.join.steps import JoinConditionWriter

if TYPE_CHECKING:
    from collections.abc import Generator

    from headrace.expr.types import DataType
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.time_spans import Span


class ExpiryCalendar:
    """Writer of code for a calendar of keys to drop once the watermark has passed their time bucket.

    prefix: distinguishes several calendars of one node. width: of the buckets. type: of the times.
    after:  how far the watermark must have passed. If given, it is the watermark of another input, so
            that rows may come to buckets it has passed: slot `passed`, () -> the first that it has not.
    """

    def __init__(
        self,
        node: Node,
        writer: StepWriter,
        prefix: str,
        width: Span,
        type: DataType,
        after: Span | None = None,
    ) -> None:
        self._writer, self._code = writer, writer.code
        self._calendar = WindowCalendar(node, writer, prefix)
        self.watermark = WatermarkInput(node, writer, prefix)
        self._bucket = writer.constant("bucket", bucket_function(width, type))
        self._after = None if after is None else writer.constant("after", after)
        self._node, self._passed = node.id, f"{prefix}passed"
        self._open_from = writer.node_variable(f"{prefix}open_from", node.id)

    def slots(self) -> tuple[Slot, ...]:
        passed = () if self._after is None else (Slot(f"{self._node}.{self._passed}"),)
        return (*self._calendar.slots(), *passed)

    def begin(self) -> None:
        """Write the code to run before all rows."""
        self.watermark.begin()
        if self._after is not None:
            self._code.line(f"{self._open_from} = {self._writer.slot_get(self._node, self._passed)}(())")
            with self._code.block(f"if {self._open_from} is None:"):
                self._code.line(f"{self._open_from} = {self._writer.constant('least', -inf)}")

    @contextmanager
    def if_open(self, bucket: str) -> Generator[None]:
        """Open a block that runs if the other input's watermark had not passed a bucket before this tick."""
        with self._code.block(f"if {bucket} >= {self._open_from}:"):
            yield

    def bucket(self, time: str, *after: str) -> str:
        """Return the source of the bucket number of a time, or of one a span after it."""
        return f"{self._bucket}({', '.join((time, *after))})"

    def schedule_expiry(self, bucket: str, key: str) -> None:
        """Write code that schedules `key` to be dropped once the watermark has passed its bucket."""
        self._calendar.schedule_end(f"{bucket} + 1", key)

    @contextmanager
    def each_passed(self) -> Generator[str]:
        """Open a block that runs for each key to drop."""
        code, writer, top = self._code, self._writer, self.watermark.mark
        number, key = writer.fresh("number"), writer.fresh("key")
        with code.block(f"if {self.watermark.risen}:"):
            mark = self.bucket(top, *(() if self._after is None else (f"-{self._after}",)))
            code.line(f"{number} = None if {top} is None else {mark}")
            if self._after is not None:
                all_passed = writer.constant("all_passed", inf)
                slot = writer.slot(self._node, self._passed)
                code.line(f"{slot}[()] = {all_passed} if {number} is None else {number}")
            with code.block(f"for _, {key} in {self._calendar.closed_entries(number)}:"):
                yield key


class ExpiringStep(Step):
    """Base of steps with one input and its watermark."""

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, time: str, width: Span) -> None:
        super().__init__(node, writer)
        at = node.schema.position(time)
        assert at is not None
        self._at = at
        self._forgetting = ExpiryCalendar(node, writer, "", width, node.schema.fields[at].type)

    def begin(self) -> None:
        self._forgetting.begin()

    def consume(self, port: int, row: Row) -> None:
        if port == 1:
            self._forgetting.watermark.consume(row)
        else:
            self.consume_on_time(row)

    def consume_on_time(self, row: Row) -> None:
        """Write the code for one row on time."""
        raise NotImplementedError


class DistinctOnTimeStep(ExpiringStep):
    """Step of distinct with state expiry. Slot: copies, row -> 1."""

    def __init__(self, node: Node, writer: StepWriter, operator: DistinctOnTime) -> None:
        super().__init__(node, writer, operator.time, operator.width)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.copies"), *self._forgetting.slots())

    def consume_on_time(self, row: Row) -> None:
        writer, code = self.writer, self.code
        key = writer.fresh("row")
        code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        with code.block(f"if {self.slot_getter('copies')}({key}) is None:"):
            code.line(f"{self.slot('copies')}[{key}] = 1")
            self._forgetting.schedule_expiry(self._forgetting.bucket(row.columns[self._at]), key)
            self.emit_unpacked(key)

    def finish(self) -> None:
        with self._forgetting.each_passed() as key:
            self.code.line(f"del {self.slot('copies')}[{key}]")


class FirstWithinStep(ExpiringStep):
    """Step of first_within. Slot: kept, key -> times of the emitted rows, in order."""

    operator: FirstWithin

    def __init__(self, node: Node, writer: StepWriter, operator: FirstWithin) -> None:
        super().__init__(node, writer, operator.time, operator.within)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.kept", thaw_list), *self._forgetting.slots())

    def consume_on_time(self, row: Row) -> None:
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


@register_step(JoinOnTime)
class JoinOnTimeStep(Step):
    """Step of the join with state expiry. Slot per side: (key, time bucket) -> rows."""

    operator: JoinOnTime
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
        """Return the variables of a side's last buckets. Rows come roughly in time order."""
        names = ("start", "end", "own", "near")
        return tuple(self.writer.node_variable(f"{SIDES[port]}_{name}", self.node.id) for name in names)

    def consume(self, port: int, row: Row) -> None:
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

    def _match(self, port: int, row: Row, key: str, near: str) -> None:
        writer, code, other = self.writer, self.code, 1 - port
        number, found, partner = writer.fresh("number"), writer.fresh("found"), writer.fresh("row")
        with code.block(f"for {number} in {near}:"):
            code.line(f"{found} = {self.slot_getter(SIDES[other])}(({key}, {number}))")
            with code.block(f"if {found} is not None:"), code.block(f"for {partner} in {found}:"):
                columns = writer.unpack(self.input_schema(other), partner)
                pair = self._rows.pair(port, row.columns, columns)
                with self._rows.where_residual(pair):
                    self.emit(Row(self._rows.output(pair)))

    def _add(self, port: int, row: Row, key: str, number: str) -> None:
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


@step_for.register(DistinctOnTime)
def _distinct(operator: DistinctOnTime, node: Node, writer: StepWriter) -> Step:
    return DistinctOnTimeStep(node, writer, operator)


@step_for.register(FirstWithin)
def _first_within(operator: FirstWithin, node: Node, writer: StepWriter) -> Step:
    return FirstWithinStep(node, writer, operator)
