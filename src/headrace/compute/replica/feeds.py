"""Feeds of durable collections: each change is read once, however many dataflows consume it.

A `CollectionFeed` buffers the latest changes of a collection. A dataflow that is further behind, for example
just after hydration, reads on its own until it reaches the buffer.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import CollectionBounds, Collections
from headrace.compute.errors import ComputeError, SinceViolation, StoreDamaged, UnknownName
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.plans import schema_from_bytes
from headrace.compute.protocol.commands import Dataflow, Id
from headrace.compute.protocol.responses import Counted, Update
from headrace.compute.replica.exports import ExportWriter, FailedExport, failure_of
from headrace.errors import BadInput
from headrace.expr.types import Schema

CHUNK = 1000
"""Number of rows read from a store at a time, which takes a few milliseconds."""
BUFFERED = 100_000
"""Number of changes that a feed buffers for cursors that are behind."""
_AT_A_TIME = 0.5
"""Interval in seconds at which a watcher checks whether to stop."""


class Version(NamedTuple):
    """All changes at one time. changes: not necessarily consolidated if there are many."""

    time: int
    changes: Sequence[Counted]


class VersionAssembler:
    """Assembler of chunked updates, ordered by time, into versions: all changes of a time together.

    known:    frontier before which all versions have been returned.
    finished: whether all versions have been returned, so that `known` is the upper.
    """

    def __init__(self, store: Collections, id: Id, lower: Frontier, upper: Frontier) -> None:
        self.known = lower
        self.finished = False
        self._chunks: Iterator[list[Update]] = store.changes(id, lower, upper, CHUNK)
        self._upper = upper
        self._time = -1
        self._changes: list[Counted] = []

    def read(self) -> list[Version]:
        """Read the next chunk and return the versions it completes, if any."""
        whole: list[Version] = []
        chunk = next(self._chunks, None)
        if chunk is None:
            self._finish(whole)
            self.known, self.finished = self._upper, True
            return whole
        for row, time, weight in chunk:
            if time != self._time:
                self._finish(whole)
                self._time = time
                self.known = Frontier(time)
            self._changes.append((row, weight))
        return whole

    def _finish(self, whole: list[Version]) -> None:
        if self._changes:
            whole.append(Version(self._time, self._changes))
            self._changes = []


def check_not_back(id: Id, before: Frontier, upper: Frontier) -> None:
    """Raise `StoreDamaged` if a collection's upper has moved back: its history was replaced."""
    if upper < before:
        raise StoreDamaged(
            f"collection {id} has gone back from time {before.time} to {upper.time}",
            why="Its store was restored or replaced while this replica ran, which has read what is gone.",
            fix="start this replica again. Restore a store only while controller and replicas are stopped",
        )


class CollectionFeed:
    """Shared reader of one collection.

    since, upper: bounds of the collection at the last look.
    lost: error if the collection no longer exists.
    failed: failure of this replica's dataflow that writes the collection, which will not advance any more.
    start, known: bounds of the times whose versions are buffered.
    """

    def __init__(self, store: Collections, id: Id, bounds: CollectionBounds) -> None:
        self.store = store
        self.id = id
        self.since = bounds.since
        self.upper = bounds.upper
        self._looked = bounds.upper
        self.start = self.known = bounds.upper
        self.lost: UnknownName | None = None
        self.failed: FailedExport | None = None
        self._buffer: deque[Version] = deque()
        self._buffered = 0
        self._reading: VersionAssembler | None = None

    @cached_property
    def schema(self) -> Schema:
        """Schema of the rows. Raises the store's errors, and `BadPlan` for an invalid description."""
        description = self.store.all().get(self.id)
        if description is None:
            raise UnknownName(f"there is no collection {self.id}", name=self.id)
        return schema_from_bytes(description)

    def update_bounds(self, bounds: CollectionBounds) -> bool:
        """Take the collection's current bounds; return whether the upper has risen since the last call.

        Raises `StoreDamaged` if the collection has lost times that were read.
        """
        check_not_back(self.id, self._looked, bounds.upper)
        self.since, self.upper = bounds.since, bounds.upper
        risen = bounds.upper > self._looked
        self._looked = bounds.upper
        return risen

    def refresh(self) -> None:
        """Update the upper from the store. Raises the store's errors.

        The next `look` reports that to its readers, whoever has called this.
        """
        (bounds,) = self.store.bounds([self.id])
        self.since, self.upper = bounds.since, bounds.upper

    def read(self) -> None:
        """Read the next chunk into the buffer. Raises the store's errors; the call can be repeated."""
        reading, self._reading = self._reading, None
        try:
            reading = reading or VersionAssembler(self.store, self.id, self.known, self.upper)
            found = reading.read()
        except SinceViolation:
            if not self._skip():
                raise
            return
        self._buffer.extend(found)
        self._buffered += sum(len(version.changes) for version in found)
        self.known = reading.known
        if not reading.finished:
            self._reading = reading
        while self._buffered > BUFFERED and len(self._buffer) > 1:
            oldest = self._buffer.popleft()
            self._buffered -= len(oldest.changes)
            self.start = Frontier(oldest.time + 1)

    def _skip(self) -> bool:
        """Skip to the since if compaction has overtaken the reader; False if nothing is left to read.

        Cursors that need the skipped changes read on their own, and get the error.
        """
        self.refresh()
        if self.since.time is None or self.known > self.since:
            return False
        self.start = self.known = min(Frontier(self.since.time + 1), self.upper)
        self._buffer.clear()
        self._buffered = 0
        return True

    def versions(self, lower: Frontier) -> list[Version]:
        """Return the buffered versions from a time on, which must not be before `start`."""
        found: list[Version] = []
        for version in reversed(self._buffer):
            if lower.has_passed(version.time):
                break
            found.append(version)
        found.reverse()
        return found

    def cursor(self, lower: Frontier) -> Cursor:
        """Create a cursor over the changes from a given time onward."""
        return Cursor(self, lower)


