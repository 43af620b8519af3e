"""Unique operator: the first occurrence of each row, in row order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.operators.lifetime import Lifetime, WithLifetime, describe_lifetime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable


@dataclass(frozen=True, slots=True)
class Unique(WithLifetime):
    """The first occurrence of each row, in row order, emitted at once.

    Equivalent to `distinct`, but keeps the order if there is one. For a table, a row is retracted with its
    last copy. With lifetime TICK, a row passes once in each tick in which it arrives. An empty tick emits
    nothing.

    columns: every column of the input, as expressions.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.unique(), numbers=[3, 1, 3, 2, 1])
    + 3
    + 1
    + 2
    """

    kind: ClassVar[str] = "unique"
    merges_equal: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        context.all_columns(self.columns)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"copies": KeyedSlot(bare=appends[0])}

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        if self.lifetime is Lifetime.STATIC:
            return ()
        return (
            Need(
                0,
                "append",
                "each tick is answered for itself:\nwhat an earlier one answered cannot be taken back",
                'use lifetime="static", or feed it from a stream that only grows',
            ),
        )

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(det=rows.det and self.nondet is None)
        return rows.but(ordered=rows.ordered and rows.append, once=True)

    def placement(self) -> Placement:
        return place_by_key(self.columns)

    def describe(self) -> str:
        return ", ".join(describe_lifetime(self.lifetime))
