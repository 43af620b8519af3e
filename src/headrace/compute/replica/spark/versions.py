"""Versions of a sink: its contents at all times that may still be read, as files of changes.

The rows at a time are the sum of the changes up to it. Every tick adds a file, so files are merged now and
then; changes at times that no reader distinguishes are moved to the last of these times. Readers must hold a
time. One thread at a time adds and merges; any number of threads may read meanwhile.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.compute.frontier import Frontier, meet
from headrace.compute.protocol.responses import Counted, Update
from headrace.compute.replica.exports import FailedExport
from headrace.spark.external_ticks import Session
from headrace.spark.ticks.output import in_parts
from headrace.state.codec import decode
from headrace.tables.change_files import LAST_HASH, ChangeFile, Filing, MergeTask, hash_of, sum_changes

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
    """Changes in files of a folder, filed by the columns at `key`, or by the whole row if it is empty.

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

    # -- written by one thread --------------------------------------------------------------

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

    # -- read by many ---------------------------------------------------------------------------

    def rows_at(self, values: tuple[Any, ...], time: int) -> list[Counted]:
        """Return a key's rows at a settled, held time. Counts may be negative."""
        filing = Filing(self.key)
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

    # -- compaction -----------------------------------------------------------------------------

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
