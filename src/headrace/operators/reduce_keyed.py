"""Keyed reduce operator: combine the values of each key into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import KeyedSlot
from headrace.operators.function_claims import NO_CLAIMS, Claims
from headrace.operators.keyed_fold import KeyedFold
from headrace.operators.lifetime import Lifetime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import SlotLayout


@dataclass(frozen=True, slots=True)
class ReduceKeyed(KeyedFold):
    """Per key, `function(so far, item)` over all items, in order, starting from the first.

    Rows, order, lifetimes and empty ticks are as those of `fold_keyed`.

    >>> from typing import NamedTuple
    >>> from headrace.testing import show
    >>> class Sale(NamedTuple):
    ...     shop: str
    ...     price: int
    >>> show(lambda sales: sales.reduce_keyed("shop", max), sales=[Sale("a", 3), Sale("b", 1), Sale("a", 5)])
    + (shop='a', price=5)
    + (shop='b', price=1)
    """

    kind: ClassVar[str] = "reduce_keyed"
    merges_equal: ClassVar[bool] = True
    keys: tuple[tuple[str, Expr], ...]
    into: str
    function: Callable[..., object]
    item: Expr
    claims: Claims = NO_CLAIMS
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        context.require(bool(self.keys), "a fold per key has no key")
        return (*context.computed_columns(self.keys), *context.computed_columns(((self.into, self.item),)))

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"values": KeyedSlot(), "merged": KeyedSlot()}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        yield self.into, self.item

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function
