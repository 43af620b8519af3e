"""Filter operator: keep the rows that satisfy a predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.tree import Column, Expr, columns_of
from headrace.expr.types import BOOL
from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.node import identity_lineage
from headrace.operators.row_by_row import RowByRow

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage


@dataclass(frozen=True, slots=True)
class Filter(RowByRow):
    """Rows whose predicate is true; rows with false or null are dropped.

    An expression is inlined; a callable is opaque and receives the row.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.filter(col.value > 1), numbers=[1, 2])
    + 2
    """

    kind: ClassVar[str] = "filter"
    predicate: Expr | Callable[..., bool]

    def output(self, context: CheckContext) -> Columns:
        if isinstance(self.predicate, Expr):
            context.require(context.type_of(self.predicate) == BOOL, "a filter is not true or false")
        return context.input.fields

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({*live, *columns_of(self.predicate)},) if isinstance(self.predicate, Expr) else None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        (before,) = inputs
        if before is None or not isinstance(self.predicate, Expr):
            return None
        # A predicate over the keys alone passes all values of a key, or none.
        read = {part.name for part in self.predicate.walk() if isinstance(part, Column)}
        return before if read <= set(before.keys) else None

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        if isinstance(self.predicate, Expr):
            yield "predicate", self.predicate

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        if not isinstance(self.predicate, Expr):
            yield "predicate", self.predicate

    def describe(self) -> str:
        if isinstance(self.predicate, Expr):
            return str(self.predicate)
        return getattr(self.predicate, "__name__", repr(self.predicate))
