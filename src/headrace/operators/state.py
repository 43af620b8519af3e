"""State operator: the rows that make a merged value grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.check import check
from headrace.expr.types import Field
from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import KeyedSlot
from headrace.operators.lattice_merge import lattice_claims, lattice_functions
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
    from headrace.lattice import Lattice


@dataclass(frozen=True, slots=True)
class State(OrderedOperator):
    """The rows whose item is not yet contained in the merge of the earlier ones.

    The operator is non-blocking, and rows keep their order. With keys `per`, each key has a value of its own.
    With lifetime TICK, the value starts from the bottom in each tick. An empty tick emits nothing.

    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.state(Max()), numbers=[3, 1, 5, 5])
    + 3
    + 5
    """

    kind: ClassVar[str] = "state"
    order_reason: ClassVar[str] = "which rows are news depends on the rows before"
    lattice: Lattice
    item: Expr
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        typed = check(self.item, context.input)
        self.lattice.column(Field("item", typed.type, typed.nullable))
        context.check_keys(self.per)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"merged": KeyedSlot()}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield "item", self.item
        # Not `super()`, because a dataclass with slots is a different class from the one defined here.
        yield from OrderedOperator.expressions(self)

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from lattice_functions(self.lattice)

    def assumptions(self) -> Iterator[str]:
        yield from lattice_claims(self.lattice)

    def describe(self) -> str:
        return ", ".join([f"{self.lattice} of {self.item}", *self.keys_and_lifetime()])
