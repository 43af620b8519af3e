"""Reduce operator: combine all rows into one row, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.lattice import Max
from headrace.operators.fold import described
from headrace.operators.function_claims import NO_CLAIMS, Claims
from headrace.operators.lifetime import Lifetime, WithLifetime
from headrace.operators.unservable import UNCLAIMED

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class Reduce(WithLifetime):
    """`function(so far, row)` over all rows, in order, starting from the first.

    The output is empty until the first row; then it is a table of exactly one row. With lifetime TICK, it is
    one plain row in each tick with rows. An empty tick changes and emits nothing.

    scalar_column: name of the column if rows are bare values, for monotone columns.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.reduce(max), numbers=[1, 3, 2])
    + 3
    """

    kind: ClassVar[str] = "reduce"
    merges_equal: ClassVar[bool] = True
    function: Callable[..., object]
    scalar_column: str | None = None
    claims: Claims = NO_CLAIMS
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change the value"),)

    def output(self, context: CheckContext) -> Columns:
        column = context.input.names[0] if context.input.scalar else None
        context.require(self.scalar_column == column, "the column of single values is another")
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None if self.claims.commutative else UNCLAIMED

    def at_most_one_row(self) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return self.claims.needs()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return folded_facts(inputs[0], self.lifetime, self.nondet)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if self.lifetime is Lifetime.TICK or not self.claims.monotone or self.scalar_column is None:
            return None
        return MonotoneColumns((), {self.scalar_column: Max()})

    def placement(self) -> Placement:
        return WHOLE

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function

    def assumptions(self) -> Iterator[str]:
        yield from WithLifetime.assumptions(self)
        yield from self.claims.clauses_about(self.function)

    def describe(self) -> str:
        return ", ".join([described(self.function, self.claims), *describe_lifetime(self.lifetime)])


def folded_facts(rows: Facts, lifetime: Lifetime, nondet: str | None) -> Facts:
    """Return the facts of folded values: a table, or plain rows per tick in key order."""
    if lifetime is Lifetime.TICK:
        return rows.but(append=True, once=True, det=rows.det and nondet is None)
    return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)


def describe_lifetime(lifetime: Lifetime) -> list[str]:
    """Render a lifetime for `describe`; the default is omitted."""
    return ["per tick"] if lifetime is Lifetime.TICK else []
