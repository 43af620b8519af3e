"""In-memory collections, for tests and the simulator. They outlive their handles, but not the process."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Condition

from headrace.compute.collections.rows import RowCodec, StoredChange, check_counts, split_into_chunks
from headrace.compute.collections.store import (
    CollectionAppend,
    CollectionBounds,
    Collections,
    check_changes,
    check_expected,
    check_id,
    check_readable,
    check_same_collection,
    unknown_collection_error,
)
from headrace.compute.frontier import START, Frontier
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import Counted, Update
from headrace.state.codec import decode

LARGEST_PAGE = 1 << 30


@dataclass(eq=False, slots=True)
class _Contents:
    """Content of one collection.

    changes: ordered by time. The list only grows; a compaction replaces it by another one.
    counts:  multiplicity of each row after all changes, by key.
    """

    description: bytes
    upper: Frontier
    since: Frontier = START
    changes: list[StoredChange] = field(default_factory=list[StoredChange])
    counts: dict[bytes, int] = field(default_factory=dict[bytes, int])

    @property
    def bounds(self) -> CollectionBounds:
        return CollectionBounds(self.since, self.upper)

    def add(self, changes: Sequence[StoredChange], upper: Frontier) -> None:
        self.upper = upper
        if not self.since.ended:
            self.changes += changes
            for change in changes:
                self.counts[change.key] = self.counts.get(change.key, 0) + change.weight

    def compact(self, since: Frontier) -> None:
        self.since = since
        if since.time is None:
            self.changes, self.counts = [], {}
            return
        merged = [(change, count) for change, count in _sums(self.changes, since.time) if count]
        later = self.changes[_first_after(self.changes, since.time) :]
        self.changes = [change._replace(time=0, weight=count) for change, count in merged] + later
        self.counts = {key: count for key, count in self.counts.items() if count}


@dataclass(eq=False)
class SharedStore:
    """Store shared by all handles. version: increases with each change."""

    changed: Condition = field(default_factory=Condition)
    version: int = 0
    contents: dict[Id, _Contents] = field(default_factory=dict[Id, _Contents])

    def get(self, id: Id) -> _Contents:
        if id not in self.contents:
            raise unknown_collection_error(id)
        return self.contents[id]

    def notify(self) -> None:
        self.version += 1
        self.changed.notify_all()


_NAMED: dict[str, SharedStore] = {}


class MemoryCollections(Collections):
    """Handle on an in-memory store. Handles in any thread share the store through `shared`.

    page: limit on the updates of a list, whatever `chunk` is, so that little data makes many lists.

    >>> store = MemoryCollections()
    >>> store.create("s1", b"")
    >>> store.append([CollectionAppend("s1", Frontier(0), Frontier(3), [(("a",), 1, +2), (("a",), 2, -1)])])
    >>> list(store.snapshot("s1", 1)), list(store.snapshot("s1", 2))
    ([[(('a',), 2)]], [[(('a',), 1)]])
    """

    def __init__(self, shared: SharedStore | None = None, *, page: int = LARGEST_PAGE) -> None:
        self._shared = shared or SharedStore()
        self._page = page
        self._codec = RowCodec()
        self._seen = self._shared.version

    @classmethod
    def named(cls, name: str) -> MemoryCollections:
        """Open a handle on the store with this name in the process."""
        return cls(_NAMED.setdefault(name, SharedStore()))

    def create(self, id: Id, description: bytes, upper: Frontier = START) -> None:
        check_id(id)
        with self._shared.changed:
            there = self._shared.contents.get(id)
            if there is not None:
                check_same_collection(id, description, there.description)
                return
            self._shared.contents[id] = _Contents(description, upper)
            self._shared.notify()

    def drop(self, id: Id) -> None:
        with self._shared.changed:
            if self._shared.contents.pop(id, None) is not None:
                self._shared.notify()

    def all(self) -> dict[Id, bytes]:
        with self._shared.changed:
            return {id: contents.description for id, contents in self._shared.contents.items()}

    def bounds(self, ids: Sequence[Id]) -> list[CollectionBounds]:
        with self._shared.changed:
            return [self._shared.get(id).bounds for id in ids]

    def append(self, appends: Sequence[CollectionAppend]) -> None:
        with self._shared.changed:
            checked: list[tuple[_Contents, list[StoredChange], Frontier]] = []
            uppers: dict[Id, Frontier] = {}
            pending: dict[Id, dict[bytes, int]] = {}
            for append in appends:
                changes = self._codec.changes(append)
                there = self._shared.get(append.id)
                check_expected(append.id, append.expected, uppers.get(append.id, there.upper))
                counts = pending.setdefault(append.id, {})
                if not there.since.ended:
                    check_counts(append.id, changes, partial(_together, (there.counts, counts)))
                for change in changes:
                    counts[change.key] = counts.get(change.key, 0) + change.weight
                uppers[append.id] = append.upper
                checked.append((there, changes, append.upper))
            for there, changes, upper in checked:
                there.add(changes, upper)
            self._shared.notify()

    def snapshot(self, id: Id, at: int, chunk: int = 10_000) -> Iterator[list[Counted]]:
        with self._shared.changed:
            there = self._shared.get(id)
            check_readable(id, there.bounds, at)
            changes, end = there.changes, _first_after(there.changes, at)
        return split_into_chunks(
            [(decode(change.row), n) for change, n in _sums(changes[:end], at) if n], chunk
        )

    def changes(
        self, id: Id, lower: Frontier, upper: Frontier, chunk: int = 10_000
    ) -> Iterator[list[Update]]:
        with self._shared.changed:
            there = self._shared.get(id)
            check_changes(id, there.bounds, lower, upper)
            found = there.changes[_first_from(there.changes, lower) : _first_from(there.changes, upper)]
        updates = [(decode(change.row), change.time, change.weight) for change in found]
        return self._changes(id, lower, upper, split_into_chunks(updates, min(chunk, self._page)))

    def _changes(
        self, id: Id, lower: Frontier, upper: Frontier, parts: Iterator[list[Update]]
    ) -> Iterator[list[Update]]:
        # The rows at hand are right; but other stores read them only now, and refuse those merged meanwhile.
        for part in parts:
            with self._shared.changed:
                check_changes(id, self._shared.get(id).bounds, lower, upper)
            yield part
            lower = max(lower, Frontier(part[-1][1]))

    def compact(self, id: Id, since: Frontier) -> None:
        with self._shared.changed:
            there = self._shared.get(id)
            if since > there.since:
                there.compact(since)

    def wait(self, seconds: float) -> bool:
        with self._shared.changed:
            happened = self._shared.changed.wait_for(lambda: self._shared.version != self._seen, seconds)
            self._seen = self._shared.version
            return happened

    def close(self) -> None:
        pass


def _together(counts: Sequence[Mapping[bytes, int]], keys: Iterable[bytes]) -> dict[bytes, int]:
    return {key: sum(of.get(key, 0) for of in counts) for key in keys}


def _first_from(changes: list[StoredChange], frontier: Frontier) -> int:
    """Return the number of leading changes that the frontier has passed."""
    return len(changes) if frontier.time is None else bisect_left(changes, (frontier.time,))


def _first_after(changes: list[StoredChange], time: int) -> int:
    return bisect_left(changes, (time + 1,))


def _sums(changes: list[StoredChange], at: int) -> list[tuple[StoredChange, int]]:
    """Return each row's multiplicity at a time, with the row's first change."""
    found: dict[bytes, tuple[StoredChange, int]] = {}
    for change in changes[: _first_after(changes, at)]:
        first, count = found.get(change.key, (change, 0))
        found[change.key] = first, count + change.weight
    return list(found.values())
