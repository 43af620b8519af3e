"""Listening to a collection: all its changes from a time on, exactly once and without gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.compute.collections.store import Collections
from headrace.compute.errors import ComputeError
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import Update


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Next changes from `lower` on, ordered by time, completing all times before `upper`.

    All updates are before `upper`, unless one time has too many for one batch. Then some are at `upper`
    itself, and the next batch, whose `lower` is this `upper`, continues with the others of that time.
    """

    lower: Frontier
    upper: Frontier
    updates: list[Update]


class Listen:
    """Changes of a collection from `lower` on, in consecutive batches without gaps or overlaps.

    chunk: limit on the updates of one batch.

    The store holds nothing back for a listener: its owner must keep the since below `reached`, otherwise
    `SinceViolation` is raised. After a `StoreUnavailable`, it continues where it left off.

    >>> from headrace.compute.collections.memory import MemoryCollections
    >>> from headrace.compute.collections.store import CollectionAppend
    >>> store = MemoryCollections()
    >>> store.create("s1", b"")
    >>> store.append([CollectionAppend("s1", Frontier(0), Frontier(9), [(("a",), 3, 1), (("b",), 5, 1)])])
    >>> listen = Listen(store, "s1", Frontier(4))
    >>> listen.next()
    ChangeBatch(lower=Frontier(time=4), upper=Frontier(time=9), updates=[(('b',), 5, 1)])
    >>> listen.next() is None
    True
    """

    def __init__(self, collections: Collections, id: Id, lower: Frontier, chunk: int = 10_000) -> None:
        self.collections = collections
        self.id = id
        self.chunk = chunk
        self.reached = lower
        self._sent = 0  # updates at `reached` itself
        self._reading: Iterator[list[Update]] | None = None
        self._ahead: list[Update] | None = None
        self._upper = lower

    def next(self, upper: Frontier | None = None) -> ChangeBatch | None:
        """Read the next batch, up to `upper` at most; None if there is nothing new.

        upper: the collection's upper, if the caller has just read it.
        Raises what `Collections.changes` raises.
        """
        if self._reading is None:
            upper = self.collections.bounds([self.id])[0].upper if upper is None else upper
            if upper <= self.reached:
                return None
            self._upper = upper
        try:
            updates = self._take()
        except ComputeError:
            self._reading = self._ahead = None
            raise
        lower = self.reached
        if self._reading is None:
            self.reached, self._sent = self._upper, 0
        else:
            last = Frontier(updates[-1][1])
            self._sent = sum(time == last.time for _, time, _ in updates) + self._sent * (last == lower)
            self.reached = last
        return ChangeBatch(lower, self.reached, updates)

    def _take(self) -> list[Update]:
        """Read the next updates, one list ahead so that the last list is recognized."""
        if self._reading is None:
            self._reading = self._open()
            self._ahead = next(self._reading, None)
        updates, self._ahead = self._ahead or [], next(self._reading, None)
        if self._ahead is None:
            self._reading = None
        return updates

    def _open(self) -> Iterator[list[Update]]:
        skip = self._sent
        for updates in self.collections.changes(self.id, self.reached, self._upper, self.chunk):
            if skip < len(updates):
                yield updates[skip:]
            skip = max(0, skip - len(updates))
