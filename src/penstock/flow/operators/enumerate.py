"""Enumerate: the number of each row, before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.lifetime import Lifetime, WithLifetime
from penstock.flow.operators.reduce import of_lifetime
from penstock.flow.operators.scan import in_order, one_by_one, per_key
from penstock.graph.facts import WHOLE, Facts, Need, Placement, Port, keyed
from penstock.graph.node import ALTERABLE

if TYPE_CHECKING:
    from penstock.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class Enumerate(WithLifetime):
    """Each row with its number in front: `start`, `start + 1`, ... in the order of the rows.

    Nothing waits. `per` key, each key has numbers of its own, so that `start=1` is a running
    count. With lifetime TICK they begin again in each tick. An empty tick says nothing.
    A number beyond 64 bits stops the tick: `EvaluationError`.

    >>> from penstock.testing import show
    >>> show(lambda words: words.enumerate(start=1, per="value"), words=["a", "b", "a"])
    + (index=1, value='a')
    + (index=1, value='b')
    + (index=2, value='a')
    """

    kind: ClassVar[str] = "enumerate"
    start: int = 0
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def needs(self) -> tuple[Need, ...]:
        return in_order("a row's number counts the rows before it")

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return one_by_one(inputs[0], self.lifetime, self.nondet)

    def placement(self) -> Placement:
        return keyed(self.per) if self.per else WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.per:
            yield "per", expr

    def describe(self) -> str:
        return ", ".join([f"from {self.start}", *per_key(self.per), *of_lifetime(self.lifetime)])
