"""Compaction of a changelog: many small folders of old ticks become a few larger ones.

The folders of consecutive ticks are replaced by one, which holds the rows that they add up to: equal rows
once, with the sum of their weights, and none of weight 0. So the sum over all ticks stays what it was, and
the history within the merged ticks is given up. A merged folder has the number of one of its ticks, the
last where possible: sums up to a tick outside of the merged ones stay right, too. (Keeping the ticks apart
in a column of one file would not do: readers take the column `tick` from the names of folders.)

    <path>/tick=1900/merged-1-1900.parquet       the rows of ticks 1 to 1900
    <path>/tick=1901/part-*.parquet              a tick that is not merged

**Which folders.** The last ticks stay as they are. The others are merged with the merged folder before them
if that is not larger than they are, and so on; so sizes grow from the newest to the oldest folder, and a
row is rewritten a logarithmic number of times. A folder of `MAX_BYTES` is not small, and is left alone.

**Readers.** The new folder of the changelog is built beside the old one, from the merged files and from
second names (hard links) of all others, and exchanged with it in one step of the file system. So whoever
lists the folder finds the state before or after. The old one stays until nobody can be listing it any more.

A reader does not list everything in one step: it lists the changelog, then each tick folder in it, and then
opens what it has found. DuckDB and pyarrow silently leave out what has disappeared before they look at it,
but no reader ignores that a listed file cannot be opened. These rules make a silently wrong sum impossible
for readers that list everything before they open files, and look at each folder once:

- A merged file has a new name. A reader that has listed a file of a merged tick before the exchange, and
  opens it afterwards, gets an error ("no such file") and can read again.
- The merged file lies in a tick folder that existed before. A reader that listed the changelog before the
  exchange, and none of the merged folders, finds it there.
- That folder is never the first of the merged ones in the order of names, numbers or directory entries, in
  which readers visit them. So a reader that sees the old listing of that folder has seen an old file of
  another one.
- Folders younger than `SETTLED_SECONDS` are not merged, so whoever lists the changelog knows that folder.

Spark is such a reader if it is given the folder. Given a pattern of files, it looks for the files again after
listing them, and silently leaves out what has disappeared. The documentation warns of that.

**Writers.** Each run holds a shared lock on the folder of its changelog, and a compaction an exclusive one.
So no other process publishes a tick during a compaction.
"""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput
from headrace.file_system import (
    FolderLock,
    remove_folder,
    sync_file,
    sync_folder,
    take_over_folder,
)
from headrace.io.source import WEIGHT
from headrace.tables.version_folders import tick_folders

if TYPE_CHECKING:
    import pyarrow as pa

KEEP = 100
"""Default number of the latest ticks that `compact` leaves as they are."""

SETTLED_SECONDS = 60.0
"""Age from which a tick may be merged: no reader takes longer to list a changelog."""

LISTING_SECONDS = 2.0
"""Time for which the replaced folder is kept, for readers that are in the middle of listing its entries."""

MAX_BYTES = 64 << 20
"""Limit on the size of the files merged into one."""

MIN_FOLDERS = 4
"""Fewer folders are not merged. Three of them may be the first that a reader visits."""

MIN_BATCH = 16
"""Number of ticks that a run merges at once, at least."""

MEMORY_BYTES = 64 << 20
"""Size of the rows that are added up in memory. Beyond it, equal rows may stay apart."""

DISCARDED_PER_TICK = 4
"""Number of replaced folders that a tick of a run removes."""

