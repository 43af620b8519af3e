"""Lazy defer-tick operator: delay rows to the next tick without starting it."""

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
class DeferTickLazy(Operator):
    """The changes of the previous tick. Pending changes wait for a tick that something else starts.

    So changes pending when a run ends are not emitted. Like `defer_tick`, it may be in a cycle through a
    blocking input. Rows keep their order. In the first tick, and after a tick without changes, it emits
    nothing.

    nondet: reason why results may depend on the cut into ticks.

    >>> import headrace as hr
    >>> flow = hr.Flow("echo")
    >>> flow.sink("before", flow.source("words", str).defer_tick_lazy(nondet="an echo waits for a call"))
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick(words=["hey"])["before"]]
    []
    >>> engine.pending
    False
    >>> [change.row for change in engine.tick(words=["ho"])["before"]]
    ['hey']
    """

    kind: ClassVar[str] = "defer_tick_lazy"
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", delay=Delay.LAZY),)

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

    def depends_on_cut(self) -> str:
        return "What it holds waits for a tick that something else starts, so the number of ticks shows."

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
