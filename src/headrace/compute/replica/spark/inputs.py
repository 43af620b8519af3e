"""Inputs of a dataflow on Spark, as snapshots and as changes of whole times: collections and `Versions`.

`Versions` of a sink are its contents at all times that may still be read, as files of changes: the rows at a
time are the sum of the changes up to it. Every tick adds a file, so files are merged now and then; changes
at times that no reader distinguishes are moved to the last of these times. Readers must hold a time. One
thread at a time adds and merges; any number of threads may read meanwhile.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from headrace.compute.collections.store import Collections
from headrace.compute.errors import SinceViolation
from headrace.compute.frontier import START, Frontier, meet
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import Counted, Update
from headrace.compute.replica.exports import FailedExport
from headrace.compute.replica.feeds import check_not_back, weighted_rows
from headrace.expr.types import Schema
from headrace.spark.external_ticks import Session, TimedRows
from headrace.spark.ticks.output import in_parts
from headrace.state.codec import decode
from headrace.tables.change_files import LAST_HASH, ChangeFile, MergeTask, RowKeyEncoder, hash_of, sum_changes

_FILES = 8
"""Number of files above which the youngest are merged."""
MERGED_HERE = 50_000
"""Number of changes up to which files are merged in this process rather than in a task."""
_GROWTH = 4
"""A file joins a merge unless it has more than this multiple of the younger files' changes."""


class VersionHold:
    """Read hold that keeps versions readable from `time` on, until moved forward or released."""

    def __init__(self, versions: Versions, time: int) -> None:
        self._versions = versions
        self.time = time

    def move(self, time: int) -> None:
        self.time = max(self.time, time)

    def release(self) -> None:
        self._versions.release_hold(self)


