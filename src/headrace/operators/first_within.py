"""First-within operator: the first of rows with equal keys that follow each other closely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.tree import Column
from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import (
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    calendar_slots,
    place_by_key,
)
from headrace.operators.time_spans import check_span, shown_span
from headrace.operators.unservable import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.operators.time_spans import Span


@dataclass(frozen=True, slots=True)
class FirstWithin(Operator):
    """Rows without an earlier output row of equal keys less than `within` apart.

    keys: null is a key like any other. time: a column with a watermark.

    Rows are processed in order of arrival, and keep their order. An output row is remembered until the
    watermark is `within` after its time. A tick without rows emits nothing.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> def once(at):
    ...     return at.watermark(col.value, lateness=5).first_within("10s", by=(), unit="s")
    >>> show(once, at=[1, 3, 11, 20, 21])
    + 1
    + 11
    + 21
    """

    kind: ClassVar[str] = "first_within"
    keys: tuple[Expr, ...]
    time: str
    within: Span

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows"), Port("watermark"))

    def output(self, context: CheckContext) -> Columns:
        context.check_keys(self.keys)
        timed = context.timed_columns(0)
        context.require(self.time in timed, f"{self.time!r} has no watermark")
        check_span(self.within, timed[self.time], context)
        context.require_watermark(1, Column(self.time), 0)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"kept": KeyedSlot(), **calendar_slots("", KeyedSlot())}

    def placement(self) -> Placement:
        return place_by_key(self.keys, None)

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "the rows near to one that is taken back are forgotten",
                "put it before what takes rows back",
            ),
            Need(
                0,
                "ordered",
                "of rows near to each other the one that came first is kept",
                "put it before what loses the order: union(), joins, distinct()",
            ),
        )

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0]

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.keys:
            yield "by", expr

    def describe(self) -> str:
        return f"{shown_span(self.within)} of {self.time} by ({', '.join(map(str, self.keys))})"
