"""Sink: where changes leave a flow, consolidated per tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.graph.facts import Port
from penstock.graph.node import Operator


@dataclass(frozen=True, slots=True)
class Sink(Operator):
    """The changes of a stream, at most one weight per row and tick, never 0."""

    kind: ClassVar[str] = "sink"
    name: str

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def describe(self) -> str:
        return self.name
