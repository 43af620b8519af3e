"""Durable collections: timestamped changes with a since and an upper. One interface, several stores.

A collection is readable at all times t with since <= t < upper: its rows at t are the sum of the updates
with times up to t, and never change (they are definite). Both frontiers only advance.

Equal rows count as one row: 0.0 equals -0.0, the decimal 1.0 equals 1.00, and NaN equals NaN; values of
different types differ. A row is returned in one of the forms in which it was written.

A URI names a store:

    sqlite:PATH  or a bare path       one SQLite file
    memory:NAME                       in this process, for tests and the simulator
    postgresql://USER@HOST/DATABASE   two tables in PostgreSQL; the password in PGPASSWORD
    delta:PATH                        a Delta table
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.compute.errors import (
    AlreadyThere,
    ComputeError,
    SinceViolation,
    TimestampNotReady,
    UnknownName,
    UpperMismatch,
)
from headrace.compute.frontier import START, Frontier
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import Counted, Update
from headrace.errors import BadInput


@dataclass(frozen=True, slots=True)
class CollectionBounds:
    """Readable times of a collection: from `since` to before `upper`. upper END: sealed."""

    since: Frontier
    upper: Frontier


@dataclass(frozen=True, slots=True)
class CollectionAppend:
    """Updates that advance a collection from `expected`, its current upper, to `upper`.

    updates: updates with times in [expected, upper), in any order; may be empty.
    """

    id: Id
    expected: Frontier
    upper: Frontier
    updates: Sequence[Update] = ()


class Collections(ABC):
    """Store of durable collections.

    Other processes may use the same store at the same time. A handle is used by one thread, except that
    `append` may run in another thread meanwhile.

    Every method raises `StoreUnavailable` if the store cannot be reached, `StoreDamaged` if its contents were
    not written by this class, and `UnknownName` for an unknown collection.
    """

    @abstractmethod
    def create(self, id: Id, description: bytes, upper: Frontier = START) -> None:
        """Create an empty collection with since START. Does nothing if an equal one exists.

        id: up to 200 printable characters, else ValueError. Never becomes part of a path or a statement.
        description: opaque bytes, such as the schema and other metadata of the creator. Raises
            `AlreadyThere` if a collection with this id has another description.
        """

    @abstractmethod
    def drop(self, id: Id) -> None:
        """Drop a collection with all its rows.

        Does nothing if there is none. Rows may be deleted from disk later, during a `drop` or `compact` of
        any collection.
        """

    @abstractmethod
    def all(self) -> dict[Id, bytes]:
        """Return the ids and descriptions of all collections."""

    @abstractmethod
    def bounds(self, ids: Sequence[Id]) -> list[CollectionBounds]:
        """Read the bounds of several collections in one consistent snapshot."""

    @abstractmethod
    def append(self, appends: Sequence[CollectionAppend]) -> None:
        """Append to several collections atomically and durably.

        Exclusive per collection. The second append to the same collection continues where the first ends.

        Raises `UpperMismatch` if an upper is not the expected one; `NegativeMultiplicity` if a row's
        multiplicity would be negative at some time; ValueError if a time is outside [expected, upper), if
        upper < expected, or if a weight has more than 63 bits. `StoreUnavailable` also means that nothing was
        written, unless its fact `undecided` is true; then the upper shows the outcome.
        """

    @abstractmethod
    def snapshot(self, id: Id, at: int, chunk: int = 10_000) -> Iterator[list[Counted]]:
        """Read the rows at a time, each once with its count, in lists of 1 to `chunk`.

        The snapshot is consistent, however slowly it is read and whatever others append; a later `compact`
        beyond `at` may end it with `SinceViolation`, but never with wrong rows. Raises `SinceViolation` below
        the since and `TimestampNotReady` from the upper on, immediately rather than with the first list.

        A partly read snapshot ends when its iterator is closed or garbage-collected; until then, stores may
        have to keep its data.
        """

    @abstractmethod
    def changes(
        self, id: Id, lower: Frontier, upper: Frontier, chunk: int = 10_000
    ) -> Iterator[list[Update]]:
        """Read the updates with times in [lower, upper), ordered by time, in lists of 1 to `chunk`.

        Raises `SinceViolation` if lower <= since, unless the since is START, because updates at the since may
        have been merged from earlier times, and `TimestampNotReady` if `upper` is above the collection's.
        Repeated calls return the same order.

        A later `compact` to before the time of the last update that was read has no effect on the rest. One
        beyond it may end the reading with `SinceViolation`, but never with wrong updates.
        """

    @abstractmethod
    def compact(self, id: Id, since: Frontier) -> None:
        """Advance the since: updates at earlier times count as being at `since`.

        A frontier that is not above the current since has no effect. END discards the rows: the collection
        is no longer readable, but can still be appended to. A since may be above the upper.

        Each call merges a bounded slice of the updates that can be merged, so call it regularly."""

    def check(self, *, thorough: bool = False) -> None:
        """Raise `StoreDamaged` if the storage is damaged. thorough: read all rows."""
        return

    def erase(self) -> dict[Id, CollectionBounds]:
        """Erase from disk the rows deleted up to the since of each collection.

        Returns the collections that can be read as of earlier times, for which rows stay that are deleted
        since. Raises `BadInput` where the store cannot do it, and `StoreUnavailable` while it is read.
        """
        raise BadInput(
            "this store of collections cannot erase what was deleted",
            fix="erase it by other means: of a Delta table, by VACUUM without retention",
        )

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait until some upper in the store may have risen. Returns False on timeout.

        May return True although nothing has happened, but never misses a change since the last call that
        returned True (or since the handle was opened). The latency depends on the store, mostly milliseconds.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files and connections."""


