"""Folds of the rows of each key into one value, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.types import Field
from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.lattice import Max
from headrace.operators.fold import described, folded_facts, named_functions
from headrace.operators.function_claims import NO_CLAIMS, Claims
from headrace.operators.lifetime import Lifetime, WithLifetime, describe_lifetime
from headrace.operators.unservable import UNCLAIMED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable


# --- base class of folds per key ------------------------------------------------------------------


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


# --- keyed fold operator: combine the rows of each key into one value, by an opaque function ------


@dataclass(frozen=True, slots=True)
class FoldKeyed(KeyedFold):
    """Per key, `function(accumulated, item)` over all items so far, in order, starting from `init`.

    The output has a row per key seen so far: the key columns, then `value`. In each tick, a key whose value
    has changed retracts the old row and emits the new one, once. Keys are emitted in the order of their first
    rows in the tick. With lifetime TICK, each tick emits plain rows for its own keys and items. An empty tick
    emits nothing.

    init: a value, or a function without arguments that returns one for each key.
    item: the folded item of a row; None for the whole row.

    >>> from headrace.testing import show
    >>> show(lambda n: n.fold_keyed("value", 0, lambda count, row: count + 1, into="copies"), n=[5, 7, 5])
    + (value=5, copies=2)
    + (value=7, copies=1)
    """

    kind: ClassVar[str] = "fold_keyed"
    merges_equal: ClassVar[bool] = True
    keys: tuple[tuple[str, Expr], ...]
    into: str
    init: object
    function: Callable[..., object]
    item: Expr | None = None
    claims: Claims = NO_CLAIMS
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        if self.item is not None:
            context.check_keys([self.item])
        keys = context.computed_columns(self.keys)
        context.require(len(context.output.fields) == len(keys) + 1, "a fold per key has one value")
        # Of what type it is, the function decides.
        value = context.output.fields[-1]
        return (*keys, Field(self.into, value.type, value.nullable))

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"values": KeyedSlot()}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        if self.item is not None:
            yield self.into, self.item

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from named_functions(self.init, self.function)


# --- keyed reduce operator: combine the values of each key into one -------------------------------


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