class Cursor:
    """Reader of a feed. known: frontier before which all versions have been returned."""

    def __init__(self, feed: CollectionFeed, lower: Frontier) -> None:
        self.known = lower
        self._feed = feed
        self._alone: VersionAssembler | None = None

    @property
    def is_compacted(self) -> bool:
        """Return whether the changes from `known` on have been compacted and are not buffered either."""
        feed = self._feed
        merged = feed.since > START and self.known <= feed.since
        return merged and (self.known < feed.start or feed.known <= feed.since)

    def read(self) -> list[Version]:
        """Read up to one chunk, and return the versions it completes, if any.

        Call it while `known` is before the feed's upper. Raises the errors of the store, after which the call
        can be repeated.
        """
        feed = self._feed
        if feed.lost is not None:
            raise feed.lost
        if self._alone is None and self.known < feed.start:
            self._alone = VersionAssembler(feed.store, feed.id, self.known, min(feed.start, feed.upper))
        if self._alone is not None:
            return self._read_alone(self._alone)
        if feed.known <= self.known:
            feed.read()
        if self.known < feed.start:
            return []  # it has gone on without this one, which reads alone from now on
        found = feed.versions(self.known)
        self.known = max(self.known, feed.known)
        return found

    def _read_alone(self, alone: VersionAssembler) -> list[Version]:
        self._alone = None
        found = alone.read()
        self.known = alone.known
        if not alone.finished:
            self._alone = alone
        return found


class Feeds:
    """Feeds of a store."""

    def __init__(self, store: Collections) -> None:
        self.store = store
        self._feeds: dict[Id, CollectionFeed] = {}

    def feed(self, id: Id) -> CollectionFeed:
        """Get or open the feed of a collection.

        Raises what the store raises: `UnknownName` where there is none.
        """
        feed = self._feeds.get(id)
        if feed is None:
            (bounds,) = self.store.bounds([id])
            feed = self._feeds[id] = CollectionFeed(self.store, id, bounds)
        return feed

    def forget_other_feeds(self, ids: set[Id]) -> None:
        """Forget the feeds of all other collections."""
        self._feeds = {id: feed for id, feed in self._feeds.items() if id in ids}

    def update_uppers(self) -> list[Id]:
        """Read the uppers of the collections.

        Returns the ids of collections whose upper has risen, or that are lost. Raises what the store raises.
        """
        if not self._feeds:
            return []
        ids = list(self._feeds)
        try:
            bounds = self.store.bounds(ids)
        except UnknownName:
            lost = self._find_lost()
            return [*lost, *self.update_uppers()]
        return [id for id, found in zip(ids, bounds, strict=True) if self._feeds[id].update_bounds(found)]

    def _find_lost(self) -> list[Id]:
        """Remove the feeds of collections that no longer exist, and return their ids."""
        lost: list[Id] = []
        for id in list(self._feeds):
            try:
                self.store.bounds([id])
            except UnknownName as error:
                self._feeds.pop(id).lost = error
                lost.append(id)
        return lost


