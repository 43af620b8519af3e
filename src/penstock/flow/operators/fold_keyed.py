"""Fold per key: one value for each key, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.claims import NO_CLAIMS, Claims
from penstock.flow.lifetime import Lifetime, WithLifetime
from penstock.flow.operators.fold import described, named_functions
from penstock.flow.operators.reduce import folded, of_lifetime
from penstock.graph.facts import WHOLE, Facts, Need, Placement, Port, keyed
from penstock.graph.growth import Growth
from penstock.graph.node import ALTERABLE
from penstock.lattice import Max

if TYPE_CHECKING:
    from penstock.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class FoldKeyed(WithLifetime):
    """Per key `function(accumulated, item)` over all its rows, in their order, from `init` on.

    A row per key that has come: the key columns, then `value`. A key whose value changed
    in a tick sends the old row back and the new one out, once. Keys leave in the order in
    which they were first seen in the tick. With lifetime TICK the keys of a tick and their
    values of that tick alone, as plain rows. An empty tick says nothing.

    init: a value, or a function without arguments that makes one for each key.
    item: what is folded of a row; None is the whole row.

    >>> from penstock.testing import show
    >>> show(lambda n: n.fold_keyed("value", 0, lambda count, row: count + 1, into="copies"), n=[5, 7, 5])
    + (value=5, copies=2)
    + (value=7, copies=1)
    """

    kind: ClassVar[str] = "fold_keyed"
    keys: tuple[tuple[str, Expr], ...]
    into: str
    init: object
    function: Callable[..., object]
    item: Expr | None = None
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
        return keyed(tuple(expr for _, expr in self.keys)) if self.keys else WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        if self.item is not None:
            yield self.into, self.item

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from named_functions(self.init, self.function)

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        return ", ".join(
            [f"by ({keys}): {described(self.function, self.claims)}", *of_lifetime(self.lifetime)]
        )
