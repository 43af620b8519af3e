"""Conversion from a signal to a stream: one row per value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import WHOLE, Placement, Port
from headrace.operators.signals.signal_operator import ONE_INPUT
from headrace.operators.unservable import SIGNAL

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class ValueRows(Operator):
    """The value as a row in each tick in which the signal fires.

    >>> import headrace as hr
    >>> flow = hr.Flow("how often each")
    >>> values = flow.signal("a", str).stream()
    >>> flow.sink("counts", values.group_by("value").agg(n=hr.count()))
    >>> list(hr.Engine(flow).tick(a="x")["counts"])
    [Change(row=Row(value='x', n=1), weight=1)]
    """

    kind: ClassVar[str] = "values"
    plan_name: ClassVar[str | None] = "signal.value_rows"

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        return None

    def unservable(self) -> Unservable | None:
        return SIGNAL

    def placement(self) -> Placement:
        return WHOLE
