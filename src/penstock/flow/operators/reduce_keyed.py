"""Reduce per key: the values of each key, folded into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.claims import NO_CLAIMS, Claims
from penstock.flow.lifetime import Lifetime, WithLifetime
from penstock.flow.operators.fold import described
from penstock.flow.operators.reduce import folded, of_lifetime
from penstock.graph.facts import Facts, Need, Placement, Port, keyed
from penstock.graph.growth import Growth
from penstock.graph.node import ALTERABLE
from penstock.lattice import Max

if TYPE_CHECKING:
    from penstock.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class ReduceKeyed(WithLifetime):
    """Per key `function(so far, item)` over all its items, in their order, from the first one on.

    Rows, order, lifetimes and empty ticks are as those of `fold_keyed`.

    >>> from typing import NamedTuple
    >>> from penstock.testing import show
    >>> class Sale(NamedTuple):
    ...     shop: str
    ...     price: int
    >>> show(lambda sales: sales.reduce_keyed("shop", max), sales=[Sale("a", 3), Sale("b", 1), Sale("a", 5)])
    + (shop='a', price=5)
    + (shop='b', price=1)
    """

    kind: ClassVar[str] = "reduce_keyed"
    keys: tuple[tuple[str, Expr], ...]
    into: str
    function: Callable[..., object]
    item: Expr
    claims: Claims = NO_CLAIMS
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change its key's value"),)

    def needs(self) -> tuple[Need, ...]:
        return self.claims.needs()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return folded(inputs[0], self.lifetime, self.nondet)

    def growth(self, inputs: Sequence[Growth | None]) -> Growth | None:
        if self.lifetime is Lifetime.TICK or not self.claims.monotone:
            return None
        return Growth(tuple(name for name, _ in self.keys), {self.into: Max()})

    def placement(self) -> Placement:
        return keyed(tuple(expr for _, expr in self.keys))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        yield self.into, self.item

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        return ", ".join(
            [f"by ({keys}): {described(self.function, self.claims)}", *of_lifetime(self.lifetime)]
        )
