"""Conversion from a signal to a stream: one row per value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.operators.signals.signal_operator import ONE_INPUT
from penstock.flow.unservable import SIGNAL
from penstock.graph.node import Operator
from penstock.graph.operator_declarations import WHOLE, Placement, Port

if TYPE_CHECKING:
    from penstock.graph.check_context import CheckContext
    from penstock.graph.node import Columns
    from penstock.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class ValueRows(Operator):
    """The value as a row in each tick in which the signal fires.

    >>> import penstock as ps
    >>> flow = ps.Flow("how often each")
    >>> values = flow.signal("a", str).stream()
    >>> flow.sink("counts", values.group_by("value").agg(n=ps.count()))
    >>> list(ps.Engine(flow).tick(a="x")["counts"])
    [Change(row=Row(value='x', n=1), weight=1)]
    """

    kind: ClassVar[str] = "values"

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        return None

    def unservable(self) -> Unservable | None:
        return SIGNAL

    def placement(self) -> Placement:
        return WHOLE
