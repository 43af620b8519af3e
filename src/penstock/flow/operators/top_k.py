"""Top k: the first k rows of each group in a given order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.graph.facts import WHOLE, Facts, Placement, Port, keyed
from penstock.graph.node import Operator

if TYPE_CHECKING:
    from penstock.expr.tree import Expr, Ordering


@dataclass(frozen=True, slots=True)
class TopK(Operator):
    """Per group, the first `count` rows by `by`; copies of a row count.

    Ties are broken by the whole row, ascending, so that the answer depends on
    the rows alone and not on the order of their arrival.

    >>> from penstock import col
    >>> from penstock.testing import show
    >>> show(lambda numbers: numbers.top_k(2, by=col.value.desc()), numbers=[1, 3, 2])
    + 3
    + 2
    """

    kind: ClassVar[str] = "top_k"
    count: int
    by: tuple[Ordering, ...]
    per: tuple[Expr, ...]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could push an answer out"),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=rows.append and rows.bounded, ordered=False)

    def placement(self) -> Placement:
        return keyed(self.per) if self.per else WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for ordering in self.by:
            yield "desc" if ordering.descending else "asc", ordering.expr
        for expr in self.per:
            yield "per", expr

    def describe(self) -> str:
        by = ", ".join(str(o) for o in self.by)
        per = f" per {', '.join(str(e) for e in self.per)}" if self.per else ""
        return f"{self.count} by {by}{per}"
