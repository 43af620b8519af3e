"""Snapshot of a run: the input versions that all its tables read, regardless of later arrivals.

Of files, it has those that were added and removed since a position, and the rows that differ.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, cast

from headrace.pipelines.catalog import PipelineCatalog, Position, Positions, TableEntry
from headrace.pipelines.definitions import TableName
from headrace.pipelines.errors import AbsentSpark, NeedsSpark, QueryRefused, is_absent
from headrace.pipelines.file_listing import files_there
from headrace.pipelines.graph import AnalysedQuery, Graph, StoredTable, empty_frame
from headrace.pipelines.input_identity import FileMark, InputContents
from headrace.pipelines.inputs import (
    ConstantInput,
    DeltaInput,
    RunDeltaTables,
    RunInput,
    TableInput,
    UnversionedInput,
)
from headrace.pipelines.leaves import (
    ConstantLeaf,
    DeltaLeaf,
    FilesLeaf,
    Leaf,
    TableLeaf,
    relation_of_files,
    spark_columns,
)
from headrace.pipelines.table_versions import TableVersions
from headrace.pipelines.weighted_rows import (
    as_changes,
    can_be_grouped,
    consolidate_arrow,
    difference,
    with_weight,
)
from headrace.queries.plan_details import frame_of_plan
from headrace.tables.version_folders import row_count_of_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Observation, SparkSession

    from headrace.pipelines.table_plan import TablePlan


@dataclass(slots=True)
class RunSnapshot:
    """The input versions that all tables of one run read.

    entries: tables as far as the run has come.
    """

    catalog: PipelineCatalog
    graph: Graph
    spark: SparkSession
    entries: dict[TableName, TableEntry]
    files: RunFiles = field(init=False)
    delta: RunDeltaTables = field(default_factory=RunDeltaTables)

    def __post_init__(self) -> None:
        self.files = RunFiles(InputContents.open(self.catalog.storage))

    def compare(self, plans: Iterable[TablePlan]) -> None:
        """Note which folders and files are read by their changes."""
        self.files.compared |= {root for plan in plans for root in plan.compared_files}

    def without_spark(self) -> RunSnapshot:
        """Return the same snapshot for a table that is brought up to date in this process."""
        if is_absent(self.spark):
            return self
        same = copy(self)
        same.spark = cast("SparkSession", AbsentSpark())
        return same

    def versions(self, table: StoredTable) -> TableVersions:
        """Return the versions of a table at this point of the run, with the writer of the next one."""
        name = table.name
        is_read = bool(self.graph.readers_of(name)) or self.catalog.is_read(name)
        is_counted = bool(table.dataset.expectations) or table.dataset.beside is not None
        keeps_changes = is_read or is_counted or bool(table.dataset.delivery)
        return TableVersions(self.catalog, table, self.spark, self.entries.get(name), keeps_changes)

    def input(self, leaf: Leaf) -> RunInput[Any]:
        """Return an input as this run reads it. Raises `QueryRefused` for a table without rows."""
        match leaf:
            case TableLeaf():
                if leaf.name not in self.entries:
                    raise QueryRefused(
                        f"{leaf.name} has no rows yet: it was never refreshed",
                        fix=f"refresh it, too: --refresh {leaf.name}",
                        dataset=str(leaf.name),
                    )
                return TableInput(leaf, self.spark, self.versions(self.graph.table(leaf.name)))
            case FilesLeaf():
                return FileInput(leaf, self.spark, self.files)
            case DeltaLeaf():
                return DeltaInput(leaf, self.spark, self.delta)
            case ConstantLeaf():
                return ConstantInput(leaf, self.spark)
            case _:
                return UnversionedInput(leaf, self.spark)

    def keep(self, leaves: Iterable[Leaf]) -> None:
        """Store the contents of input files, for comparison with later ones."""
        for leaf in leaves:
            if isinstance(leaf, FilesLeaf):
                FileInput(leaf, self.spark, self.files).keep()

    def check(self, leaves: Iterable[Leaf]) -> None:
        """Check input files again after reading; those that have changed are not compared later."""
        for leaf in leaves:
            if isinstance(leaf, FilesLeaf):
                FileInput(leaf, self.spark, self.files).check()

    def positions(self, query: AnalysedQuery) -> dict[str, Position | None]:
        return {leaf.key: self.input(leaf).position() for leaf in query.leaves}

    def rows_changed(self, leaves: Iterable[Leaf], before: Positions) -> int | None:
        """Return the number of input rows changed since positions, once an update has read them.

        None where that is not known.
        """
        counts = [self.input(leaf).rows_changed(before.get(leaf.key)) for leaf in leaves]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def rows_of(self, leaves: Collection[Leaf]) -> int | None:
        """Return the row count of inputs; None if it is only known after reading."""
        inside = all(isinstance(leaf, (TableLeaf, DeltaLeaf)) for leaf in leaves)
        return self.rows_changed(leaves, {}) if inside else None


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Files of an input added and removed since a position, the latter with the marks of their contents.

    A file that has another content is among both. A file that has another name only is in neither.
    """

    added: frozenset[str]
    removed: frozenset[tuple[str, int, int]]