_BATCH_ROWS = 8192
_MERGED = re.compile(r"merged-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a compaction: `merged` folders were merged into `into`; the ticks `unmerged` were not."""

    merged: int
    into: int
    unmerged: tuple[int, ...]


def compact(folder: str | os.PathLike[str], keep: int = KEEP, *, everything: bool = False) -> Compacted:
    """Compact the changelog in `folder`, which no run may be writing.

    keep: number of the latest ticks that stay as they are. A checkpoint cannot be rewound to a tick that is
          older, so give at least the run's `keep_ticks`.
    everything: see `erase`.

    Raises `BadInput` if the folder holds no changelog, is in use, or cannot be exchanged atomically.
    """
    path = Path(os.path.realpath(folder))
    if keep < 1 and not everything:
        raise BadInput(f"keep is {keep}", fix="keep at least the last tick")
    ticks = tick_folders(path)
    last = ticks.latest()
    if last is None:
        raise BadInput(
            f"{folder} is not a changelog",
            why=f"It has no folders {ticks.name(1)}, {ticks.name(2)} ...",
            fix="give the folder of a Changelog(...) sink that has written a tick",
            path=str(folder),
        )
    if any(ticks.folder(last).glob("*.csv")):
        raise BadInput(
            f"{folder} is a changelog of CSV files, which are not compacted",
            fix="write the sink as changelog:PATH, in Parquet files",
            path=str(folder),
        )
    lock = FolderLock.take(path, exclusive=True)
    if lock is None:
        raise BadInput(
            f"the changelog {folder} is in use",
            why="A run that writes it, or another compaction, is at work.",
            fix="wait until it ends; or let the run compact it: Changelog(path, compact_after=100)",
            path=str(folder),
        )
    with lock:
        check_can_compact(lock)
        try:
            done = _compact(lock, keep, durable=True, everything=everything)
            if done.merged and not everything:
                time.sleep(LISTING_SECONDS)
        finally:
            remove_folder(aside(path))
    return done


def erase(folder: str | os.PathLike[str]) -> Compacted:
    """Merge all ticks of the changelog in `folder`, so that no file contains retracted rows.

    Neither a run nor a reader may be at work: unlike `compact`, this moves rows to folders that a reader may
    have visited. The whole sum is held in memory. Raises like `compact`.
    """
    return compact(folder, 0, everything=True)


class Compactor:
    """Compaction of a changelog by the run that writes it, every few ticks.

    keep: number of the latest ticks that stay as they are.
    """

    def __init__(self, lock: FolderLock, keep: int, *, durable: bool) -> None:
        self._lock = lock
        self._keep = keep
        self._durable = durable
        self._batch = max(keep, MIN_BATCH)
        self._unmerged = deque(f.tick for f in _tick_folders(lock.path) if not f.is_merged)
        self._compacted_at = float("-inf")
        self._replaced: Iterator[Path] = iter(())

    def published(self, tick: int) -> None:
        """Record that `tick` was published with changes."""
        if not self._unmerged or self._unmerged[-1] < tick:
            self._unmerged.append(tick)

    def compact_if_due(self, tick: int) -> None:
        """Compact the changelog if enough ticks before the published `tick` can be merged."""
        self._discard_some()
        due = len(self._unmerged) >= self._batch and self._unmerged[self._batch - 1] <= tick - self._keep
        # Not before the folders that the last compaction has built are settled.
        if not due or time.monotonic() < self._compacted_at + SETTLED_SECONDS:
            return
        with self._lock.upgraded() as exclusive:
            if exclusive:
                try:
                    self._compact()
                except (OSError, BadInput) as error:
                    # The tick is published. What could not be merged now may be later.
                    warnings.warn(f"{self._lock.path} was not compacted: {error}", stacklevel=2)
        self._compacted_at = time.monotonic()

    def _compact(self) -> None:
        remove_folder(aside(self._lock.path))
        self._unmerged = deque(_compact(self._lock, self._keep, durable=self._durable).unmerged)
        replaced = aside(self._lock.path)
        self._replaced = iter(list(replaced.iterdir()) if replaced.is_dir() else ())

    def _discard_some(self) -> None:
        # Removing a folder may take milliseconds, and a tick replaces two: its own and a second name of it.
        if time.monotonic() >= self._compacted_at + LISTING_SECONDS:
            for folder in islice(self._replaced, DISCARDED_PER_TICK):
                remove_folder(folder)

    def close(self) -> None:
        """Remove the folder replaced by the last compaction."""
        replaced = aside(self._lock.path)
        if replaced.is_dir():
            time.sleep(max(0.0, self._compacted_at + LISTING_SECONDS - time.monotonic()))
            remove_folder(replaced)


def aside(path: Path) -> Path:
    """Return the folder where a new state of `path` is built, and where the replaced one is kept."""
    real = Path(os.path.realpath(path))
    return real.with_name(f".{real.name}.compacting")


def check_can_compact(lock: FolderLock) -> None:
    """Raise `BadInput` if the system cannot replace the folder of a changelog atomically.

    Removes what an earlier compaction has left beside it.
    """
    beside = aside(lock.path)
    remove_folder(beside)
    try:
        beside.mkdir()
        lock.check_replaceable(beside)
    except OSError as error:
        raise BadInput(
            f"the changelog {lock.path} cannot be compacted",
            why=f"Its folder cannot be exchanged atomically with one beside it: {error.strerror or error}.",
            fix="write it to a local file system of Linux (ext4, XFS, Btrfs), below a folder that you may "
            "write to; or leave out compact_after",
            path=str(lock.path),
        ) from error
    finally:
        remove_folder(beside)


# --- which folders are merged --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TickDirectory:
    """Published folder of one tick, or of the merged ticks `first` to `last`.

    since: time of its publication, or of the last compaction.
    """

    tick: int
    first: int
    last: int
    files: tuple[Path, ...]
    bytes: int
    since: float

    @property
    def is_merged(self) -> bool:
        return bool(self.files) and _MERGED.fullmatch(self.files[0].name) is not None


def _tick_folders(path: Path) -> list[TickDirectory]:
    """List the published folders at `path`, in order."""
    ticks = tick_folders(path)
    return [_tick_folder(ticks.folder(tick), tick) for tick in ticks.numbers()]


def _tick_folder(folder: Path, tick: int) -> TickDirectory:
    files = [entry for entry in os.scandir(folder) if entry.name.endswith(".parquet")]
    found = _MERGED.fullmatch(files[0].name) if files else None
    first, last = (int(found[1]), int(found[2])) if found else (tick, tick)
    size = sum(entry.stat().st_size for entry in files)
    # A rename sets it.
    since = folder.stat().st_ctime
    return TickDirectory(tick, first, last, tuple(sorted(map(Path, files))), size, since)


def due_groups(folders: Sequence[TickDirectory], keep: int, now: float) -> list[list[TickDirectory]]:
    """Choose runs of consecutive folders to merge, each into one.

    A row that is rewritten gets into a folder of at least twice the size, unless rows cancel out.
    """
    newest = folders[-1].last
    old = takewhile(lambda f: f.last <= newest - keep and f.since <= now - SETTLED_SECONDS, folders)
    groups: list[_Group] = []
    for folder in old:
        joins = groups and not folder.is_merged and not groups[-1].folders[-1].is_merged
        if joins and groups[-1].bytes + folder.bytes <= MAX_BYTES:
            groups[-1].folders.append(folder)
            groups[-1].bytes += folder.bytes
        else:
            groups.append(_Group([folder], folder.bytes))
    due: list[_Group] = []
    for group in groups:
        while due and due[-1].bytes <= min(group.bytes, MAX_BYTES - group.bytes):
            before = due.pop()
            group = _Group([*before.folders, *group.folders], before.bytes + group.bytes)
        due.append(group)
    return [group.folders for group in due if len(group.folders) >= MIN_FOLDERS]


@dataclass(slots=True)
class _Group:
    """Consecutive folders, and the size of their files."""

    folders: list[TickDirectory]
    bytes: int


def tick_to_merge_into(group: Sequence[TickDirectory], listed: Sequence[str]) -> int:
    """Choose the tick whose folder receives the merged rows: the latest that no reader visits first.

    listed: names of the folders, in the order of directory entries.
    """
    ticks = {tick_folders("").name(folder.tick): folder.tick for folder in group}
    firsts = {group[0].tick, ticks[min(ticks)], next(ticks[name] for name in listed if name in ticks)}
    return max(tick for tick in ticks.values() if tick not in firsts)


# --- merging -------------------------------------------------------------------------


def _compact(lock: FolderLock, keep: int, *, durable: bool, everything: bool = False) -> Compacted:
    """Merge the groups due in an exclusively locked changelog. The replaced folder is moved to `aside`."""
    path, new = lock.path, aside(lock.path)
    folders = _tick_folders(path)
    groups = [folders] if everything else due_groups(folders, keep, time.time())
    gone = {folder.tick for group in groups for folder in group}
    if groups:
        new.mkdir(mode=0o700)
        listed = os.listdir(path)
        for group in groups:
            tick = group[-1].tick if everything else tick_to_merge_into(group, listed)
            target = tick_folders(new).folder(tick)
            target.mkdir()
            file = target / f"merged-{group[0].first}-{group[-1].last}.parquet"
            _merge(group, file, durable=durable, memory=sys.maxsize if everything else MEMORY_BYTES)
        take_over_folder(path, new, without=frozenset(map(tick_folders(path).name, gone)))
        if durable:
            # The folders in it, too: file systems that exchange folders write a journal of all their changes.
            sync_folder(new)
        lock.replace(new)
        if durable:
            sync_folder(path.parent)
    unmerged = tuple(f.tick for f in folders if f.tick not in gone and not f.is_merged)
    return Compacted(len(gone), len(groups), unmerged)


def _merge(
    group: Sequence[TickDirectory], target: Path, *, durable: bool, memory: int = MEMORY_BYTES
) -> None:
    """Write the consolidated rows of the group's files to a new file, with bounded memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [file for folder in group for file in folder.files]
    if not files:
        return
    schema = pq.read_schema(files[0]).remove_metadata()
    held: list[pa.RecordBatch] = []
    size = 0
    with pq.ParquetWriter(target, schema, compression="snappy") as out:
        for file in files:
            for batch in _batches(file, schema, files[0]):
                held.append(batch)
                size += batch.nbytes
                if size > memory:
                    table = _added_up(pa.Table.from_batches(held, schema))
                    held, size = table.to_batches(), table.nbytes
                    if size > memory // 2:
                        out.write_table(table)
                        held, size = [], 0
        out.write_table(_added_up(pa.Table.from_batches(held, schema)))
    if durable:
        sync_file(target)


def _batches(file: Path, schema: pa.Schema, first: Path) -> Iterator[pa.RecordBatch]:
    """Read a file in batches. Raises `BadInput` unless it has the columns of the changelog."""
    import pyarrow.parquet as pq

    # ParquetFile, not read_table, which would turn a folder called tick=12 into a column.
    with pq.ParquetFile(file) as parquet:
        found = parquet.schema_arrow.remove_metadata()
        if not found.equals(schema) or WEIGHT not in found.names:
            raise BadInput(
                f"{_shown(file)} has other columns than {_shown(first)}",
                why=f"They are {', '.join(found.names)}. All files of a changelog have the same ones.",
                fix="move files that are not of this changelog elsewhere",
                file=str(file),
            )
        yield from parquet.iter_batches(_BATCH_ROWS)


def _shown(file: Path) -> str:
    return os.path.join(*file.parts[-2:])


def _added_up(table: pa.Table) -> pa.Table:
    """Add up the weights of equal rows, in the order of their first occurrences, and drop weights of 0."""
    import pyarrow as pa

    columns = [name for name in table.column_names if name != WEIGHT]
    # Numbered, because columns may have any names.
    keys = {str(at): _comparable(table.column(name)) for at, name in enumerate(columns)}
    rows = pa.array(range(table.num_rows), pa.int64())
    numbered = pa.table({**keys, "weight": table.column(WEIGHT), "row": rows})
    sums = numbered.group_by(list(keys), use_threads=False).aggregate([("weight", "sum"), ("row", "min")])
    sums = sums.filter(sums.column("weight_sum").cast(pa.bool_()))
    at = table.column_names.index(WEIGHT)
    rest = table.take(sums.column("row_min"))
    return rest.set_column(at, table.schema.field(at), sums.column("weight_sum"))


def _comparable(column: pa.ChunkedArray) -> Any:
    """Convert a column to a type that Arrow can group by, preserving equality of values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc  # generated at import time, unseen by type checkers
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    # 0.0 for -0.0
    return compute.add(column, 0.0) if pa.types.is_floating(column.type) else column
