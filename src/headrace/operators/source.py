"""Source operators: entry points of rows, and of the records of a table with a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.row_classes import KeyedRows
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import ANYWHERE, Facts, Placement, Port
from headrace.lowering.examples import Examples
from headrace.operators.unservable import BOUNDED, RECORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


# --- source operator: entry point of rows ---------------------------------------------------------


TICK_TIME = "tick_time"
"""Name of the source of times that runs feed with the time of their ticks."""


@dataclass(frozen=True, slots=True)
class Source(Operator):
    """The rows given to each tick under the source's name.

    bounded: all rows arrive in the first tick; later ones are an error.
    append:  rows are only added; otherwise each row has a weight, and may be retracted.

    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> show(lambda added: added, added=[1, 2, 1])
    + 1
    + 2
    + 1
    >>> show(lambda table: table, table=[hr.insert(1), hr.insert(2), hr.delete(1)])
    + 2
    """

    kind: ClassVar[str] = "source"
    examples: ClassVar[Examples] = {"append": lambda x, y: x, "table": lambda x, y: y}
    name: str
    schema: Schema
    bounded: bool = False
    append: bool = True

    def ports(self) -> tuple[Port, ...]:
        return ()

    def output(self, context: CheckContext) -> Columns:
        context.check_name(self.name)
        context.require(self.append or not self.bounded, "a table cannot be bounded")
        context.require(self.schema == context.output, "the source has other columns than its rows")
        return self.schema.fields

    def unservable(self) -> Unservable | None:
        return BOUNDED if self.bounded else None

    def placement(self) -> Placement:
        return ANYWHERE

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(bounded=self.bounded, append=self.append, ordered=self.append)

    def columns_given(self, live: frozenset[str]) -> frozenset[str]:
        """Return the columns of what users give that the live columns of this source are made of."""
        return live

    def describe(self) -> str:
        return ", ".join(["changes"] * (not self.append) + ["bounded"] * self.bounded)


# --- keyed-source operator: entry point of the records of a table with a key ----------------------


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
