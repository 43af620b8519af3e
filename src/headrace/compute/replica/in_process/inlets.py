"""Inputs of a dataflow in this process: a durable collection, or an index of the same replica.

Both are read in the same way, time by time. Joins may read an index in place instead of copying its rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import Dataflow
from headrace.compute.protocol.responses import Counted
from headrace.compute.replica.exports import FailedExport
from headrace.compute.replica.feeds import CollectionFeed, Cursor, Version
from headrace.compute.replica.in_process import ticking
from headrace.compute.replica.in_process.arrangement import TimedArrangement
from headrace.engine.engine import Engine
from headrace.engine.external_join_sides import SharedSide, SourceJoinSide, join_readers, join_sides
from headrace.engine.program import compile_program
from headrace.expr.types import Schema
from headrace.flow.flow import Flow

if TYPE_CHECKING:
    from headrace.arrangement.spine import Spine

HYDRATED = 8_192
"""Number of rows of a snapshot read from a store at a time, which takes some ten milliseconds."""


class DataflowInlet(ABC):
    """Source of a flow with its input.

    First `snapshot` is read, once it is `ready`; then versions, each a whole time, in order. `next_time` is
    the time of the next version if that is known, as all versions before `known` are.
    """

    source: str

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Schema of the rows. Raises the store's errors."""

    @abstractmethod
    def ready(self, at: int) -> bool:
        """Return whether the snapshot at a time can be read."""

    @abstractmethod
    def snapshot(self, at: int) -> Iterator[Sequence[Counted]]:
        """Read the rows at a time, in parts. Changes after that time follow."""

    @property
    @abstractmethod
    def known_frontier(self) -> Frontier:
        """Frontier of known versions: all versions before it have been or can be taken."""

    @property
    @abstractmethod
    def upper(self) -> Frontier:
        """Upper of the input."""

    @property
    @abstractmethod
    def next_time(self) -> int | None:
        """Time of the next known version."""

    @abstractmethod
    def take(self) -> Version:
        """Take the next version."""

    @abstractmethod
    def read(self) -> None:
        """If `known` is before `upper`, read more versions, as many as one slice of work allows."""

    @abstractmethod
    def release_before(self, upper: Frontier) -> None:
        """Release times before `upper`, which have been computed."""

    def is_compacted(self, at: int) -> bool:
        """Return whether the next times have been compacted. at: time of the snapshot."""
        return False

    @property
    def failed(self) -> FailedExport | None:
        """Failure of the input, if any."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Release the input."""


class FromCollection(DataflowInlet):
    """Input from a durable collection. upper: as last read from the store."""

    def __init__(self, source: str, feed: CollectionFeed) -> None:
        self.source = source
        self.feed = feed
        self._cursor: Cursor | None = None
        self._versions: deque[Version] = deque()

    @property
    def schema(self) -> Schema:
        return self.feed.schema

    def ready(self, at: int) -> bool:
        return self.upper.has_passed(at)

    def snapshot(self, at: int) -> Iterator[Sequence[Counted]]:
        self._cursor = self.feed.cursor(Frontier(at + 1))
        self._versions.clear()
        return self.feed.store.snapshot(self.feed.id, at, HYDRATED)

    def is_compacted(self, at: int) -> bool:
        return self.feed.since.has_passed(at) if self._cursor is None else self._cursor.is_compacted

    @property
    def known_frontier(self) -> Frontier:
        assert self._cursor is not None
        return self._cursor.known

    @property
    def upper(self) -> Frontier:
        # Of one that is lost there is something to read: that it is.
        return self.feed.upper if self.feed.lost is None else END

    @property
    def next_time(self) -> int | None:
        return self._versions[0].time if self._versions else None

    def take(self) -> Version:
        return self._versions.popleft()

    def read(self) -> None:
        assert self._cursor is not None
        self._versions.extend(self._cursor.read())

    def release_before(self, upper: Frontier) -> None:
        pass

    @property
    def failed(self) -> FailedExport | None:
        return self.feed.failed

    def close(self) -> None:
        self._versions.clear()


class FromIndex(DataflowInlet):
    """Input from an index, read in place and kept readable from the last computed time on."""

    def __init__(self, source: str, index: TimedArrangement, at: int) -> None:
        self.source = source
        self.index = index
        self._hold = index.hold(at)
        self._known = Frontier(at)
        self._versions: deque[Version] = deque()

    @property
    def schema(self) -> Schema:
        return self.index.schema

    def ready(self, at: int) -> bool:
        return self.index.upper.has_passed(at)

    def snapshot(self, at: int) -> Iterator[Sequence[Counted]]:
        self._known = Frontier(at + 1)
        self._versions.clear()
        return self.index.scan(at)

    @property
    def known_frontier(self) -> Frontier:
        return self._known

    @property
    def upper(self) -> Frontier:
        return self.index.upper

    @property
    def next_time(self) -> int | None:
        return self._versions[0].time if self._versions else None

    def take(self) -> Version:
        return self._versions.popleft()

    def read(self) -> None:
        assert self._known.time is not None
        self._versions.extend(self.index.changes_after(self._known.time - 1))
        self._known = self.index.upper

    def release_before(self, upper: Frontier) -> None:
        if upper.time is not None:
            self._hold.move(upper.time - 1)

    @property
    def failed(self) -> FailedExport | None:
        return self.index.failed

    def close(self) -> None:
        self._versions.clear()
        self._hold.release()