@dataclass(slots=True)
class RunFiles:
    """Files that one run reads, the same for all its tables.

    lock: of all this, since tables are updated side by side. comparing: of `differences`, which take long.
    contents: of earlier and of these files. compared: folders and files that a table reads by their changes;
              those of others need no checksums.
    listings: the files of each input. folders: what was in each folder when the run first looked.
    counting: counters of the rows of inputs whose files do not tell how many they hold, by thread and input.
    differences: of inputs of which files have changed or are gone, with their numbers of rows.
    differences_here: the same, read in this process.
    """

    contents: InputContents
    lock: RLock = field(default_factory=RLock)
    comparing: RLock = field(default_factory=RLock)
    compared: frozenset[str] = frozenset()
    listings: dict[str, dict[str, FileMark]] = field(default_factory=dict[str, dict[str, FileMark]])
    folders: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    counting: dict[tuple[int, str], Observation] = field(default_factory=dict[tuple[int, str], "Observation"])
    differences: dict[tuple[str, FileChanges], tuple[DataFrame, int]] = field(
        default_factory=dict[tuple[str, "FileChanges"], "tuple[DataFrame, int]"]
    )
    differences_here: dict[tuple[str, FileChanges], pa.Table] = field(
        default_factory=dict[tuple[str, "FileChanges"], "pa.Table"]
    )

    def close(self) -> None:
        """Release the differences that were computed."""
        for rows, _ in self.differences.values():
            rows.unpersist()
        self.differences.clear()


