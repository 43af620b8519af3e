"""From a signal to a stream: its values as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.flow.operators.signals.signal_operator import ONE_INPUT
from penstock.graph.facts import Port
from penstock.graph.node import Operator


@dataclass(frozen=True, slots=True)
class ValueRows(Operator):
    """A row in each tick in which the signal fires: its value.

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
