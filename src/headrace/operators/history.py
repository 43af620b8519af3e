"""History operator: all versions of each key's row, from records that set or delete it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.check import check
from headrace.expr.types import Field
from headrace.operators.upsert import KeyedRecords, OnMisfit, UpsertRule

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Facts

START, END = "start_at", "end_at"
"""Columns of a version: from which sequence on it holds, and up to which."""


def version_fields(sequence: Expr, schema: Schema) -> tuple[Field, Field]:
    """Return the columns of versions of records of `schema`."""
    at = check(sequence, schema)
    return Field(START, at.type, at.nullable), Field(END, at.type, True)


@dataclass(frozen=True, slots=True)
class History(KeyedRecords):
    """All versions of each key's row. A tick emits the difference between the versions before and after it.

    A version begins with the first record of a run whose rows agree in the columns `track`, shows the row of
    its last one, and ends where another version begins or the row is deleted. Of one key and sequence, the
    row counts that `upsert` would hold after it (see `UpsertRule`), so the versions without an end are the
    rows of `upsert`.

    State: the rows of all records of each key. Of a row that lost against a deletion of its sequence, erasure
    leaves a digest. An empty tick emits nothing.

    >>> from dataclasses import dataclass
    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> @dataclass(frozen=True)
    ... class Price:
    ...     item: str
    ...     price: int
    ...     at: int
    >>> prices = [Price("tea", 3, 1), Price("tea", 5, 4), Price("tea", 3, 2)]
    >>> show(lambda prices: prices.history("item", sequence="at"), prices=prices)
    + (item='tea', price=3, at=2, start_at=1, end_at=4)
    + (item='tea', price=5, at=4, start_at=4, end_at=None)
    """

    kind: ClassVar[str] = "history"
    rule: UpsertRule
    track: tuple[str, ...]

    def output(self, context: CheckContext) -> Columns:
        rule, rows = self.rule, self.rule.check(context)
        names = [field.name for field in rows.fields]
        context.require(rule.sequence is not None, "versions are ordered by a sequence")
        context.require(rule.tombstones is None, "a history forgets nothing")
        context.require(rule.on_misfit is not OnMisfit.DEAD_LETTER, "a history leaves no record out")
        context.require(set(self.track) <= set(names), "its rows lack a column that is tracked")
        context.require(not {START, END} & set(names), "its rows have a column of versions")
        assert rule.sequence is not None
        return (*rows.fields, *version_fields(rule.sequence, context.input))

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return self.rule.gives(inputs[0]).but(append=False, ordered=False)

    def describe(self) -> str:
        return f"{self.rule}, track=({', '.join(self.track)})"
