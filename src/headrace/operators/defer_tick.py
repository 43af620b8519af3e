"""Defer-tick operator: delay rows by one tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator, identity_lineage
from headrace.graph.operator_declarations import (
    EQUAL_ROWS,
    Delay,
    Facts,
    PendingSlot,
    Placement,
    Port,
    place_by_key,
)
from headrace.operators.unservable import LATER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable


@dataclass(frozen=True, slots=True)
class DeferTick(Operator):
    """The changes of the previous tick. Pending changes start a tick if nothing else does.

    Every cycle through a blocking input needs a tick delay such as this. The results of such a cycle depend
    on how the input is cut into ticks, which needs a reason: `nondet="..."`, or a flow with `ticks="given"`.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.union(numbers.defer_tick()), numbers=[1])
    + 1
    tick 2:
    + 1
    """

    kind: ClassVar[str] = "defer_tick"
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", delay=Delay.TICK),)

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return LATER

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return (live,)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"deferred": PendingSlot()}

    def placement(self) -> Placement:
        # The state must be kept on some shard, and any will do.
        return place_by_key(EQUAL_ROWS)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(bounded=False, det=inputs[0].det and self.nondet is None)

    def guard(self) -> str | None:
        return self.nondet

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
