"""Keyed fold operator: combine the rows of each key into one value, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.expr.types import Field
from penstock.flow.function_claims import NO_CLAIMS, Claims
from penstock.flow.keyed_fold import KeyedFold
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.fold import named_functions
from penstock.graph.facts import KeyedSlot
from penstock.graph.node import ALTERABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.expr.tree import Expr
    from penstock.graph.check_context import CheckContext
    from penstock.graph.facts import SlotLayout
    from penstock.graph.node import Columns


@dataclass(frozen=True, slots=True)
class FoldKeyed(KeyedFold):
    """Per key, `function(accumulated, item)` over all items so far, in order, starting from `init`.

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
            context.keys([self.item])
        keys = context.computed(self.keys)
        context.need(len(context.output.fields) == len(keys) + 1, "a fold per key has one value")
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
