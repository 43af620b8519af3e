"""Distinct operator: one copy of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.operators.lifetime import Lifetime, WithLifetime, tick_needs, with_lifetimes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable


@dataclass(frozen=True, slots=True)
class Distinct(WithLifetime):
    """Each row once: emitted with its first copy and retracted with its last.

    A tick without changes emits nothing. With lifetime TICK, each tick is separate, and rows keep the order
    of their first copies.

    columns: every column of the input, as expressions.
    nondet:  reason why results may depend on the cut into ticks, if the lifetime is TICK.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.distinct(), numbers=[1, 2, 1])
    + 1
    + 2
    """

    kind: ClassVar[str] = "distinct"
    runs_in_rounds: ClassVar[bool] = True
    nets: ClassVar[bool] = True
    merges_equal: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        context.all_columns(self.columns)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"copies": KeyedSlot(bare=appends[0])}

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(append=True, once=True, det=rows.det and self.nondet is None)
        return rows.but(ordered=False, once=True)

    def needs(self) -> tuple[Need, ...]:
        return tick_needs((self.lifetime,))

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        return ""

    def placement(self) -> Placement:
        return place_by_key(self.columns)

    def describe(self) -> str:
        return with_lifetimes("", (self.lifetime,))
