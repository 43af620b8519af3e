"""The input versions that all tables of one run read, whatever arrives meanwhile."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.pipelines.catalog import Catalog, Position, TableEntry
from headrace.pipelines.definitions import TableName
from headrace.pipelines.delta_inputs import DeltaInputs
from headrace.pipelines.errors import PipelineError, QueryRefused
from headrace.pipelines.graph import AnalysedQuery, Graph, Table, no_rows
from headrace.pipelines.input_files import InputFiles
from headrace.pipelines.leaves import (
    ConstantLeaf,
    DeltaLeaf,
    FilesLeaf,
    Leaf,
    TableLeaf,
    files_there,
    relation_of_files,
    rows_of_files,
)
from headrace.pipelines.table_versions import TableVersions, adds_only, rows_in
from headrace.pipelines.weighted_rows import (
    can_be_grouped,
    difference,
    expand,
    has_removals,
    with_weight,
)
from headrace.queries.plan_details import frame_of_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

Positions: TypeAlias = Mapping[str, "Position | None"]
"""How far the inputs of a query are read, by their keys; None where that cannot be said."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Files of an input that came since a position, and those that went, each with the mark of its content.

    A file that has another content is among both. A file that has another name only is in neither.
    """

    came: frozenset[str]
    gone: frozenset[tuple[str, int, int]]


@dataclass(slots=True)
class RunSnapshot:
    """The input versions that all tables of one run read.

    entries: tables as far as the run has come. listings: the files of each input that is files.
    folders: what was in each folder when the run first looked. inputs: contents of these files.
    differences: of inputs that are files, some of which were changed or are gone, with their numbers of rows.
    counting: of inputs whose files do not tell how many rows they hold, what counts them as they are read.
    compared: folders and files that a table reads by their changes; those of others need no checksums.
    """

    catalog: Catalog
    graph: Graph
    spark: SparkSession
    entries: dict[TableName, TableEntry]
    compared: frozenset[str]
    listings: dict[str, dict[str, list[int]]] = field(default_factory=dict[str, dict[str, list[int]]])
    folders: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    counting: dict[str, Observation] = field(default_factory=dict[str, "Observation"])
    differences: dict[tuple[str, FileChanges], tuple[DataFrame, int]] = field(
        default_factory=dict[tuple[str, "FileChanges"], "tuple[DataFrame, int]"]
    )
    delta: DeltaInputs = field(init=False)
    inputs: InputFiles = field(init=False)

    def __post_init__(self) -> None:
        self.delta = DeltaInputs(self.spark)
        self.inputs = InputFiles.open(self.catalog.storage)

    def close(self) -> None:
        """Release the differences that were computed."""
        for rows, _ in self.differences.values():
            rows.unpersist()
        self.differences.clear()

    def versions(self, table: Table) -> TableVersions:
        """Return the versions of a table, as far as the run has come, and the writer of the next one."""
        name = table.name
        is_read = bool(self.graph.readers_of(name)) or self.catalog.is_read(name)
        keeps_changes = is_read or bool(table.dataset.delivery)
        return TableVersions(self.catalog, table, self.spark, self.entries.get(name), keeps_changes)

    def _input(self, name: TableName) -> TableVersions:
        return TableVersions(self.catalog, self.graph.table(name), self.spark, self._entry(name))

    def position(self, leaf: Leaf) -> Position | None:
        """Return how far an input goes in this run; None if that cannot be said.

        Raises `QueryRefused` for a table without rows.
        """
        match leaf:
            case TableLeaf():
                return self._entry(leaf.name).version
            case FilesLeaf():
                if leaf.exact not in self.listings:
                    self.listings[leaf.exact] = self._files_of_the_run(leaf)
                return self.listings[leaf.exact]
            case DeltaLeaf():
                return str(self.delta.version(leaf))
            case ConstantLeaf():
                return leaf.key
            case _:
                return None

    def _files_of_the_run(self, leaf: FilesLeaf) -> dict[str, list[int]]:
        """List the files of a leaf without those that came after the run first looked into their folders."""
        known: set[str] = set()
        for root in leaf.roots:
            folder = root if os.path.isdir(root) else os.path.dirname(root)
            if folder not in self.folders:
                self.folders[folder] = frozenset(
                    os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
                )
            known |= self.folders[folder]
        found = {path: mark for path, mark in files_there(leaf).items() if path in known}
        # A stream reads no file twice.
        if leaf.streaming or leaf.incomparable or self.compared.isdisjoint(leaf.roots):
            return found
        return self.inputs.marks(found)

    def keep(self, leaves: Iterable[Leaf]) -> None:
        """Keep the contents of the files of inputs, to compare later ones with."""
        for leaf in leaves:
            if isinstance(leaf, FilesLeaf) and not leaf.streaming and not leaf.incomparable:
                found = self.position(leaf)
                assert isinstance(found, dict)
                self.inputs.keep(found)

    def check(self, leaves: Iterable[Leaf]) -> None:
        """Look at the files of inputs once more, after they were read: what has changed is not compared."""
        for leaf in leaves:
            if isinstance(leaf, FilesLeaf) and not leaf.streaming and leaf.exact in self.listings:
                self.inputs.check(self.listings[leaf.exact])

    def positions(self, query: AnalysedQuery) -> dict[str, Position | None]:
        return {leaf.key: self.position(leaf) for leaf in query.leaves}

    def whole(self, leaf: Leaf) -> DataFrame:
        """Return all rows of an input."""
        position = self.position(leaf)
        if isinstance(leaf, TableLeaf):
            return self._input(leaf.name).rows()
        if isinstance(leaf, FilesLeaf):
            assert isinstance(position, dict)
            return self._files(leaf, position)
        if isinstance(leaf, DeltaLeaf):
            return self.delta.whole(leaf)
        return frame_of_plan(leaf.node, self.spark)

    def changes(self, leaf: Leaf, before: Position | None) -> DataFrame | None:
        """Return what changed in an input since a position, with weights; None if that is not known."""
        now = self.position(leaf)
        if isinstance(leaf, TableLeaf) and isinstance(before, int) and isinstance(now, int):
            return self._input(leaf.name).changes(before)
        if isinstance(leaf, FilesLeaf) and isinstance(before, dict):
            found = self.file_changes(leaf, before)
            if leaf.streaming and any(
                self.listings[leaf.exact].get(path) != mark for path, mark in before.items()
            ):
                return None  # A stream has read what nobody has kept.
            if not found.gone:
                return with_weight(self._new_files(leaf, found.came), 1)
            return None if self._why_not_compared(leaf, found) else self._difference(leaf, found)[0]
        if isinstance(leaf, DeltaLeaf) and isinstance(before, str):
            return self.delta.changes(leaf, before)
        if isinstance(leaf, ConstantLeaf) and before == now:
            return with_weight(frame_of_plan(leaf.node, self.spark).limit(0), 1)
        return None

    def why_unknown(self, leaf: Leaf, before: Position | None) -> str:
        """Return why it is not known what changed in an input since a position."""
        if before is None:
            return f"{leaf.key} was not read before"
        if isinstance(leaf, FilesLeaf) and isinstance(before, dict):
            return self._why_not_compared(leaf, self.file_changes(leaf, before))
        if isinstance(leaf, TableLeaf):
            return f"what changed in {leaf.name} since its version {before} is not kept"
        if isinstance(leaf, DeltaLeaf):
            return f"the log of {leaf.path} does not tell what changed"
        return f"{leaf.key} has changed"

    def holds_the_same(self, leaf: Leaf, before: Position | None) -> bool:
        """Return whether an input is known to have the rows that it had at a position."""
        if not isinstance(leaf, FilesLeaf) or not isinstance(before, dict):
            return before is not None and before == self.position(leaf)
        found = self.file_changes(leaf, before)
        known = self.differences.get((leaf.exact, found))
        return not (found.came or found.gone) or (known is not None and not known[1])

    def file_changes(self, leaf: FilesLeaf, before: Position | None) -> FileChanges:
        """Return the files that came, went or changed since a position; all came without one."""
        now = self.position(leaf)
        assert isinstance(now, dict)
        was = before if isinstance(before, dict) else {}
        if leaf.streaming:
            return FileChanges(frozenset(now.keys() - was), frozenset())
        came = {path for path, mark in now.items() if was.get(path) != mark}
        gone = {path for path, mark in was.items() if now.get(path) != mark}
        # What sees the name of a file has other rows under another one.
        moved = (
            {}
            if leaf.incomparable
            else {(os.path.dirname(path), self.inputs.digest(path, now[path])): path for path in came}
        )
        for path in sorted(gone):
            digest = self.inputs.digest(path, was[path])
            at = moved.pop((os.path.dirname(path), digest), None) if digest else None
            if at is not None:
                came.remove(at)
                gone.remove(path)
        return FileChanges(frozenset(came), frozenset((path, was[path][0], was[path][1]) for path in gone))

    def _why_not_compared(self, leaf: FilesLeaf, found: FileChanges) -> str:
        """Return why the files that went cannot be compared with those that came; empty if they can."""
        for path, *mark in sorted(found.gone):
            what = f"{path} {'has changed' if path in found.came else 'is gone'}"
            if leaf.incomparable:
                return f"{what}, and {leaf.incomparable}"
            if self.inputs.kept(path, mark) is None:
                return f"{what}, and its rows before are not kept"
            if not can_be_grouped(frame_of_plan(leaf.node, self.spark).schema):
                return f"{what}, and its rows cannot be compared"
        return ""

    def _difference(self, leaf: FilesLeaf, found: FileChanges) -> tuple[DataFrame, int]:
        """Return what files that came have else than those that went, and how many rows that is."""
        key = leaf.exact, found
        if key not in self.differences:
            kept = {path: self.inputs.kept(path, mark) for path, *mark in found.gone}
            root = next(iter(leaf.roots))
            held = relation_of_files(
                leaf, sorted(map(str, kept.values())), self.spark, self.inputs.base(root)
            )
            old, new = frame_of_plan(held, self.spark), self._files(leaf, found.came)
            rows = difference(old, new).persist()
            self.differences[key] = rows, rows.count()
        rows, count = self.differences[key]
        return rows.select("*"), count  # Readers may persist and release theirs.

    def unread(self, leaf: Leaf, before: Position | None, table: Table) -> DataFrame:
        """Return the rows that a stream into `table` has not read since a position; all without one.

        Raises `PipelineError` if rows that it has read were taken back.
        """
        if isinstance(leaf, FilesLeaf):
            return self._new_files(leaf, self.file_changes(leaf, before).came, count=before is not None)
        if before is None:
            return self.whole(leaf)
        changes = self.changes(leaf, before)
        if changes is None or self.takes_back(leaf, before, changes):
            raise PipelineError(
                f"{leaf.key} has taken rows back, which a stream into {table.name} has read",
                where=[table.dataset.location],
                why="What a streaming table holds stays.",
                fix=f"make it a materialized view, or reread its inputs: --full-refresh {table.name}",
            )
        return expand(changes)

    def takes_back(self, leaf: Leaf, before: Position | None, changes: DataFrame) -> bool:
        """Return whether the changes of an input since a position take rows back."""
        return not self.adds_only(leaf, before) and has_removals(changes)

    def adds_only(self, leaf: Leaf, before: Position | None) -> bool:
        """Return whether known changes since a position surely take nothing back, without computing them."""
        now = self.position(leaf)
        if isinstance(leaf, TableLeaf) and isinstance(before, int) and isinstance(now, int):
            return all(map(adds_only, self._input(leaf.name).change_folders(before) or ()))
        if isinstance(leaf, DeltaLeaf) and isinstance(before, str):
            return self.delta.adds_only(leaf, before)
        return not isinstance(leaf, FilesLeaf) or not self.file_changes(leaf, before).gone

    def rows_changed(self, leaves: Iterable[Leaf], before: Positions) -> int | None:
        """Return how many rows of inputs have changed since positions, once an update has read them.

        None where that is not known.
        """
        counts = [self._rows_changed(leaf, before.get(leaf.key)) for leaf in leaves]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def _rows_changed(self, leaf: Leaf, before: Position | None) -> int | None:
        now = self.position(leaf)
        match leaf:
            case TableLeaf() if before is None:
                return self._entry(leaf.name).rows
            case TableLeaf() if isinstance(before, int) and isinstance(now, int):
                return sum(map(rows_in, self._input(leaf.name).change_folders(before) or ()))
            case FilesLeaf() if leaf.exact in self.counting:
                return _counted(self.counting.pop(leaf.exact))
            case FilesLeaf():
                found = self.file_changes(leaf, before)
                if found.gone:
                    _, count = self.differences.get((leaf.exact, found), (None, None))
                    return count
                return rows_of_files(found.came) if leaf.knows_its_rows or not found.came else None
            case DeltaLeaf() if before is None:
                return self.delta.rows(leaf)
            case DeltaLeaf() if isinstance(before, str):
                return self.delta.rows_changed(leaf, before)
            case _:
                return None

    def _new_files(self, leaf: FilesLeaf, paths: Collection[str], *, count: bool = True) -> DataFrame:
        """Return the rows of files that came. count: those of files that do not tell how many they are."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        rows = self._files(leaf, paths)
        self.counting.pop(leaf.exact, None)
        # Counting breaks Spark's generated code in two: of many rows, as in a first run, that is noticed.
        if not paths or not count or leaf.knows_its_rows:
            return rows
        self.counting[leaf.exact] = counting = Observation()
        return rows.observe(counting, f.count(f.lit(1)))

    def rows_of(self, leaves: Collection[Leaf]) -> int | None:
        """Return how many rows inputs have; None where only reading them tells."""
        inside = all(isinstance(leaf, (TableLeaf, DeltaLeaf)) for leaf in leaves)
        return self.rows_changed(leaves, {}) if inside else None

    def _files(self, leaf: FilesLeaf, paths: Any) -> DataFrame:
        if paths:
            return frame_of_plan(relation_of_files(leaf, sorted(paths), self.spark), self.spark)
        schema = frame_of_plan(leaf.node, self.spark).schema
        return no_rows(schema, self.spark)

    def _entry(self, name: TableName) -> TableEntry:
        if name not in self.entries:
            raise QueryRefused(
                f"{name} has no rows yet: it was never refreshed",
                fix=f"refresh it, too: --refresh {name}",
                dataset=str(name),
            )
        return self.entries[name]


def _counted(counting: Observation) -> int | None:
    """Return the rows that were counted; None if Spark has not read them, since none was wanted."""
    made: Any = counting._jo  # pyright: ignore[reportPrivateUsage]
    if not made.future().isCompleted():
        return None  # `get` would wait for it.
    row = made.getRow()
    return row.getLong(0) if row.length() else None
