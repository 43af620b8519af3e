"""Operators that begin streams: sources, the row of the first tick, and streams without rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import ANYWHERE, WHOLE, Facts, Placement, Port, meet
from headrace.operators.column_arguments import ANY_VALUE
from headrace.operators.unservable import BOUNDED

if TYPE_CHECKING:
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


# --- initialize operator: one row in the first tick -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Initialize(Operator):
    """One row, `()`, in the first tick of a run. The operator itself starts no tick.

    A run resumed from a checkpoint has already had its first tick.

    >>> import headrace as hr
    >>> flow = hr.Flow("start")
    >>> flow.sink("started", flow.initialize())
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick()["started"]]
    [()]
    >>> [change.row for change in engine.tick()["started"]]
    []
    """

    kind: ClassVar[str] = "initialize"
    runs_first_tick: ClassVar[bool] = True

    def ports(self) -> tuple[Port, ...]:
        return ()

    def output(self, context: CheckContext) -> Columns:
        return ANY_VALUE.fields

    def unservable(self) -> Unservable | None:
        return None

    def at_most_one_row(self) -> bool:
        return True

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(bounded=True, append=True, ordered=True)

    def placement(self) -> Placement:
        return WHOLE


# --- null operator: an empty stream, and a consumer for unused rows -------------------------------


@dataclass(frozen=True, slots=True)
class Null(Operator):
    """Stream without rows.

    swallows: whether it reads a stream. Then the operators upstream run as if for a sink, and their rows are
              dropped.

    >>> import headrace as hr
    >>> flow = hr.Flow("watched")
    >>> _ = flow.source("numbers", int).inspect(print).null()
    >>> _ = hr.Engine(flow).tick(numbers=[1, 2])
    1
    2
    """

    kind: ClassVar[str] = "null"
    ends_streams: ClassVar[bool] = True
    swallows: bool

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),) if self.swallows else ()

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields if self.swallows else None

    def unservable(self) -> Unservable | None:
        return None

    def placement(self) -> Placement:
        return ANYWHERE

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return meet(())
