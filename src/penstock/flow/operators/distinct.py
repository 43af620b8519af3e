"""Distinct: each row once, however often it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.lifetime import Lifetime, WithLifetime, tick_needs, with_lifetimes
from penstock.graph.facts import Facts, Need, Placement, Port, keyed
from penstock.graph.node import ALTERABLE

if TYPE_CHECKING:
    from penstock.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class Distinct(WithLifetime):
    """A row leaves when its first copy comes, and is taken back with its last copy.

    A tick without changes answers nothing. With lifetime TICK each tick answers for
    itself, and rows keep the order of their first copies.

    columns: every column of the input, as expressions.
    nondet:  why it is right that answers depend on the cut into ticks, where the
             lifetime is TICK.

    >>> from penstock.testing import show
    >>> show(lambda numbers: numbers.distinct(), numbers=[1, 2, 1])
    + 1
    + 2
    """

    kind: ClassVar[str] = "distinct"
    merges_equal: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

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
        return keyed(self.columns)

    def describe(self) -> str:
        return with_lifetimes("", (self.lifetime,))
