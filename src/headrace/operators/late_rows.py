"""Late-rows operator: rows that arrive behind the watermark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import WHOLE, Need, Placement, Port
from headrace.operators.on_time import NEEDS
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
