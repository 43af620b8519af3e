"""What becomes of the changes of a sink: what indexes, subscriptions, copies, written collections share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from penstock.compute.frontier import Frontier
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Counted
from penstock.compute.replica.failed import Failed
from penstock.compute.replica.runtime import Reached


class ExportWriter(ABC):
    """An export of a dataflow, which tells it: some changes of a time, and how far it is whole.

    Times come in order. What was told of times from the upper on must not be seen by anybody.
    once: it wants nothing after the as-of.
    retry_at: by the timer; before it nothing is to be tried.
    """

    once: ClassVar[bool] = False

    def __init__(self, id: Id, sink: str) -> None:
        self.id = id
        self.sink = sink
        self.retry_at = 0.0

    @abstractmethod
    def add(self, changes: Sequence[Counted], time: int) -> None:
        """Some of the changes of a time, not before the last upper. Several calls may cancel out."""

    @abstractmethod
    def advance(self, upper: Frontier) -> None:
        """All changes of times before `upper` have been told."""

    def finish(self) -> None:
        """Nothing will be computed any more: the dataflow has come to its until."""
        return

    @abstractmethod
    def fail(self, failed: Failed) -> None:
        """From a time on, not before the last upper, there is an error instead."""

    @abstractmethod
    def clear(self) -> None:
        """The dataflow starts again, before the first upper was told."""

    def flush(self) -> None:
        """A slice of the dataflow is over: a good moment to tell others."""
        return

    def work(self) -> bool:
        """Do a slice of what is left to do besides; whether there is more to do at once."""
        return False

    @abstractmethod
    def drop(self) -> None:
        """It is not wanted any more."""

    def reached(self, computed: Frontier, read: Frontier) -> Reached | None:
        """How far it has come, where that is told. computed, read: how far its dataflow has."""
        return None
