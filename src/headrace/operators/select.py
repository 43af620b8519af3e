"""Select operator: compute new columns from each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.tree import Column, Expr, columns_of
from headrace.graph.monotone_columns import MonotoneColumns
from headrace.operators.row_by_row import RowByRow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Field, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Operator
    from headrace.graph.operator_declarations import Lineage


@dataclass(frozen=True, slots=True)
class Select(RowByRow):
    """One expression per output column. `with_columns` is a select that keeps the other columns.

    Rows that become equal are kept as duplicates.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.select(half=col.value / 2), numbers=[1, 2])
    + (half=0.5)
    + (half=1.0)
    """

    kind: ClassVar[str] = "select"
    columns: tuple[tuple[str, Expr], ...]

    def output(self, context: CheckContext) -> Columns:
        return context.computed_columns(self.columns)

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({name for column, expr in self.columns if column in live for name in columns_of(expr)},)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        columns = tuple((name, expr) for name, expr in self.columns if name in live)
        return replace(self, columns=columns), tuple(f for f in output.fields if f.name in live)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.columns),)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) and all(isinstance(expr, Column) for _, expr in self.columns)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        (before,) = inputs
        names = {expr.name: name for name, expr in self.columns if isinstance(expr, Column)}
        if before is None or any(key not in names for key in before.keys):
            return None
        grown = {names[name]: order for name, order in before.columns.items() if name in names}
        return MonotoneColumns(tuple(names[key] for key in before.keys), grown)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.columns

    def describe(self) -> str:
        return ", ".join(f"{name}={expr}" for name, expr in self.columns)


def with_columns(schema: Schema, columns: Mapping[str, Expr]) -> Select:
    """Replace existing columns and append new ones.

    All expressions refer to the original row.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.with_columns(half=col.value / 2), numbers=[1])
    + (value=1, half=0.5)
    """
    kept = [(name, columns.get(name, Column(name))) for name in schema.names]
    added = [(name, expr) for name, expr in columns.items() if name not in schema.names]
    return Select(tuple(kept + added))
