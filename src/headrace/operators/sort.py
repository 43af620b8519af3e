"""Sort operator: order all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.tree import Ordering
from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.operators.lifetime import Lifetime, WithLifetime, describe_lifetime
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class Sort(WithLifetime):
    """The rows of a bounded stream in order, or with lifetime TICK the rows of each tick.

    by: expressions in Spark's order (nulls first ascending and last descending, NaN greatest), and functions
        of a row whose results are compared by Python; without any, the columns from first to last.

    Rows that are equal by `by` keep their order of arrival if the input is ordered, and are otherwise sorted
    by all their columns. An empty tick emits nothing.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda n: n.sort(col.value.desc(), lifetime="tick", nondet="a page at a time"), n=[1, 3, 2])
    + 3
    + 2
    + 1
    """

    kind: ClassVar[str] = "sort"
    makes_order: ClassVar[bool] = True
    by: tuple[Ordering | Callable[..., object], ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could come before those that left"),)

    def output(self, context: CheckContext) -> Columns:
        context.check_order_by(self.by)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def needs(self) -> tuple[Need, ...]:
        per_tick = self.lifetime is Lifetime.TICK
        append = Need(
            0,
            "append",
            "what left in order cannot be taken back in order",
            "sort what only grows; of what changes, the first rows are kept up to date by .top_k(n, by=...)",
        )
        if per_tick:
            return (append,)
        bounded = Need(
            0,
            "bounded",
            "a row that comes later may belong before those that left",
            'sort each tick, .sort(lifetime="tick", nondet="why"), or declare the source bounded=True;\n'
            "the first rows of a stream that goes on are kept up to date by .top_k(n, by=...)",
        )
        return (bounded, append)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        det = inputs[0].det and (self.lifetime is Lifetime.STATIC or self.nondet is None)
        return inputs[0].but(ordered=True, det=det)

    def placement(self) -> Placement:
        return WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for one in self.by:
            if isinstance(one, Ordering):
                yield "desc" if one.descending else "asc", one.expr

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        for one in self.by:
            if not isinstance(one, Ordering):
                yield "by", one

    def describe(self) -> str:
        by = [
            str(b) if isinstance(b, Ordering) else getattr(b, "__name__", type(b).__name__) for b in self.by
        ]
        return ", ".join(
            [f"by {', '.join(by)}" if by else "by all columns", *describe_lifetime(self.lifetime)]
        )
