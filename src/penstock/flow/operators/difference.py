"""Difference: the rows of one stream that never appear in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.graph.facts import Facts, Placement, Port, keyed, meet
from penstock.graph.node import Operator

if TYPE_CHECKING:
    from penstock.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class Difference(Operator):
    """Rows of `pos` that are not in `neg`.

    Duplicates in `pos` are kept, duplicates in `neg` change nothing. Rows are
    compared whole, and null is equal to null. One more row of `neg` can take
    an answer back, so `neg` is complete first.

    >>> from penstock.testing import show
    >>> show(lambda due, paid: due.difference(paid), due=["ann", "bob"], paid=["bob"])
    + 'ann'
    """

    kind: ClassVar[str] = "difference"
    columns: tuple[Expr, ...]
    neg_columns: tuple[Expr, ...]

    def ports(self) -> tuple[Port, ...]:
        why = "a further row of 'neg' could take an answer back"
        return (Port("pos"), Port("neg", blocking=True, why=why))

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        pos, neg = inputs
        append = pos.append and neg.append and neg.bounded
        return meet(inputs).but(append=append, ordered=False)

    def placement(self) -> Placement:
        return keyed(self.columns, self.neg_columns)
