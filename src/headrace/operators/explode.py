"""Explode operator: one row per list element, optionally with its position."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.types import INT32, AnyType, Field, ListType
from headrace.graph.node import identity_lineage
from headrace.operators.row_by_row import RowByRow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Operator
    from headrace.graph.operator_declarations import Lineage


@dataclass(frozen=True, slots=True)
class Explode(RowByRow):
    """One copy of the row per element of the list in column `at`, which the element replaces.

    at:       position of the column. Its type is a list or any; for any, a value other than a tuple, list or
              frozenset stops the tick with `EvaluationError`.
    into:     name of the element's column.
    position: name of a column before it, with the element's position from 0; None for no such column.
    outer:    whether to keep a row whose list is null or empty, with null for element and position.

    Elements keep their order, and set members are sorted; all have the weight of their row. A tick without
    rows emits nothing. The semantics are those of `explode`, `posexplode` and their outer forms in Spark SQL.

    >>> from headrace.testing import show
    >>> def words(line: str) -> list[str]:
    ...     return line.split()
    >>> show(lambda lines: lines.map(words).explode(position="at"), lines=["a b", "", "c"])
    + (at=0, value='a')
    + (at=1, value='b')
    + (at=0, value='c')
    """

    kind: ClassVar[str] = "explode"
    at: int
    into: str
    position: str | None = None
    outer: bool = False

    def output(self, context: CheckContext) -> Columns:
        fields, at = context.input.fields, self.at
        context.require(0 <= at < len(fields), "there is no such column to explode")
        context.require(isinstance(fields[at].type, ListType | AnyType), "the column to explode is no list")
        made = self.output_columns(fields)
        context.require(len({field.name for field in made}) == len(made), "two columns have one name")
        return made

    def output_columns(self, fields: Sequence[Field]) -> tuple[Field, ...]:
        """Derive the output columns from the input columns."""
        found = fields[self.at].type
        element = Field(self.into, found, True)
        if isinstance(found, ListType):
            element = Field(self.into, found.element, found.nullable or self.outer)
        position = () if self.position is None else (Field(self.position, INT32, self.outer),)
        return (*fields[: self.at], *position, element, *fields[self.at + 1 :])

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        before = inputs[0].names
        return ({before[self.at], *(name for name in before if name in live)},)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        operator = replace(self, at=kept[0].names.index(inputs[0].names[self.at]))
        return operator, operator.output_columns(kept[0].fields)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        kept = identity_lineage(inputs[0])
        del kept[inputs[0].names[self.at]]
        return (kept,)

    def describe(self) -> str:
        position = "" if self.position is None else f" at {self.position}"
        return f"column {self.at}{position}{', empty lists kept' if self.outer else ''}"
