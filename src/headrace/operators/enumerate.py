"""Enumerate operator: number the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.types import INT64, Field
from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import KeyedSlot
from headrace.operators.lifetime import Lifetime
from headrace.operators.ordered_operator import OrderedOperator
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable


@dataclass(frozen=True, slots=True)
class Enumerate(OrderedOperator):
    """Each row with its number in front: `start`, `start + 1`, ... in row order.

    The operator is non-blocking. With keys `per`, each key is numbered separately, so `start=1` makes a
    running count. With lifetime TICK, numbers start again in each tick. An empty tick emits nothing. A number
    beyond 64 bits stops the tick with `EvaluationError`.

    >>> from headrace.testing import show
    >>> show(lambda words: words.enumerate(start=1, per="value"), words=["a", "b", "a"])
    + (index=1, value='a')
    + (index=1, value='b')
    + (index=2, value='a')
    """

    kind: ClassVar[str] = "enumerate"
    order_reason: ClassVar[str] = "a row's number counts the rows before it"
    start: int = 0
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        context.require(-(2**63) <= self.start < 2**63, "numbers begin beyond 64 bits")
        context.check_keys(self.per)
        return (Field(context.output.names[0], INT64), *context.input.fields)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"count": KeyedSlot()}

    def describe(self) -> str:
        return ", ".join([f"from {self.start}", *self.keys_and_lifetime()])
