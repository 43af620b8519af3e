"""Interval join: a join that bounds the time between the rows of a pair, and so forgets rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

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
from headrace.operators.join.operator import lower_join
from headrace.operators.time_spans import shown_span
from headrace.operators.unservable import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.expr.tree import Expr
    from headrace.expr.types import Field, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import BatchSite
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


@lower_operator.register(JoinOnTime)
def _on_spark(operator: JoinOnTime, site: BatchSite) -> DataFrame:
    # Time tells it what to forget, and a batch forgets nothing.
    return lower_join(operator.join, site)
