"""Keyed-source operator: entry point of the records of a table with a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.row_classes import KeyedRows
from headrace.lowering.examples import Examples
from headrace.operators.source import Source
from headrace.operators.unservable import RECORDS

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class KeyedSource(Source):
    """The records of a table with a key: each sets or deletes the row of its key.

    keyed: rows of the table. What is given to the source is converted to records of them.
    """

    plan_name: ClassVar[str | None] = "keyed_source"
    examples: ClassVar[Examples] = {}
    keyed: KeyedRows = field(kw_only=True)

    def output(self, context: CheckContext) -> Columns:
        context.require(self.append and self.schema == self.keyed.records, "the records are not of its rows")
        return Source.output(self, context)

    def unservable(self) -> Unservable | None:
        return RECORDS

    def columns_given(self, live: frozenset[str]) -> frozenset[str]:
        return frozenset(self.keyed.rows.names)  # a row is held whole

    def describe(self) -> str:
        order = "" if self.keyed.sequence is None else f", sequence {self.keyed.sequence}"
        return f"records by ({', '.join(self.keyed.key)}){order}"
