"""An export to a collection that cannot be had: it stands for what could not be built, and never moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.compute.frontier import Frontier
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Counted
from penstock.compute.replica.export_writer import ExportWriter
from penstock.compute.replica.failed import Failed
from penstock.compute.replica.runtime import Reached


class MissingCollection(ExportWriter):
    """Writes nothing. tell: is told why, for people."""

    def __init__(self, id: Id, sink: str, as_of: int, tell: Callable[[Id, str], None]) -> None:
        super().__init__(id, sink)
        self._as_of = Frontier(as_of)
        self._tell = tell

    def add(self, changes: Sequence[Counted], time: int) -> None:
        return

    def advance(self, upper: Frontier) -> None:
        return

    def fail(self, failed: Failed) -> None:
        self._tell(self.id, failed.error.what)

    def clear(self) -> None:
        return

    def drop(self) -> None:
        return

    def reached(self, computed: Frontier, read: Frontier) -> Reached:
        return Reached(self._as_of, read, self._as_of, self._as_of)
