"""Temporal filter operator: rows that are there from, or until, a moment of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.check import check
from headrace.expr.types import DATE, INTEGERS, TIMESTAMP
from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import (
    EverywhereSlot,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    calendar_slots,
    meet,
    place_by_key,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable


class Presence(Enum):
    """When a row is there. The value is how the clock then compares with the row's moment."""

    SINCE = ">="
    AFTER = ">"
    BEFORE = "<"
    UNTIL = "<="

    @property
    def begins(self) -> bool:
        """Return whether a row comes when its moment does; otherwise it goes."""
        return self in (Presence.SINCE, Presence.AFTER)

    @property
    def turns_at(self) -> bool:
        """Return whether the row comes, or goes, when the clock shows its moment, and not only later."""
        return self in (Presence.SINCE, Presence.BEFORE)


MOMENTS = (TIMESTAMP, DATE, *INTEGERS)
"""Types of a moment and of a clock."""


@dataclass(frozen=True, slots=True)
class TemporalFilter(Operator):
    """The rows for which `clock presence moment` holds, such as `clock < moment`.

    The clock shows the greatest value that its stream has had. As it rises, rows come or go by themselves,
    each at a cost of its own: they are found in a calendar of moments. Before the first value of the clock no
    moment has come. A row whose moment is null is never there.

    columns: every column of the input, as expressions.

    >>> import headrace as hr
    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda ends, clock: ends.valid(clock, until=col.value), ends=[1, 3], clock=[2])
    + 3

    Source: temporal filters of Materialize; the calendar is that of event-time windows.
    """

    kind: ClassVar[str] = "temporal_filter"
    merges_equal: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    presence: Presence
    moment: Expr

    def ports(self) -> tuple[Port, ...]:
        why = "as time goes by, rows may go"
        return (Port("rows"), Port("clock", blocking=not self.presence.begins, why=why))

    def output(self, context: CheckContext) -> Columns:
        context.all_columns(self.columns)
        clock = context.inputs[1]
        context.require(len(clock.fields) == 1, "a clock has one column")
        moment = check(self.moment, context.input).type
        context.require(moment in MOMENTS, "the moment is no time and no integer")
        context.require(clock.fields[0].type == moment, "the clock is of another type than the moment")
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        held = KeyedSlot(bare=False)
        return {"held": held, "now": EverywhereSlot(), **calendar_slots("", held)}

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return meet(inputs).but(append=False, ordered=False)

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                1,
                "append",
                "time only moves forward",
                "give the clock as a source of rows that are only added",
            ),
        )

    def placement(self) -> Placement:
        return place_by_key(self.columns, None)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield "moment", self.moment

    def describe(self) -> str:
        return f"while clock {self.presence.value} {self.moment}; a change costs the row"