class StoreWatcher:
    """Thread that calls `noticed` whenever a collection of a store may have changed, until stopped.

    It has its own connection to the store, and also calls once after opening it, since it cannot know of
    earlier changes.
    """

    def __init__(self, uri: str, noticed: Callable[[], None]) -> None:
        self._uri = uri
        self._noticed = noticed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headrace-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                store = open_collections(self._uri)
            except ComputeError:
                self._noticed()  # who reads the store will meet the error, too, and say so
                self._stopped.wait(_AT_A_TIME)
                continue
            try:
                self._watch_one(store)
            except ComputeError:
                self._noticed()
                self._stopped.wait(_AT_A_TIME)
            finally:
                store.close()

    def _watch_one(self, store: Collections) -> None:
        self._noticed()
        while not self._stopped.is_set():
            if store.wait(_AT_A_TIME):
                self._noticed()


RETRY = 0.1
"""Seconds before an unreachable store is retried."""


class DataflowRun(ABC):
    """Running dataflow, idle until it is started.

    upper:   frontier before which the dataflow is computed.
    failed:  failure of the dataflow, if any.
    exports: accessed while holding `exporting` if there are several threads.
    wanted:  ids of exports that are not dropped.
    skips_snapshot: whether no export needs the rows at the as-of, so that they are not read.
    """

    def __init__(
        self, dataflow: Dataflow, exports: Sequence[ExportWriter], timer: Callable[[], float]
    ) -> None:
        assert dataflow.as_of.time is not None
        self.dataflow = dataflow
        self.as_of = dataflow.as_of.time
        self.upper = dataflow.as_of
        self.failed: FailedExport | None = None
        self.hydrated = self.ended = self.started = False
        self.skips_snapshot = False
        self.exports = list(exports)
        self.exporting = threading.Lock()
        self.wanted = set(dataflow.export_ids)
        self._timer = timer
        self._retry_at = 0.0

    @property
    def read_upper(self) -> Frontier:
        """Frontier up to which inputs have been read and will not be read again."""
        return END if self.ended or self.failed is not None else self.upper

    @property
    def broken(self) -> bool:
        """Return whether the dataflow has failed or will fail, although a rebuilt one may succeed."""
        return self.failed is not None and not self.failed.lasting

    @property
    def fell_behind(self) -> bool:
        """Return whether changes that the dataflow has yet to read from a collection are compacted."""
        cause = None if self.failed is None else self.failed.error.__cause__
        return isinstance(cause, SinceViolation) and any(
            cause.facts.get("id") == each.id for each in self.dataflow.collections
        )

    def drop(self, export: ExportWriter) -> None:
        """Drop an export."""
        self.wanted.discard(export.id)
        with self.exporting:
            export.drop()

    def fail(self, cause: Exception) -> None:
        """Fail from the upper on."""
        self._fail(self.as_of if self.upper.time is None else self.upper.time, cause)

    def _pass_on(self, failure: FailedExport) -> None:
        """Fail because an input has failed."""
        self._fail(max(failure.time, self.as_of), failure.error)

    def _fail(self, time: int, cause: Exception) -> None:
        self.failed = failure_of(min(self.dataflow.export_ids), self.dataflow.name, time, cause)
        with self.exporting:
            for export in self.exports:
                export.fail(self.failed)
        self._fail_store(self.failed)
        self.upper = Frontier(time + 1)
        self._end()

    def _finish(self) -> None:
        """End because the until has been reached."""
        with self.exporting:
            for export in self.exports:
                export.finish()
        self._end()

    def _retry_later(self) -> None:
        self._retry_at = self._timer() + RETRY

    def _fail_store(self, failure: FailedExport) -> None:
        """Replace stored contents, other than exports, with an error."""
        return

    @abstractmethod
    def _end(self) -> None:
        """Stop computing and release the inputs."""


def weighted_rows(changes: Sequence[Counted], append: bool, source: str) -> list[tuple[Any, ...]]:
    """Convert changes to engine rows: with the weight last, or one copy per row.

    append: whether the source is append-only; raises `BadInput` for a retraction then.
    """
    if not append:
        return [(*row, weight) for row, weight in changes]
    rows: list[tuple[Any, ...]] = []
    for row, weight in changes:
        if weight == 1:
            rows.append(row)
        elif weight > 1:
            rows.extend([row] * weight)
        else:
            raise BadInput(
                f"source {source!r} takes no row back, and {row} was taken back",
                fix="make it a table source, table=True, or append only",
                source=source,
            )
    return rows
