"""What a dataflow on Spark reads: a durable collection, or what another dataflow of the replica has made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from penstock.compute.collections.store import Collections
from penstock.compute.errors import SinceViolation
from penstock.compute.frontier import Frontier
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Counted, Update
from penstock.compute.replica.failed import Failed
from penstock.compute.replica.spark_versions import Versions

_CHUNK = 10_000


class Seen(NamedTuple):
    """What was read once: the changes from `lower` to before `upper`, or the rows just before it where
    `lower` is None; how many (`rows`), and their weights in all."""

    lower: int | None
    upper: int
    rows: int
    weight: int


class GoesOn(Enum):
    """Whether what was read until some time can be gone on with."""

    YES = 1
    NOT_YET = 2
    """When it has come as far as it was."""
    NO = 3
    """It is another one, or too much of it has been forgotten."""


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

    @abstractmethod
    def goes_on(self, store: Collections, upper: Frontier, seen: Seen | None) -> GoesOn:
        """Whether a later process that has read to `upper` can go on there. seen: at last."""

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

    def goes_on(self, store: Collections, upper: Frontier, seen: Seen | None) -> GoesOn:
        (bounds,) = store.bounds([self.id])
        if bounds.upper < upper or bounds.since >= upper:
            return GoesOn.NO
        # A collection of the same id in a store that was made anew is another one.
        return GoesOn.YES if seen is None or self._is_same(store, seen) else GoesOn.NO

    def _is_same(self, store: Collections, seen: Seen) -> bool:
        count = weight = 0
        try:
            if seen.lower is None:
                for rows in store.snapshot(self.id, seen.upper - 1, _CHUNK):
                    count, weight = count + len(rows), weight + sum(times for _, times in rows)
            else:
                for updates in store.changes(self.id, Frontier(seen.lower), Frontier(seen.upper), _CHUNK):
                    count, weight = count + len(updates), weight + sum(by for _, _, by in updates)
        except SinceViolation:
            # Its since is in the middle of what was read: one made anew would have nothing there.
            return True
        return (count, weight) == (seen.rows, seen.weight)


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
        yield self.versions.changes(lower, upper)

    def goes_on(self, store: Collections, upper: Frontier, seen: Seen | None) -> GoesOn:
        if not self.versions.restored or self.versions.merged_to >= (upper.time or 0):
            return GoesOn.NO
        # It may have come farther without a tick, which is not noted.
        return GoesOn.NOT_YET if self.versions.upper < upper else GoesOn.YES

    @property
    def failed(self) -> Failed | None:
        return self.versions.failed

    def settled(self, upper: Frontier) -> None:
        if upper.time:
            self._hold.move(upper.time - 1)

    def close(self) -> None:
        self._hold.release()
