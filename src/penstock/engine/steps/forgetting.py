"""Operators that forget what the watermark has passed: distinct, first within a time, join."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.engine.forgetting import is_first, still_near
from penstock.engine.row_codegen import Row, tuple_source
from penstock.engine.slot import Slot, as_list
from penstock.engine.steps.joined_rows import JoinedRows
from penstock.engine.steps.step import Step, step_for
from penstock.engine.windows import bucket_of, closing, note
from penstock.expr.types import FLOAT64
from penstock.flow.operators.distinct_on_time import DistinctOnTime
from penstock.flow.operators.first_within import FirstWithin
from penstock.flow.operators.join_on_time import JoinOnTime

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.engine.step_writer import StepWriter
    from penstock.expr.types import DataType
    from penstock.flow.spans import Span
    from penstock.graph.node import Node


class Forgetting:
    """Writes a calendar of keys to be forgotten, by pieces of time (see `penstock.engine.windows`).

    name:   tells several of a node apart.
    width:  of the pieces. type: of the times.
    """

    def __init__(
        self,
        node: Node,
        writer: StepWriter,
        name: str,
        width: Span,
        type: DataType,
        after: Span | None = None,
    ) -> None:
        self._node, self._writer, self._code = node.id, writer, writer.code
        self._slots = tuple(f"{name}{what}" for what in ("calendar", "counts", "due"))
        self._risen, self._mark = writer.named(f"{name}risen", node.id), writer.named(f"{name}mark", node.id)
        self._bucket = writer.constant("bucket", bucket_of(width, type))
        self._after = None if after is None else writer.constant("after", after)

    def slots(self) -> tuple[Slot, ...]:
        calendar, counts, due = (f"{self._node}.{what}" for what in self._slots)
        return (Slot(calendar, as_list), Slot(counts), Slot(due, as_list))

    def begin(self) -> None:
        self._code.line(f"{self._risen} = False")

    def hear(self, row: Row) -> None:
        """Write that the watermark rose to the value of `row`."""
        self._code.line(f"{self._risen} = True")
        self._code.line(f"{self._mark} = {row.columns[0]}")

    def bucket(self, time: str) -> str:
        """Source of the number of the piece that a time is in."""
        return f"{self._bucket}({time})"

    def note(self, bucket: str, key: str) -> None:
        """Write that `key` is to be forgotten when the watermark has passed all of a piece of time."""
        noted = self._writer.constant("note", note)
        self._code.line(f"{noted}({self._state()}, {bucket} + 1, {key})")

    @contextmanager
    def each_passed(self) -> Generator[str]:
        """What is written inside runs for each key that is to be forgotten."""
        code, writer = self._code, self._writer
        number, key = writer.fresh("number"), writer.fresh("key")
        with code.block(f"if {self._risen}:"):
            mark = self._mark if self._after is None else f"{self._mark} - {self._after}"
            code.line(f"{number} = None if {self._mark} is None else {self._bucket}({mark})")
            ended = writer.constant("closing", closing)
            with code.block(f"for _, {key} in {ended}({self._state()}, {number}):"):
                yield key

    @property
    def mark(self) -> str:
        """The variable with the watermark, where it rose."""
        return self._mark

    def _state(self) -> str:
        return ", ".join(self._writer.slot(self._node, what) for what in self._slots)


class DistinctOnTimeStep(Step):
    """Slot: copies, row -> 1."""

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, operator: DistinctOnTime) -> None:
        super().__init__(node, writer)
        at = node.schema.position(operator.time)
        assert at is not None
        self._at = at
        self._forgetting = Forgetting(node, writer, "", operator.width, node.schema.fields[at].type)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.copies"), *self._forgetting.slots())

    def begin(self) -> None:
        self._forgetting.begin()

    def consume(self, port: int, row: Row) -> None:
        if port == 1:
            self._forgetting.hear(row)
            return
        writer, code = self.writer, self.code
        key = writer.fresh("row")
        code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        with code.block(f"if {writer.slot_get(self.node.id, 'copies')}({key}) is None:"):
            code.line(f"{writer.slot(self.node.id, 'copies')}[{key}] = 1")
            self._forgetting.note(self._forgetting.bucket(row.columns[self._at]), key)
            self.emit(Row(writer.unpack(self.node.schema, key), key))

    def finish(self) -> None:
        with self._forgetting.each_passed() as key:
            self.code.line(f"del {self.writer.slot(self.node.id, 'copies')}[{key}]")


class FirstWithinStep(Step):
    """Slot: kept, key -> the times of the rows that left, in order."""

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, operator: FirstWithin) -> None:
        super().__init__(node, writer)
        self._operator = operator
        at = node.schema.position(operator.time)
        assert at is not None
        self._at = at
        self._forgetting = Forgetting(node, writer, "", operator.within, node.schema.fields[at].type)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.kept", as_list), *self._forgetting.slots())

    def begin(self) -> None:
        self._forgetting.begin()

    def consume(self, port: int, row: Row) -> None:
        if port == 1:
            self._forgetting.hear(row)
            return
        writer, code = self.writer, self.code
        key, kept, time = writer.fresh("key"), writer.fresh("kept"), row.columns[self._at]
        writer.assign_key(key, self._operator.keys, self.node.schema, row.columns)
        within = writer.constant("within", self._operator.within)
        code.line(f"{kept} = {writer.slot_get(self.node.id, 'kept')}({key})")
        with code.block(f"if {kept} is None:"):
            code.line(f"{kept} = {writer.slot(self.node.id, 'kept')}[{key}] = []")
        with code.block(f"if {writer.constant('is_first', is_first)}({kept}, {time}, {within}):"):
            self._forgetting.note(self._forgetting.bucket(f"{time} + {within}"), key)
            self.emit(row)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        kept, slot = writer.fresh("kept"), writer.slot(self.node.id, "kept")
        still, within = writer.constant("still_near", still_near), self._operator.within
        with self._forgetting.each_passed() as key:
            times = f"{writer.slot_get(self.node.id, 'kept')}({key}) or []"
            code.line(
                f"{kept} = {still}({times}, {self._forgetting.mark}, {writer.constant('within', within)})"
            )
            with code.block(f"if {kept}:"):
                code.line(f"{slot}[{key}] = {kept}")
            with code.block(f"elif {writer.slot_get(self.node.id, 'kept')}({key}) is not None:"):
                code.line(f"del {slot}[{key}]")


SIDES = ("left", "right")


class JoinOnTimeStep(Step):
    """Per side a slot: (key, piece of time) -> rows. A row looks at the pieces that may hold partners."""

    keeps_state = True
    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter, operator: JoinOnTime) -> None:
        super().__init__(node, writer)
        self._operator = operator
        self._rows = JoinedRows(replace(node, inputs=node.inputs[:2]), writer, operator.join)
        schemas = [writer.input_schema(node, port) for port in (0, 1)]
        self._at = [s.names.index(t) for s, t in zip(schemas, operator.times, strict=True)]
        type_ = schemas[0].fields[self._at[0]].type
        # Sums of floats are rounded, so a partner may stand one piece beside where it should.
        self._beside = 1 if type_ == FLOAT64 else 0
        low: Any = operator.low
        self._forgetting = (
            Forgetting(node, writer, "left_", operator.width, type_, operator.high),
            Forgetting(node, writer, "right_", operator.width, type_, -low),
        )

    def slots(self) -> tuple[Slot, ...]:
        sides = (Slot(f"{self.node.id}.{side}", as_list) for side in SIDES)
        return (*sides, *self._forgetting[0].slots(), *self._forgetting[1].slots())

    def begin(self) -> None:
        for forgetting in self._forgetting:
            forgetting.begin()

    def consume(self, port: int, row: Row) -> None:
        if port > 1:
            # What one side has passed, the other may forget.
            self._forgetting[3 - port].hear(row)
            return
        with self._rows.key_of(port, row) as key:
            if row.whole is None:
                whole = self.writer.fresh("row")
                self.code.line(f"{whole} = {tuple_source(row.columns)}")
                row = Row(row.columns, whole)
            self._match(port, row, key)
            self._add(port, row, key)

    def _match(self, port: int, row: Row, key: str) -> None:
        writer, code, other = self.writer, self.code, 1 - port
        time, bucket = row.columns[self._at[port]], self._forgetting[other].bucket
        low, high = (writer.constant("span", s) for s in (self._operator.low, self._operator.high))
        first, last = (
            (f"{time} + {low}", f"{time} + {high}") if port == 0 else (f"{time} - {high}", f"{time} - {low}")
        )
        number, found, partner = writer.fresh("number"), writer.fresh("found"), writer.fresh("row")
        numbers = f"range({bucket(first)} - {self._beside}, {bucket(last)} + {1 + self._beside})"
        with code.block(f"for {number} in {numbers}:"):
            code.line(f"{found} = {writer.slot_get(self.node.id, SIDES[other])}(({key}, {number}))")
            with code.block(f"if {found} is not None:"), code.block(f"for {partner} in {found}:"):
                columns = writer.unpack(writer.input_schema(self.node, other), partner)
                pair = row.columns + columns if port == 0 else columns + row.columns
                with self._rows.where_residual(pair):
                    self.emit(Row(self._rows.output(pair)))

    def _add(self, port: int, row: Row, key: str) -> None:
        writer, code = self.writer, self.code
        number, place, own = writer.fresh("number"), writer.fresh("place"), writer.fresh("own")
        code.line(f"{number} = {self._forgetting[port].bucket(row.columns[self._at[port]])}")
        code.line(f"{place} = ({key}, {number})")
        code.line(f"{own} = {writer.slot_get(self.node.id, SIDES[port])}({place})")
        with code.block(f"if {own} is None:"):
            code.line(f"{writer.slot(self.node.id, SIDES[port])}[{place}] = [{row.whole}]")
            self._forgetting[port].note(number, place)
        with code.block("else:"):
            code.line(f"{own}.append({row.whole})")

    def finish(self) -> None:
        for side, forgetting in zip(SIDES, self._forgetting, strict=True):
            with forgetting.each_passed() as place:
                self.code.line(f"del {self.writer.slot(self.node.id, side)}[{place}]")


@step_for.register(DistinctOnTime)
def _distinct(operator: DistinctOnTime, node: Node, writer: StepWriter) -> Step:
    return DistinctOnTimeStep(node, writer, operator)


@step_for.register(FirstWithin)
def _first_within(operator: FirstWithin, node: Node, writer: StepWriter) -> Step:
    return FirstWithinStep(node, writer, operator)


@step_for.register(JoinOnTime)
def _join(operator: JoinOnTime, node: Node, writer: StepWriter) -> Step:
    return JoinOnTimeStep(node, writer, operator)
