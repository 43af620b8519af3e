"""Interval join: a join that bounds the time between the rows of a pair, and so forgets rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.constructors import col, left, right
from headrace.expr.tree import Column
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import (
    EverywhereSlot,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    calendar_slots,
    place_by_key,
)
from headrace.lowering.examples import Examples
from headrace.lowering.forms import lower_operator
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import Step, register_step
from headrace.operators.event_time.due_calendar import ExpiryCalendar, bucket_assigner
from headrace.operators.event_time.watermark import time_lower_bound
from headrace.operators.join.operator import SIDES, lower_join
from headrace.operators.join.steps import JoinConditionWriter
from headrace.operators.time_spans import shown_span
from headrace.operators.unservable import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.expr.tree import Expr
    from headrace.expr.types import Field, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import BatchSite
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.join.operator import Join
    from headrace.operators.time_spans import Span


@dataclass(frozen=True, slots=True)
class JoinOnTime(Operator):
    """Inner join whose condition bounds the time difference of a pair.

    join:  the join, whose condition implies `low <= right time - left time <= high`.
    times: the time columns of both sides. width: length of the time intervals in which rows are kept and
           forgotten together.

    The output equals that of the join. A left row is forgotten when the right watermark is `high` after its
    time, a right row when the left watermark is `low` before its own.
    A tick without rows emits nothing.

    >>> from headrace import col, left, right
    >>> from headrace.testing import show
    >>> def soon(a, b):
    ...     asked, given = (s.watermark(col.value, lateness=5) for s in (a, b))
    ...     after = (right.value >= left.value) & (right.value <= left.value + 2)
    ...     return asked.join(given, on=(left.value % 2 == right.value % 2) & after, suffix="_b")
    >>> show(soon, a=[1, 4], b=[2, 3, 4])
    + (value=1, value_b=3)
    + (value=4, value_b=4)
    """

    kind: ClassVar[str] = "join"
    plan_name: ClassVar[str | None] = "join_on_time"
    examples: ClassVar[Examples] = {
        "of times": lambda x, y: x.watermark(col.a, lateness=1).join(
            x.watermark(col.a, lateness=1),
            on=(left.b == right.b) & right.a.between(left.a, left.a + 1),
            suffix="_y",
        )
    }
    join: Join
    times: tuple[str, str]
    low: Span
    high: Span
    width: Span

    def ports(self) -> tuple[Port, ...]:
        watermarks = (Port(f"{side} watermark", completeness=True) for side in ("left", "right"))
        return (Port("left"), Port("right"), *watermarks)

    def output(self, context: CheckContext) -> Columns:
        columns = self.join.pair_columns(context)
        made = context.with_state_expiry(self.join)
        context.require_as_built_by_flow(made, self, "it forgets what could still match")
        for port, time in enumerate(self.times):
            context.require_watermark(2 + port, Column(time), port)
        return columns

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        reads = self.join.reads(inputs, output, live)
        assert reads is not None
        on_left, on_right = reads
        watermarks = (set(schema.names) for schema in inputs[2:])
        return {*on_left, self.times[0]}, {*on_right, self.times[1]}, *watermarks

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        join, fields = self.join.over(inputs, kept, output, live)
        return replace(self, join=join), fields

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (*self.join.lineage(inputs, output), {}, {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        sides = KeyedSlot(0, of_pair=True), KeyedSlot(1, of_pair=True)
        return {
            "left": sides[0],
            "right": sides[1],
            **calendar_slots("left_", sides[0]),
            **calendar_slots("right_", sides[1]),
            "left_passed": EverywhereSlot(),
            "right_passed": EverywhereSlot(),
        }

    def placement(self) -> Placement:
        return place_by_key(self.join.left_keys, self.join.right_keys, None, None)

    def needs(self) -> tuple[Need, ...]:
        why = "a row that was forgotten could not be taken back"
        fix = "put the watermark behind what takes rows back"
        return (Need(0, "append", why, fix), Need(1, "append", why, fix))

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return self.join.gives(inputs[:2])

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.join.expressions()

    def describe(self) -> str:
        apart = f"{shown_span(self.low)} to {shown_span(self.high)}"
        return f"{self.join.describe()}; apart by {apart}, forgets what has passed"


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

    def consume(self, port: int, row: RowCode) -> None:
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

    def _match(self, port: int, row: RowCode, key: str, near: str) -> None:
        writer, code, other = self.writer, self.code, 1 - port
        number, found, partner = writer.fresh("number"), writer.fresh("found"), writer.fresh("row")
        with code.block(f"for {number} in {near}:"):
            code.line(f"{found} = {self.slot_getter(SIDES[other])}(({key}, {number}))")
            with code.block(f"if {found} is not None:"), code.block(f"for {partner} in {found}:"):
                columns = writer.unpack(self.input_schema(other), partner)
                pair = self._rows.pair(port, row.columns, columns)
                with self._rows.where_residual(pair):
                    self.emit(RowCode(self._rows.output(pair)))

    def _add(self, port: int, row: RowCode, key: str, number: str) -> None:
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


@lower_operator.register(JoinOnTime)
def _on_spark(operator: JoinOnTime, site: BatchSite) -> DataFrame:
    # Time tells it what to forget, and a batch forgets nothing.
    return lower_join(operator.join, site)
