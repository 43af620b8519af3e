"""What a dataflow on Spark reads: a durable collection, or what another dataflow of the replica has made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from penstock.compute.collections.store import Collections
from penstock.compute.errors import SinceViolation
from penstock.compute.frontier import Frontier
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Counted, Update
from penstock.compute.replica.failed import Failed
from penstock.compute.replica.spark_versions import Versions

_CHUNK = 10_000


class Import(ABC):
    """A source of a flow, with what it reads. Used by one thread at a time."""

    source: str

    @abstractmethod
    def upper(self, store: Collections) -> Frontier:
        """How far it can be read at present."""

    @abstractmethod
    def snapshot(self, store: Collections, at: int) -> Iterator[Sequence[Counted]]:
        """The rows at a time that is settled, in parts."""

    @abstractmethod
    def changes(self, store: Collections, lower: int, upper: Frontier) -> Iterator[Sequence[Update]]:
        """The changes with times from `lower` to before `upper`, by time, in parts."""

    @property
    def failed(self) -> Failed | None:
        """Where what it reads has failed."""
        return None

    def settled(self, upper: Frontier) -> None:
        """Times before `upper` have been computed and are not read again."""
        return

    def close(self) -> None:
        """Nothing is read any more."""
        return


class FromCollection(Import):
    def __init__(self, source: str, id: Id) -> None:
        self.source = source
        self.id = id

    def upper(self, store: Collections) -> Frontier:
        return store.bounds([self.id])[0].upper

    def snapshot(self, store: Collections, at: int) -> Iterator[Sequence[Counted]]:
        return store.snapshot(self.id, at, _CHUNK)

    def changes(self, store: Collections, lower: int, upper: Frontier) -> Iterator[Sequence[Update]]:
        return store.changes(self.id, Frontier(lower), upper, _CHUNK)


class FromVersions(Import):
    """It stays readable from the last time that was computed on; `at` is the first one."""

    def __init__(self, source: str, versions: Versions, at: int) -> None:
        self.source = source
        self.versions = versions
        self._hold = versions.hold(at)

    def upper(self, store: Collections) -> Frontier:
        return self.versions.upper

    def snapshot(self, store: Collections, at: int) -> Iterator[Sequence[Counted]]:
        yield self.versions.scan(at)

    def changes(self, store: Collections, lower: int, upper: Frontier) -> Iterator[Sequence[Update]]:
        if lower <= self.versions.merged_to:
            raise SinceViolation(
                f"what {self.source!r} reads cannot be told apart before time {lower}",
                why=f"its changes up to time {self.versions.merged_to} have been merged",
                time=lower,
                since=self.versions.merged_to,
            )
        yield self.versions.changes(lower, upper)

    @property
    def failed(self) -> Failed | None:
        return self.versions.failed

    def settled(self, upper: Frontier) -> None:
        if upper.time:
            self._hold.move(upper.time - 1)

    def close(self) -> None:
        self._hold.release()
