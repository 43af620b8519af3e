"""Scheduler of dataflows on one thread: those with work take turns of one slice.

A dataflow has work when it is started, when a collection that it reads or writes has advanced, and when an
index that it reads has advanced. Idle dataflows cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from headrace.compute.protocol.dataflow import Id
from headrace.compute.replica.in_process.arrangement import Arrangement
from headrace.compute.replica.in_process.dataflows import RunningDataflow


class DataflowScheduler:
    """Dataflows of a replica, with their dependencies. timer: seconds.

    moved: whether any dataflow has advanced since this was set to False.

    Dataflows that wait for the same input get their turns in order of creation, so equal commands give equal
    schedules; a set would order them by address.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self.moved = True
        self._timer = timer
        self._turns: deque[RunningDataflow] = deque()
        self._has_turn: set[RunningDataflow] = set()
        self._later: list[RunningDataflow] = []
        self._readers: dict[Id, dict[RunningDataflow, None]] = {}
        self._index_readers: dict[Arrangement, dict[RunningDataflow, None]] = {}
        self._dying: list[RunningDataflow] = []
        self._untidy: dict[Arrangement, None] = {}
        self._graves: list[Arrangement] = []

    def add(self, running: RunningDataflow) -> None:
        """Add a dataflow without scheduling it yet."""
        for id in running.used_collections:
            self._readers.setdefault(id, {})[running] = None
        for index in running.indexes_read:
            self._index_readers.setdefault(index, {})[running] = None

    def schedule_turn(self, running: RunningDataflow) -> None:
        """Schedule a turn for a dataflow that may have work."""
        if running.alive and running not in self._has_turn:
            self._has_turn.add(running)
            self._turns.append(running)

    def schedule_readers(self, collections: Iterable[Id]) -> None:
        """Schedule the readers of collections whose uppers have risen."""
        for id in collections:
            self.moved = True  # it may be a written one, whose frontier is reported
            for running in self._readers.get(id, ()):
                self.schedule_turn(running)

    @property
    def collections(self) -> set[Id]:
        """Collections that dataflows read or write."""
        return set(self._readers)

    def slice(self) -> bool:
        """Let the next dataflow work for a few milliseconds. Returns whether there was one."""
        if self._later:
            self._try_again()
        if not self._turns:
            return False
        running = self._turns.popleft()
        self._has_turn.discard(running)
        if not running.alive:
            return True
        upper, now = running.upper, self._timer()
        if running.slice():
            self.moved = True
            self.schedule_turn(running)
        elif running.retry_at > now:
            self._later.append(running)
        if running.upper != upper:
            self._has_come_farther(running)
        return True

    def queue_compaction(self, index: Arrangement) -> None:
        """Queue an index for compaction."""
        self._untidy[index] = None

    def compact_slice(self) -> bool:
        """Compact some of the queued indexes. Returns whether there may be more."""
        if self._dying:
            dying, self._dying = self._dying, []
            for running in dying:
                self.end_if_unused(running)
        if self._graves:
            if not self._graves[-1].free_memory():
                self._graves.pop()
            return True
        if self._untidy:
            index = next(iter(self._untidy))
            del self._untidy[index]
            if index.compact():
                self._untidy[index] = None
                return True
            return bool(self._untidy)
        return False

    def end_if_unused(self, running: RunningDataflow) -> None:
        """End a dataflow with no exports or readers left, and likewise its inputs."""
        if not running.alive:
            return
        if any(index.held for index in running.maintained_indexes):
            self._dying.append(running)
            return
        running.close()
        for id in running.used_collections:
            self._readers[id].pop(running, None)
            if not self._readers[id]:
                del self._readers[id]
        for index in running.indexes_read:
            readers = self._index_readers.get(index)
            if readers is not None:  # else it was gone before: this one was done with it
                readers.pop(running, None)
                self.queue_compaction(index)
        for index in running.maintained_indexes:
            self._index_readers.pop(index, None)
            self._untidy.pop(index, None)
            self._graves.append(index)

    def _has_come_farther(self, running: RunningDataflow) -> None:
        for index in running.maintained_indexes:
            for reader in self._index_readers.get(index, ()):
                self.schedule_turn(reader)
            self.queue_compaction(index)
        for index in running.indexes_read:
            self.queue_compaction(index)

    def _try_again(self) -> None:
        now = self._timer()
        due = [running for running in self._later if running.retry_at <= now]
        if due:
            self._later = [running for running in self._later if running.retry_at > now]
            for running in due:
                self.schedule_turn(running)