class Versions:
    """Changes in files of a folder, keyed by the columns at `key`, or by the whole row if it is empty.

    upper:  frontier before which times are settled; just after the failure if it `failed`.
    failed: failure that replaces the contents from some time on.
    merged_to: frontier before which times can no longer be distinguished.
    restored:  whether the files are those of an earlier process or attempt.
    """

    def __init__(self, folder: Path, key: Sequence[int], as_of: int, *, durable: bool = True) -> None:
        self.folder = folder
        self.key = tuple(key)
        self.upper = Frontier(as_of)
        self.failed: FailedExport | None = None
        self.merged_to = as_of
        self.restored = False
        self._durable = durable
        self._pinned: Counter[str] = Counter()
        self._unwanted: dict[str, Path] = {}
        self._files: tuple[ChangeFile, ...] = ()
        self._merged: list[ChangeFile] = []
        self._holds: set[VersionHold] = set()
        self._lock = threading.Lock()

    @property
    def file_names(self) -> list[str]:
        """Names of the current files, for a commit."""
        return [file.name for file in self._files]

    @property
    def change_count(self) -> int:
        """Number of stored changes."""
        return sum(file.count for file in self._files)

    def restore(self, names: Iterable[str], merged_to: int) -> None:
        """Restore the set of current files; all others are removed. Raises `CheckpointDamaged`."""
        kept = set(names)
        files = tuple(ChangeFile(self.folder, name) for name in sorted(kept))
        for file in files:
            file.check()
            file.open()
        self._files = files
        self._merged.clear()
        self.merged_to = merged_to
        self.restored = True
        with self._lock:
            others = (path for path in self.folder.iterdir() if path.name not in kept)
            self._unwanted |= {path.name: path for path in others}
        self._remove_unwanted()

    def add(self, names: Iterable[str]) -> None:
        """Add the files written by a committed tick."""
        new = [ChangeFile(self.folder, name) for name in names]
        for file in new:
            # Readers that took it go on with it, also where it is merged and removed meanwhile.
            file.open()
        self._files = (*self._files, *new)
        # Since this commit names the merged ones, nothing needs what they were made of.
        with self._lock:
            self._unwanted |= {file.name: file.path for file in self._merged}
        self._merged.clear()
        self._remove_unwanted()

    def merge(self, spark: Session, tick: int) -> None:
        """Merge some files if there are many. The originals stay until `add` confirms the commit."""
        files = self._files
        if len(files) <= _FILES:
            return
        begin = len(files) - 1
        size = files[begin].count
        while begin and (files[begin - 1].count < size * _GROWTH or len(files) - begin < _FILES // 2):
            begin -= 1
            size += files[begin].count
        least = self.earliest_hold.time
        if least is None:
            self._files, self._merged = (), [*self._merged, *files]
            return
        self.merged_to = max(self.merged_to, least)
        merging = MergeTask(self.folder, tuple(f.name for f in files[begin:]), least, tick, self._durable)
        # In a task it does not hold up the threads of this process.
        names = merging(0) if size <= MERGED_HERE else in_parts(spark(), 1, merging, f"merging {self.folder}")
        made = [ChangeFile(self.folder, name.decode()) for name in names]
        for file in made:
            file.open()
        self._files = (*files[:begin], *made)
        self._merged += files[begin:]

    def fail(self, failed: FailedExport) -> None:
        """Replace the contents from the failure's time on with its error."""
        self.failed = failed
        self.upper = Frontier(failed.time + 1)

    def rows_at(self, values: tuple[Any, ...], time: int) -> list[Counted]:
        """Return a key's rows at a settled, held time. Counts may be negative."""
        filing = RowKeyEncoder(self.key)
        wanted = filing.of_values(values)
        hashed = hash_of(wanted)
        found = sum_changes(self._files, hashed, hashed, time)
        return [(row, count) for row, count in found if filing.of_row(row) == wanted]

    def scan(self, time: int, low: int = 0, high: int = LAST_HASH) -> list[Counted]:
        """Return the rows at a settled, held time with hashes from `low` to `high`."""
        return sum_changes(self._files, low, high, time)

    @contextmanager
    def keep_files(self) -> Generator[list[str]]:
        """Yield the paths of the current files for other processes, keeping the files in place meanwhile."""
        with self._lock:
            files = self._files
            self._pinned.update(file.name for file in files)
        try:
            yield [str(file.path) for file in files]
        finally:
            with self._lock:
                self._pinned.subtract(file.name for file in files)
            self._remove_unwanted()

    def _remove_unwanted(self) -> None:
        with self._lock:
            free = [name for name in self._unwanted if self._pinned[name] <= 0]
            paths = [self._unwanted.pop(name) for name in free]
        for path in paths:
            path.unlink(missing_ok=True)

    def changes(self, lower: int, upper: Frontier) -> list[Update]:
        """Yield the changes with times from `lower` to before `upper`, ordered by time.

        `lower` must be later than a held time.
        """
        found: list[Update] = []
        for file in self._files:
            if file.last < lower or (upper.time is not None and file.first >= upper.time):
                continue
            found += [
                (decode(row), time, weight)
                for _, row, time, weight in file.entries()
                if time >= lower and upper.has_passed(time)
            ]
        found.sort(key=lambda update: update[1])
        return found

    @property
    def earliest_hold(self) -> Frontier:
        """Earliest held time; END without holds."""
        with self._lock:
            return meet(Frontier(hold.time) for hold in self._holds)

    def hold(self, time: int) -> VersionHold:
        """Keep the versions readable from `time` on, which must be held already, or be the beginning."""
        hold = VersionHold(self, time)
        with self._lock:
            self._holds.add(hold)
        return hold

    def release_hold(self, hold: VersionHold) -> None:
        with self._lock:
            self._holds.discard(hold)


_CHUNK = 10_000
MAX_CHANGES = 200_000
"""Limit on an input's changes per tick, exceeded only by the changes of a single time."""


class ReadSummary(NamedTuple):
    """Summary of the last read from an input.

    It covers the changes from `lower` to before `upper`, or the rows just before `upper` if `lower` is None:
    how many (`rows`), and their total `weight`.
    """

    lower: int | None
    upper: int
    rows: int
    weight: int


class Resumability(Enum):
    """Whether reading an input can be resumed at a time."""

    YES = 1
    NOT_YET = 2
    """Not before the input has caught up with its earlier position."""
    NO = 3
    """The input was replaced, or the needed changes have been compacted."""


class SparkImport(ABC):
    """Source of a flow with its input. Used by one thread at a time."""

    def __init__(self, source: str, schema: Schema) -> None:
        self.source = source
        self.schema = schema

    @abstractmethod
    def upper(self, store: Collections) -> Frontier:
        """Return the input's upper."""

    @abstractmethod
    def snapshot(self, store: Collections, at: int) -> Iterator[Sequence[Counted]]:
        """Read the rows at a settled time, in parts."""

    @abstractmethod
    def changes(self, store: Collections, lower: int, upper: Frontier) -> Iterator[Sequence[Update]]:
        """Read the changes with times from `lower` to before `upper`, ordered by time, in parts."""

    @abstractmethod
    def can_resume(self, store: Collections, upper: Frontier, seen: ReadSummary | None) -> Resumability:
        """Return whether a later process can resume reading at `upper`. seen: the last read before that."""

    @property
    def failed(self) -> FailedExport | None:
        """Failure of the input, if any."""
        return None

    def release_before(self, upper: Frontier) -> None:
        """Release times before `upper`, which have been computed."""
        return

    def close(self) -> None:
        """Release the input."""
        return


class SparkCollectionInput(SparkImport):
    def __init__(self, source: str, schema: Schema, id: Id) -> None:
        super().__init__(source, schema)
        self.id = id
        self._looked = START

    def upper(self, store: Collections) -> Frontier:
        (bounds,) = store.bounds([self.id])
        check_not_back(self.id, self._looked, bounds.upper)
        self._looked = bounds.upper
        return bounds.upper

    def snapshot(self, store: Collections, at: int) -> Iterator[Sequence[Counted]]:
        return store.snapshot(self.id, at, _CHUNK)

    def changes(self, store: Collections, lower: int, upper: Frontier) -> Iterator[Sequence[Update]]:
        return store.changes(self.id, Frontier(lower), upper, _CHUNK)

    def can_resume(self, store: Collections, upper: Frontier, seen: ReadSummary | None) -> Resumability:
        (bounds,) = store.bounds([self.id])
        if bounds.upper < upper or bounds.since >= upper:
            return Resumability.NO
        # A collection of the same id in a store that was made anew is another one.
        return Resumability.YES if seen is None or self._is_same(store, seen) else Resumability.NO

    def _is_same(self, store: Collections, seen: ReadSummary) -> bool:
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


class FromVersions(SparkImport):
    """Input from an index in files.

    The index stays readable from the last computed time on; `at` is the first.
    """

    def __init__(self, source: str, schema: Schema, versions: Versions, at: int) -> None:
        super().__init__(source, schema)
        self.versions = versions
        self._hold = versions.hold(at)

    def upper(self, store: Collections) -> Frontier:
        return self.versions.upper

    def snapshot(self, store: Collections, at: int) -> Iterator[Sequence[Counted]]:
        yield self.versions.scan(at)

    def changes(self, store: Collections, lower: int, upper: Frontier) -> Iterator[Sequence[Update]]:
        yield self.versions.changes(lower, upper)

    def can_resume(self, store: Collections, upper: Frontier, seen: ReadSummary | None) -> Resumability:
        if not self.versions.restored or self.versions.merged_to >= (upper.time or 0):
            return Resumability.NO
        # It may have advanced without a tick, which is not recorded.
        return Resumability.NOT_YET if self.versions.upper < upper else Resumability.YES

    @property
    def failed(self) -> FailedExport | None:
        return self.versions.failed

    def release_before(self, upper: Frontier) -> None:
        if upper.time:
            self._hold.move(upper.time - 1)

    def close(self) -> None:
        self._hold.release()


@dataclass(frozen=True, slots=True)
class TimedChanges:
    """Changes of one source at one time."""

    source: str
    time: int
    changes: Sequence[Counted]


class Inputs:
    """Inputs of a dataflow. Used by one thread at a time.

    seen: by source, the last non-empty read, by which the source is recognized after a restart.
    """

    def __init__(self, imports: Sequence[SparkImport]) -> None:
        self.imports = tuple(imports)
        self.seen: dict[str, ReadSummary] = {}

    def ready(self, store: Collections, at: int) -> bool:
        """Return whether all snapshots at a time can be read."""
        return all(one.upper(store).has_passed(at) for one in self.imports)

    def earliest_upper(self, store: Collections) -> Frontier:
        """Return the earliest upper of all inputs."""
        return meet(one.upper(store) for one in self.imports)

    @property
    def failed(self) -> FailedExport | None:
        """Earliest failure among the inputs, if any."""
        failures = [one.failed for one in self.imports if one.failed is not None]
        return min(failures, key=lambda failure: failure.time, default=None)

    def release_before(self, upper: Frontier) -> None:
        """Release times before `upper`, which have been computed."""
        for one in self.imports:
            one.release_before(upper)

    def close(self) -> None:
        for one in self.imports:
            one.close()

    def snapshot(self, store: Collections, at: int, append: Mapping[str, bool]) -> Iterator[TimedRows]:
        """Read all rows at a time. `seen` is valid once all have been taken. append: see `DrivenFlow`."""
        for one in self.imports:
            count = weight = 0
            for part in one.snapshot(store, at):
                count, weight = count + len(part), weight + sum(times for _, times in part)
                yield one.source, 0, weighted_rows(part, append[one.source], one.source)
            self.seen[one.source] = ReadSummary(None, at + 1, count, weight)

    def read_new_changes(
        self, store: Collections, lower: int, bound: Frontier, most_times: int
    ) -> tuple[Frontier, list[TimedChanges]]:
        """Read new changes from `lower` on, in whole times; return them with their upper."""
        found: list[TimedChanges] = []
        for one in self.imports:
            versions, bound = _read(one, one.changes(store, lower, bound), bound)
            found += versions
        times = sorted({version.time for version in found})
        if len(times) > most_times:
            bound = min(bound, Frontier(times[most_times]))
        return bound, [version for version in found if bound.has_passed(version.time)]

    def rows_of_tick(
        self, news: Iterable[TimedChanges], times: Sequence[int], append: Mapping[str, bool]
    ) -> Iterator[TimedRows]:
        """Yield the rows given to a tick that covers these times."""
        numbers = {time: number for number, time in enumerate(times)}
        for version in news:
            yield (
                version.source,
                numbers[version.time],
                weighted_rows(version.changes, append[version.source], version.source),
            )

    def record_consumed(self, news: Iterable[TimedChanges]) -> None:
        """Record the versions consumed by a tick."""
        by_source: dict[str, list[TimedChanges]] = {}
        for version in news:
            by_source.setdefault(version.source, []).append(version)
        for source, versions in by_source.items():
            self.seen[source] = ReadSummary(
                versions[0].time,
                versions[-1].time + 1,
                sum(len(version.changes) for version in versions),
                sum(weight for version in versions for _, weight in version.changes),
            )


def group_by_time(source: str, updates: Iterable[Update]) -> list[TimedChanges]:
    """Group updates, ordered by time, into versions."""
    found: list[TimedChanges] = []
    changes: list[Counted] = []
    for row, time, weight in updates:
        if not found or found[-1].time != time:
            changes = []
            found.append(TimedChanges(source, time, changes))
        changes.append((row, weight))
    return found


def _read(
    one: SparkImport, parts: Iterable[Sequence[Update]], bound: Frontier
) -> tuple[list[TimedChanges], Frontier]:
    updates: list[Update] = []
    for part in parts:
        updates += part
        if len(updates) > MAX_CHANGES and updates[0][1] < updates[-1][1]:
            bound = Frontier(updates[-1][1])
            break
    return group_by_time(one.source, [update for update in updates if bound.has_passed(update[1])]), bound
