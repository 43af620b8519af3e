"""Sink: where changes leave a flow, consolidated per tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.graph.facts import Port
from penstock.graph.node import Operator


@dataclass(frozen=True, slots=True)
class Sink(Operator):
    """The changes of a stream: per tick at most one per row, of a weight that is not 0.

    A stream that never takes a row back leaves as plain rows: weight +1 each, copies one by one.

    >>> import penstock as ps
    >>> flow = ps.Flow("numbers")
    >>> flow.sink("out", flow.table("numbers", int))
    >>> ps.Engine(flow).tick(numbers=[ps.insert(1), ps.insert(2), ps.delete(1)])["out"]
    Changes([Change(row=2, weight=1)])
    """

    kind: ClassVar[str] = "sink"
    name: str

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)
