"""Steps that drop state behind the watermark: distinct, first within a time, join."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.lowering.row_code import Row
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import Step, register_step, step_for
from headrace.operators.distinct import DistinctOnTime
from headrace.operators.event_time.due_calendar import ExpiringStep, ExpiryCalendar, bucket_assigner
from headrace.operators.event_time.watermark import time_lower_bound
from headrace.operators.join.interval_join import JoinOnTime
from headrace.operators.join.operator import SIDES
from headrace.operators.join.steps import JoinConditionWriter

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


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
