"""Keyed fold operator: combine the rows of each key into one value, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.types import Field
from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import KeyedSlot
from headrace.operators.fold import named_functions
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