def unknown_collection_error(id: Id) -> UnknownName:
    return UnknownName(
        f"there is no collection {id!r}", fix="create it first; it may have been dropped", name=id
    )


def is_valid_collection_id(id: Id) -> bool:
    """Return whether every store accepts the id."""
    return 0 < len(id) <= 200 and id.isprintable()


def check_id(id: Id) -> None:
    if not is_valid_collection_id(id):
        raise ValueError(f"{id!r} is no id of a collection")


def check_same_collection(id: Id, description: bytes, there: bytes) -> None:
    """Raise `AlreadyThere` if the existing collection has another description."""
    if description != there:
        raise AlreadyThere(
            f"a different collection {id!r} already exists",
            fix="use another id, or drop that collection first",
            name=id,
        )


def check_expected(id: Id, expected: Frontier, upper: Frontier) -> None:
    if expected != upper:
        raise UpperMismatch(
            f"another writer has appended to {id!r}; nothing was written",
            why=f"the append expected upper {expected}; the upper is {upper}",
            fix="read the upper again, and append from there",
            id=id,
            expected=expected,
            upper=upper,
        )


def check_readable(id: Id, bounds: CollectionBounds, at: int) -> None:
    if bounds.since.has_passed(at):
        raise _compacted(id, at, bounds.since)
    if not bounds.upper.has_passed(at):
        raise _not_yet(id, at, bounds.upper)


def check_changes(id: Id, bounds: CollectionBounds, lower: Frontier, upper: Frontier) -> None:
    if lower <= bounds.since and bounds.since != START:
        raise _compacted(id, lower.time, bounds.since)
    if upper > bounds.upper:
        raise _not_yet(id, upper.time, bounds.upper)


def _compacted(id: Id, time: int | None, since: Frontier) -> SinceViolation:
    return SinceViolation(
        f"time {time} of {id!r} can no longer be read",
        why=f"its changes are compacted up to {since}",
        fix="read at a later time, or keep a longer history",
        id=id,
        time=time,
        since=since,
    )


def _not_yet(id: Id, time: int | None, upper: Frontier) -> TimestampNotReady:
    return TimestampNotReady(
        f"{id!r} is not complete up to {'its end' if time is None else f'time {time}'}",
        why=f"its upper is {upper}",
        fix="wait until its upper is beyond that time",
        id=id,
        time=time,
        upper=upper,
    )


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