@dataclass(frozen=True, slots=True)
class FileInput(RunInput[FilesLeaf]):
    """Files of this machine. Positions are the marks of their contents by path."""

    files: RunFiles

    def position(self) -> dict[str, FileMark]:
        leaf, listings = self.leaf, self.files.listings
        with self.files.lock:
            if leaf.exact not in listings:
                listings[leaf.exact] = self._list()
            return listings[leaf.exact]

    def _list(self) -> dict[str, list[int]]:
        """List the files, without files added after the run first listed their folders."""
        known: set[str] = set()
        for root in self.leaf.roots:
            folder = root if os.path.isdir(root) else os.path.dirname(root)
            if folder not in self.files.folders:
                self.files.folders[folder] = frozenset(
                    os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
                )
            known |= self.files.folders[folder]
        found = {path: mark for path, mark in files_there(self.leaf).items() if path in known}
        # A stream reads no file twice.
        if self.leaf.streaming or self.leaf.incomparable or self.files.compared.isdisjoint(self.leaf.roots):
            return found
        return self.files.contents.marks(found)

    def keep(self) -> None:
        """Store the contents of the files, for comparison with later ones."""
        if not self.leaf.streaming and not self.leaf.incomparable:
            with self.files.lock:
                self.files.contents.keep(self.position())

    def check(self) -> None:
        """Check the files again after reading. Contents that changed meanwhile are never compared."""
        if not self.leaf.streaming and self.leaf.exact in self.files.listings:
            with self.files.lock:
                self.files.contents.check(self.files.listings[self.leaf.exact])

    def whole(self) -> DataFrame:
        return self._rows_of(self.position())

    def changes(self, before: Position | None) -> DataFrame | None:
        if not isinstance(before, dict):
            return None
        found = self.file_changes(before)
        if self.leaf.streaming and any(self.position().get(path) != mark for path, mark in before.items()):
            return None  # A stream has read what nobody has kept.
        if not found.removed:
            return with_weight(self._new_rows(found.added), 1)
        return None if self._why_not_compared(found) else self._difference(found)[0]

    def bytes_changed(self, before: Position | None) -> int:
        now, found = self.position(), self.file_changes(before)
        return sum(now[path][0] for path in found.added) + sum(size for _, size, _ in found.removed)

    def changes_here(self, before: Position | None) -> pa.Table:
        if not isinstance(before, dict):
            raise NeedsSpark(f"{self.leaf.key} was not read before")
        found = self.file_changes(before)
        if self.leaf.streaming and any(self.position().get(path) != mark for path, mark in before.items()):
            raise NeedsSpark(f"{self.leaf.key} has lost files that a stream has read")
        if not found.removed:
            return as_changes(self._rows_here({path: path for path in found.added}))
        if why := self._why_not_compared(found):
            raise NeedsSpark(why)
        return self._difference_here(found)

    def _difference_here(self, found: FileChanges) -> pa.Table:
        """Return the changes from the removed files to the added ones, like `_difference`."""
        import pyarrow as pa

        key = self.leaf.exact, found
        if key not in self.files.differences_here:
            kept = {path: str(self.files.contents.kept(path, mark)) for path, *mark in found.removed}
            new = as_changes(self._rows_here({path: path for path in found.added}))
            old = as_changes(self._rows_here(kept), -1)
            self.files.differences_here[key] = consolidate_arrow(pa.concat_tables([old, new]))
        return self.files.differences_here[key]

    def unread_here(self, before: Position | None, table: StoredTable) -> pa.Table:
        return self._rows_here({path: path for path in self.file_changes(before).added})

    def _rows_here(self, contents: Mapping[str, str]) -> pa.Table:
        from headrace.pipelines.in_process_inputs import rows_of_files

        return rows_of_files(self.leaf, contents, set(map(os.path.dirname, self.position())))

    def why_unknown(self, before: Position | None) -> str:
        if not isinstance(before, dict):
            return f"{self.leaf.key} {'was not read before' if before is None else 'has changed'}"
        return self._why_not_compared(self.file_changes(before))

    def is_unchanged(self, before: Position | None) -> bool:
        if not isinstance(before, dict):
            return False
        found = self.file_changes(before)
        known, here = (
            of.get((self.leaf.exact, found)) for of in (self.files.differences, self.files.differences_here)
        )
        same = (known is not None and not known[1]) or (here is not None and not len(here))
        return not (found.added or found.removed) or same

    def adds_only(self, before: Position | None) -> bool:
        return not self.file_changes(before).removed

    def rows_changed(self, before: Position | None) -> int | None:
        if (counting := self.files.counting.pop((get_ident(), self.leaf.exact), None)) is not None:
            return _observed_rows(counting)
        found = self.file_changes(before)
        if found.removed:
            here = self.files.differences_here.get((self.leaf.exact, found))
            _, count = self.files.differences.get((self.leaf.exact, found), (None, None))
            return count if here is None else len(here)
        return row_count_of_files(found.added) if self.leaf.knows_its_rows or not found.added else None

    def unread(self, before: Position | None, table: StoredTable) -> DataFrame:
        return self._new_rows(self.file_changes(before).added, count=before is not None)

    def file_changes(self, before: Position | None) -> FileChanges:
        """Return the files added and removed since a position; without one, all were added."""
        now = self.position()
        was = before if isinstance(before, dict) else {}
        if self.leaf.streaming:
            return FileChanges(frozenset(now.keys() - was), frozenset())
        added = {path for path, mark in now.items() if was.get(path) != mark}
        removed = {path for path, mark in was.items() if now.get(path) != mark}
        # What sees the name of a file has other rows under another one.
        moved = (
            {}
            if self.leaf.incomparable
            else {
                (os.path.dirname(path), self.files.contents.digest(path, now[path])): path for path in added
            }
        )
        for path in sorted(removed):
            digest = self.files.contents.digest(path, was[path])
            at = moved.pop((os.path.dirname(path), digest), None) if digest else None
            if at is not None:
                added.remove(at)
                removed.remove(path)
        return FileChanges(
            frozenset(added), frozenset((path, was[path][0], was[path][1]) for path in removed)
        )

    def _why_not_compared(self, found: FileChanges) -> str:
        """Return why removed files cannot be compared with added ones; empty if they can."""
        for path, *mark in sorted(found.removed):
            what = f"{path} {'has changed' if path in found.added else 'is gone'}"
            if self.leaf.incomparable:
                return f"{what}, and {self.leaf.incomparable}"
            if self.files.contents.kept(path, mark) is None:
                return f"{what}, and its rows before are not kept"
            if not can_be_grouped(spark_columns(self.leaf)):
                return f"{what}, and its rows cannot be compared"
        return ""

    def _difference(self, found: FileChanges) -> tuple[DataFrame, int]:
        """Return the changes from the removed files to the added ones, and their number."""
        key = self.leaf.exact, found
        with self.files.comparing:
            if key not in self.files.differences:
                kept = {path: self.files.contents.kept(path, mark) for path, *mark in found.removed}
                root = next(iter(self.leaf.roots))
                held = relation_of_files(
                    self.leaf, sorted(map(str, kept.values())), self.spark, self.files.contents.base(root)
                )
                old, new = frame_of_plan(held, self.spark), self._rows_of(found.added)
                made = difference(old, new).persist()
                self.files.differences[key] = made, made.count()
        rows, count = self.files.differences[key]
        return rows.select("*"), count  # Readers may persist and release theirs.

    def _new_rows(self, paths: Collection[str], *, count: bool = True) -> DataFrame:
        """Return the rows of added files. count: count rows while reading, if the files lack counts."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        rows = self._rows_of(paths)
        key = get_ident(), self.leaf.exact
        self.files.counting.pop(key, None)
        # Counting breaks Spark's generated code in two: of many rows, as in a first run, that is noticed.
        if not paths or not count or self.leaf.knows_its_rows:
            return rows
        self.files.counting[key] = counting = Observation()
        return rows.observe(counting, f.count(f.lit(1)))

    def _rows_of(self, paths: Collection[str]) -> DataFrame:
        if paths:
            return frame_of_plan(relation_of_files(self.leaf, sorted(paths), self.spark), self.spark)
        return empty_frame(spark_columns(self.leaf), self.spark)


def _observed_rows(counting: Observation) -> int | None:
    """Return the observed number of rows; None if Spark did not read them."""
    made: Any = counting._jo  # pyright: ignore[reportPrivateUsage]
    if not made.future().isCompleted():
        return None  # `get` would wait for it.
    row = made.getRow()
    return row.getLong(0) if row.length() else None
