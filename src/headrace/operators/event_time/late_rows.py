"""On-time and late rows: an ordered stream, divided by its watermark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.constructors import col
from headrace.expr.types import Field
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import WHOLE, Need, Placement, Port
from headrace.lowering.reference import Examples
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step
from headrace.operators.event_time.watermark import NEEDS, WatermarkWriter, check_policy
from headrace.operators.unservable import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.event_time.watermark import WatermarkPolicy


# --- on-time operator: drop the late rows of an ordered stream ------------------------------------


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
    examples: ClassVar[Examples] = {
        "on_time": lambda x, y: x.watermark(col.a, lateness=0),
    }
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


# --- late-rows operator: rows that arrive behind the watermark ------------------------------------


@dataclass(frozen=True, slots=True)
class LateRows(Operator):
    """The rows that `on_time` drops. Together, the two streams contain every row exactly once.

    A tick without rows emits nothing. Rows keep their order.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda at: at.watermark(col.value, lateness=2).late(), at=[1, 5, 3, 2, 6])
    + 2
    """

    kind: ClassVar[str] = "late_rows"
    examples: ClassVar[Examples] = {
        "late_rows": lambda x, y: x.watermark(col.a, lateness=0).late(),
    }
    row_by_row: ClassVar[bool] = True
    clock: WatermarkPolicy

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        check_policy(self.clock, context)
        return context.input.fields

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
        return str(self.clock)


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

    def consume(self, port: int, row: RowCode) -> None:
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
