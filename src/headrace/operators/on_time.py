"""On-time operator: drop the late rows of an ordered stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.types import Field
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import WHOLE, Need, Placement, Port
from headrace.operators.unservable import EVENT_TIME
from headrace.operators.watermark_policy import check_policy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable
    from headrace.operators.watermark_policy import WatermarkPolicy

NEEDS = (
    Need(
        0,
        "append",
        "whether a row is late is decided when it comes,\nand what takes a row back comes at another time",
        "put the watermark on the source, before what takes rows back; "
        "or turn changes into rows that describe them",
    ),
    Need(
        0,
        "ordered",
        "the watermark rises row by row, so the order of rows decides which of them are late",
        "put the watermark on each source, before union() and joins: they keep the least of several",
    ),
)
"""Facts that every operator needs which reads times in order of arrival."""


@dataclass(frozen=True, slots=True)
class OnTime(Operator):
    """The rows whose time is not below the watermark of the rows before them.

    The others are late, as are rows whose time is null, NaN or infinite; `late_rows` emits them. Because the
    watermark rises row by row rather than tick by tick, lateness does not depend on the cut into ticks. A
    tick without rows emits nothing. Rows keep their order. The state is the greatest time, and the number of
    late rows.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda at: at.watermark(col.value, lateness=2), at=[1, 5, 3, 2, 6])
    + 1
    + 5
    + 3
    + 6
    """

    kind: ClassVar[str] = "watermark"
    plan_name: ClassVar[str | None] = "on_time"
    row_by_row: ClassVar[bool] = True
    clock: WatermarkPolicy

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        timed = check_policy(self.clock, context)
        return tuple(Field(f.name, f.type, f.nullable and f != timed) for f in context.input.fields)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({*live, self.clock.column},)

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return f"rows on time: {self.clock}; late ones are counted"
