"""What a dataflow reads: a durable collection, or an index of the same replica. To it both look alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence

from penstock.compute.frontier import END, Frontier
from penstock.compute.protocol.responses import Counted
from penstock.compute.replica.arrangement import Arrangement, Version
from penstock.compute.replica.exports import Failed
from penstock.compute.replica.feeds import CHUNK, Cursor, Feed
from penstock.expr.types import Schema


class Inlet(ABC):
    """A source of a flow, with what it reads.

    First `snapshot` is read, once it is `ready`; then versions, whole times in order: `next_time` is that of
    the next one, if it is known, and all times before `known` are.
    """

    source: str

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Of its rows. Raises what the store raises."""

    @abstractmethod
    def ready(self, at: int) -> bool:
        """Whether the snapshot at a time can be read."""

    @abstractmethod
    def snapshot(self, at: int) -> Iterator[Sequence[Counted]]:
        """The rows at a time, in parts. Changes after that time follow."""

    @property
    @abstractmethod
    def known(self) -> Frontier:
        """Versions of times before it are all given or waiting to be taken."""

    @property
    @abstractmethod
    def upper(self) -> Frontier:
        """How far it can be read at present."""

    @property
    @abstractmethod
    def next_time(self) -> int | None:
        """The time of the next version that is known."""

    @abstractmethod
    def take(self) -> Version:
        """The next version."""

    @abstractmethod
    def read(self) -> None:
        """Get to know more, where `known` is before `upper`: the price of a slice."""

    @abstractmethod
    def settled(self, upper: Frontier) -> None:
        """Times before `upper` have been computed and are not read again."""

    def gone(self, at: int) -> bool:
        """Whether what is to be read next is not there any more. at: where the snapshot is taken."""
        return False

    @property
    def failed(self) -> Failed | None:
        """Where what it reads has failed."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Nothing is read any more."""


class FromCollection(Inlet):
    """A durable collection. upper: how far it was when the store was last looked at."""

    def __init__(self, source: str, feed: Feed) -> None:
        self.source = source
        self.feed = feed
        self._cursor: Cursor | None = None
        self._versions: deque[Version] = deque()

    @property
    def schema(self) -> Schema:
        return self.feed.schema

    def ready(self, at: int) -> bool:
        return self.upper.passed(at)

    def snapshot(self, at: int) -> Iterator[Sequence[Counted]]:
        self._cursor = self.feed.cursor(Frontier(at + 1))
        self._versions.clear()
        return self.feed.store.snapshot(self.feed.id, at, CHUNK)

    def gone(self, at: int) -> bool:
        return self.feed.since.passed(at) if self._cursor is None else self._cursor.gone

    @property
    def known(self) -> Frontier:
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

    def settled(self, upper: Frontier) -> None:
        pass

    @property
    def failed(self) -> Failed | None:
        return self.feed.failed

    def close(self) -> None:
        self._versions.clear()


class FromIndex(Inlet):
    """An index, read in place. It stays readable from the last time that was computed on."""

    def __init__(self, source: str, index: Arrangement, at: int) -> None:
        self.source = source
        self.index = index
        self._hold = index.hold(at)
        self._known = Frontier(at)
        self._versions: deque[Version] = deque()

    @property
    def schema(self) -> Schema:
        return self.index.schema

    def ready(self, at: int) -> bool:
        return self.index.upper.passed(at)

    def snapshot(self, at: int) -> Iterator[Sequence[Counted]]:
        self._known = Frontier(at + 1)
        self._versions.clear()
        return self.index.scan(at)

    @property
    def known(self) -> Frontier:
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
        self._versions.extend(self.index.versions(self._known.time - 1))
        self._known = self.index.upper

    def settled(self, upper: Frontier) -> None:
        if upper.time is not None:
            self._hold.move(upper.time - 1)

    @property
    def failed(self) -> Failed | None:
        return self.index.failed

    def close(self) -> None:
        self._versions.clear()
        self._hold.release()