_NOTHING: Collection[Counted] = ()
ASKED = 128
"""Number of keys asked for at one time after which a part of the rows is loaded."""
_OTHER_ROWS = 4
"""Rows that an index has beside columns, per row of a tick, up to which it takes the index in columns."""
_WORTH = 64
"""Number of rows per question up to which it is worth while to load all."""


class _Window:
    """View of an index for one side of a join, at one movable time; empty before it is opened.

    Whoever asks for many keys at one time, as in a hydration, gets them from a dict of all rows, which is
    loaded part by part and forgotten with the time: to find a key in columns takes ten times as long.
    """

    def __init__(self, index: TimedArrangement, columns: Sequence[str]) -> None:
        self._index = index
        self._key = _in_order(columns, index.key)
        self._time: int | None = None
        self._forget()

    def move(self, time: int) -> None:
        """Move the view to another time."""
        self._time = time
        if self._asked:
            self._forget()

    def _forget(self) -> None:
        self._asked = 0
        self._loading: Iterator[Sequence[Counted]] | None = None
        self._loaded: dict[Any, list[Counted]] = {}
        self._whole = False

    def in_columns(self, rows: int) -> Spine | None:
        """Return all rows in columns for a tick of `rows` rows; None if too costly, or if the keys differ."""
        return None if self._key is not None else self._index.in_columns(self._time, _OTHER_ROWS * rows)

    def there(self, key: Hashable) -> Collection[Counted]:
        if self._time is None:
            return _NOTHING
        own = key if self._key is None else self._key(key)
        if self._whole:
            return self._loaded.get(own, _NOTHING)
        self._asked += 1
        if self._asked % ASKED == 0:
            self._load(self._time)
        return self._index.rows_at(own, self._time)

    def _load(self, time: int) -> None:
        """Load the next part of the index, once enough lookups have made a full load worthwhile."""
        if self._loading is None:
            if self._index.weight > _WORTH * self._asked:
                return
            self._loading = self._index.scan(time)
        part = next(self._loading, None)
        if part is None:
            self._whole = True
            return
        of_row = self._index.keying.of_row
        for counted in part:
            self._loaded.setdefault(of_row(counted[0]), []).append(counted)


class SharedArrangements:
    """Join sides that a dataflow reads in place from indexes.

    shared: sources that some readers read in place.
    filled: sources whose rows need not be fed initially, because all their readers find them in the index.
    """

    def __init__(self, flow: Flow, inlets: Iterable[DataflowInlet]) -> None:
        self._sides: list[tuple[SourceJoinSide, TimedArrangement]] = []
        self.shared: frozenset[str] = frozenset()
        self.filled: frozenset[str] = frozenset()
        indexes = {inlet.source: inlet.index for inlet in inlets if isinstance(inlet, FromIndex)}
        if indexes:
            self._find(flow, indexes)
        self._now: list[tuple[SharedSide, _Window]] = []

    def engine(self, dataflow: Dataflow, flow: Flow) -> Engine:
        """Create an engine with the rows at the dataflow's as-of."""
        assert dataflow.as_of.time is not None
        return Engine(flow, columnar_rows=ticking.COLUMNS, shared=self._begin(dataflow.as_of.time))

    def _find(self, flow: Flow, indexes: dict[str, TimedArrangement]) -> None:
        program = compile_program(flow.graph())
        self._sides = [
            (side, indexes[side.source])
            for side in join_sides(program)
            if side.source in indexes and _arranged(indexes[side.source], side)
        ]
        shared = {(side.node, side.port): side.source for side, _ in self._sides}
        self.shared = frozenset(shared.values())
        filled: set[str] = set()
        for source in indexes:
            ports = join_readers(program, source)
            if ports is None or not ports <= shared.keys():
                continue
            # Of two sides, what is there at first must be fed of one, to be matched with the other.
            others = {shared.get((node, 1 - port)) for node, port in ports}
            if source not in others and not others & filled:
                filled.add(source)
        self.filled = frozenset(filled)

    def _begin(self, as_of: int) -> dict[str, SharedSide]:
        """Create slots for a new engine, by name."""
        self._now = []
        slots: dict[str, SharedSide] = {}
        for side, index in self._sides:
            window = _Window(index, side.columns)
            if side.source in self.filled:
                window.move(as_of)
            slots[side.slot] = shared = SharedSide(side, window.there, window.in_columns)
            self._now.append((shared, window))
        return slots

    def advance(self, upper: Frontier) -> None:
        """Advance all joins: exactly the times before `upper` have been fed."""
        if upper.time:
            for shared, window in self._now:
                window.move(upper.time - 1)
                shared.end_time()


def _arranged(index: TimedArrangement, side: SourceJoinSide) -> bool:
    """Return whether an index has the same key columns as a join side, in any order."""
    return sorted(index.key) == sorted(side.columns)


def _in_order(columns: Sequence[str], key: Sequence[str]) -> Callable[[Any], Any] | None:
    """Return a function from a join's key to the index's key, or None if both are the same."""
    if tuple(columns) == tuple(key):
        return None
    return itemgetter(*(columns.index(column) for column in key))


NOTHING_SHARED = SharedArrangements(Flow("nothing"), ())
