"""Initialize: one row in the first tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.graph.facts import WHOLE, Facts, Placement, Port
from penstock.graph.node import Operator


@dataclass(frozen=True, slots=True)
class Initialize(Operator):
    """One row, `()`, in the first tick of a run, and nothing ever after; it starts no tick.

    A run that goes on from a checkpoint has had its first tick.

    >>> import penstock as ps
    >>> flow = ps.Flow("start")
    >>> flow.sink("started", flow.initialize())
    >>> engine = ps.Engine(flow)
    >>> [change.row for change in engine.tick()["started"]]
    [()]
    >>> [change.row for change in engine.tick()["started"]]
    []
    """

    kind: ClassVar[str] = "initialize"
    runs_first_tick: ClassVar[bool] = True

    def ports(self) -> tuple[Port, ...]:
        return ()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(bounded=True, append=True, ordered=True)

    def placement(self) -> Placement:
        return WHOLE
