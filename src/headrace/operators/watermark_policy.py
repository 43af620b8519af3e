"""Watermark policies: rules that derive a watermark from the times seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.expr.tree import Column
from headrace.operators.time_spans import TIME_TYPES, check_span, shown_span

if TYPE_CHECKING:
    from headrace.expr.types import Field
    from headrace.graph.check_context import CheckContext
    from headrace.operators.time_spans import Span


@dataclass(frozen=True, slots=True)
class WatermarkPolicy:
    """Watermark policy: the greatest time in `column` minus `lateness`, rounded down to `every`.

    A row is late if its time is below the watermark of the rows before it. Multiples of `every` count from
    1970, or from 0; without `every`, the watermark is not rounded.
    """

    column: str
    lateness: Span
    every: Span | None = None

    def __str__(self) -> str:
        steps = "" if self.every is None else f" in steps of {shown_span(self.every)}"
        return f"{self.column} minus {shown_span(self.lateness)}{steps}"


def check_policy(policy: WatermarkPolicy, context: CheckContext) -> Field:
    """Return the column of a policy's time. Raises if the policy does not fit the input."""
    type_ = context.type_of(Column(policy.column))
    context.require(type_ in TIME_TYPES, "a watermark is on what is no time")
    check_span(policy.lateness, type_, context, may_be_zero=True)
    if policy.every is not None:
        check_span(policy.every, type_, context)
    return next(field for field in context.input.fields if field.name == policy.column)
