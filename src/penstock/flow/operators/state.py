"""State: the rows that made a merged value grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.lifetime import Lifetime, WithLifetime
from penstock.flow.operators.lattice_growth import lattice_functions
from penstock.flow.operators.reduce import of_lifetime
from penstock.flow.operators.scan import in_order, one_by_one, per_key
from penstock.graph.facts import WHOLE, Facts, Need, Placement, Port, keyed
from penstock.graph.node import ALTERABLE

if TYPE_CHECKING:
    from penstock.expr.tree import Expr
    from penstock.lattice import Lattice


@dataclass(frozen=True, slots=True)
class State(WithLifetime):
    """The rows whose item was not in the merge of the items before: each is news.

    Nothing waits; rows pass in order. `per` key, each key has a value of its own. With
    lifetime TICK the value is the bottom again in each tick. An empty tick says nothing.

    >>> from penstock.lattice import Max
    >>> from penstock.testing import show
    >>> show(lambda numbers: numbers.state(Max()), numbers=[3, 1, 5, 5])
    + 3
    + 5
    """

    kind: ClassVar[str] = "state"
    lattice: Lattice
    item: Expr
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def needs(self) -> tuple[Need, ...]:
        return in_order("which rows are news depends on the rows before")

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return one_by_one(inputs[0], self.lifetime, self.nondet)

    def placement(self) -> Placement:
        return keyed(self.per) if self.per else WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield "item", self.item
        for expr in self.per:
            yield "per", expr

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from lattice_functions(self.lattice)

    def describe(self) -> str:
        return ", ".join([f"{self.lattice} of {self.item}", *per_key(self.per), *of_lifetime(self.lifetime)])
