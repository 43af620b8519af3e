"""Top-k operator: the first k rows of each group in a given order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.operators.lifetime import Lifetime, WithLifetime, tick_needs, with_lifetimes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr, Ordering
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable


@dataclass(frozen=True, slots=True)
class TopK(WithLifetime):
    """The first `count` rows of each group in the order `by`; copies of a row count.

    Ties are broken by the whole row, ascending, so that the result depends only on the rows, not on their
    order of arrival. A tick without changes emits nothing. With lifetime TICK, each tick uses only its own
    rows.

    nondet: reason why results may depend on the cut into ticks, if the lifetime is TICK.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.top_k(2, by=col.value.desc()), numbers=[1, 3, 2])
    + 3
    + 2
    """

    kind: ClassVar[str] = "top_k"
    nets: ClassVar[bool] = True
    merges_equal: ClassVar[bool] = True
    count: int
    by: tuple[Ordering, ...]
    per: tuple[Expr, ...]
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could push an answer out"),)

    def output(self, context: CheckContext) -> Columns:
        context.require(self.count >= 1, "a count is below one")
        context.check_order_by(self.by)
        context.check_keys(self.per)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"groups": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(self.per)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(append=True, ordered=False, det=rows.det and self.nondet is None)
        return rows.but(append=rows.append and rows.bounded, ordered=False)

    def needs(self) -> tuple[Need, ...]:
        return tick_needs((self.lifetime,))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for ordering in self.by:
            yield "desc" if ordering.descending else "asc", ordering.expr
        for expr in self.per:
            yield "per", expr

    def describe(self) -> str:
        by = ", ".join(str(o) for o in self.by)
        per = f" per {', '.join(str(e) for e in self.per)}" if self.per else ""
        which = f"{self.count} by {by}" if by else f"the {self.count} least"
        return with_lifetimes(f"{which}{per}", (self.lifetime,))
