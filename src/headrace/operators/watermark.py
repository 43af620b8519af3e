"""Watermark operator: a lower bound on the times of future rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.types import Field
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.operators.end_of_input import VALUE, EndOfInput
from headrace.operators.on_time import NEEDS
from headrace.operators.unservable import EVENT_TIME
from headrace.operators.watermark_policy import check_policy

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable
    from headrace.operators.watermark_policy import WatermarkPolicy


@dataclass(frozen=True, slots=True)
class Watermark(Operator):
    """The watermark, as one row per tick in which it rises. Null is the end of time.

    It reads the rows before late ones are separated. For a bounded input, it is null after the first tick.
    """

    kind: ClassVar[str] = "watermark_time"
    plan_name: ClassVar[str | None] = "watermark"
    gives_watermark: ClassVar[bool] = True
    clock: WatermarkPolicy

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows"), Port("end"))

    def output(self, context: CheckContext) -> Columns:
        timed = check_policy(self.clock, context)
        end = context.upstream(1)
        reads_end = isinstance(end, EndOfInput) and end.sources == context.sources_reaching(0)
        context.require(reads_end, "it does not read the end of its input")
        return (Field(VALUE, timed.type, True),)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return {self.clock.column}, set(inputs[1].names)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        return self, output.fields

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(bounded=False, once=True)

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return str(self.clock)
