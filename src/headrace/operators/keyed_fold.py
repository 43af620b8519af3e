"""Base class of folds per key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.operator_declarations import Facts, Need, Placement, Port, place_by_key
from headrace.lattice import Max
from headrace.operators.fold import described
from headrace.operators.lifetime import Lifetime, WithLifetime
from headrace.operators.reduce import describe_lifetime, folded_facts
from headrace.operators.unservable import UNCLAIMED

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.operator_declarations import Lineage, Unservable
    from headrace.operators.function_claims import Claims


class KeyedFold(WithLifetime):
    """Base of operators that fold the rows of each key with an opaque function.

    keys, into, function, claims: fields defined by each subclass.
    """

    __slots__ = ()
    keys: tuple[tuple[str, Expr], ...]
    into: str
    function: Callable[..., object]
    claims: Claims

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change its key's value"),)

    def needs(self) -> tuple[Need, ...]:
        return self.claims.needs()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return folded_facts(inputs[0], self.lifetime, self.nondet)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if self.lifetime is Lifetime.TICK or not self.claims.monotone:
            return None
        return MonotoneColumns(tuple(name for name, _ in self.keys), {self.into: Max()})

    def unservable(self) -> Unservable | None:
        return None if self.claims.commutative else UNCLAIMED

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys))

    def assumptions(self) -> Iterator[str]:
        yield from super().assumptions()
        yield from self.claims.clauses_about(self.function)

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        return ", ".join(
            [f"by ({keys}): {described(self.function, self.claims)}", *describe_lifetime(self.lifetime)]
        )
