"""Flatten: a row for each item of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.expr.types import AnyType, Field, ListType
from penstock.flow.row_by_row import RowByRow
from penstock.graph.node import unchanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.expr.types import Schema
    from penstock.graph.check_context import CheckContext
    from penstock.graph.facts import Lineage
    from penstock.graph.node import Columns


@dataclass(frozen=True, slots=True)
class Flatten(RowByRow):
    """The row once for each item of the list in column `at`, which the item replaces.

    at: the position of the column. Its type is a list, or any value; a value that is
        then no tuple, list or frozenset stops the tick (`EvaluationError`).

    Items keep their order, members of a set come in the order of values; they have the
    weight of their row. A null and an empty list have no items, so that their rows are
    gone. A tick without rows answers nothing.

    >>> from penstock.testing import show
    >>> def words(line: str) -> list[str]:
    ...     return line.split()
    >>> show(lambda lines: lines.map(words).flatten(), lines=["a b", "", "c"])
    + 'a'
    + 'b'
    + 'c'
    """

    kind: ClassVar[str] = "flatten"
    at: int

    def output(self, context: CheckContext) -> Columns:
        fields, at = context.input.fields, self.at
        context.need(0 <= at < len(fields), "there is no such column to flatten")
        field = fields[at]
        context.need(isinstance(field.type, ListType | AnyType), "the column to flatten is no list")
        if isinstance(field.type, ListType):
            field = Field(field.name, field.type.element, field.type.nullable)
        return (*fields[:at], field, *fields[at + 1 :])

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        kept = unchanged(inputs[0])
        del kept[inputs[0].names[self.at]]
        return (kept,)
