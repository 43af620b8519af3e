"""An export kept in memory: an arrangement, for peeks and other dataflows."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.compute.frontier import Frontier
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Counted
from penstock.compute.replica.arrangement import Arrangement
from penstock.compute.replica.export_writer import ExportWriter
from penstock.compute.replica.failed import Failed
from penstock.compute.replica.runtime import Reached


class IndexOutlet(ExportWriter):
    """Keeps what it is told in an arrangement, also after it was dropped, while others read it."""

    def __init__(self, id: Id, sink: str, index: Arrangement) -> None:
        super().__init__(id, sink)
        self.index = index
        self.add = index.add  # called for all that happens

    def add(self, changes: Sequence[Counted], time: int) -> None: ...

    def advance(self, upper: Frontier) -> None:
        self.index.advance(upper)

    def fail(self, failed: Failed) -> None:
        self.index.fail(failed)

    def clear(self) -> None:
        self.index.clear()

    def drop(self) -> None:
        pass

    def reached(self, computed: Frontier, read: Frontier) -> Reached:
        upper = self.index.upper
        return Reached(upper, read, upper, self.index.since)
