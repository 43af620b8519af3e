"""The inputs of a run as it sees them: the same for all its tables, whatever arrives meanwhile."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.pipelines.catalog import Catalog, Position, TableEntry
from penstock.pipelines.definitions import TableName
from penstock.pipelines.delta_inputs import DeltaInputs
from penstock.pipelines.errors import PipelineError, QueryRefused
from penstock.pipelines.graph import AnalysedQuery, Graph, Table, no_rows
from penstock.pipelines.leaves import (
    ConstantLeaf,
    DeltaLeaf,
    FilesLeaf,
    Leaf,
    TableLeaf,
    files_there,
    relation_of_files,
    rows_of_files,
)
from penstock.pipelines.versions import (
    adds_only,
    check_rows,
    has_removals,
    read_changes,
    read_rows,
    repeated,
    rows_in,
    summed,
    weighted,
)
from penstock.queries.plan_details import frame_of_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

Positions: TypeAlias = Mapping[str, "Position | None"]
"""How far the inputs of a query are read, by their keys; None where that cannot be said."""


@dataclass(slots=True)
class Cut:
    """The inputs of one run, the same for all its tables.

    entries: tables as far as the run has come. listings: the files of each input that is files.
    folders: what was in each folder when the run first looked.
    counting: of inputs whose files do not tell how many rows they hold, what counts them as they are read.
    """

    catalog: Catalog
    graph: Graph
    spark: SparkSession
    entries: dict[TableName, TableEntry]
    listings: dict[str, dict[str, list[int]]] = field(default_factory=dict[str, dict[str, list[int]]])
    folders: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    counting: dict[str, Observation] = field(default_factory=dict[str, "Observation"])
    delta: DeltaInputs = field(init=False)

    def __post_init__(self) -> None:
        self.delta = DeltaInputs(self.spark)

    def position(self, leaf: Leaf) -> Position | None:
        """Return how far an input goes in this run; None if that cannot be said.

        Raises `QueryRefused` for a table without rows.
        """
        match leaf:
            case TableLeaf():
                return self._entry(leaf.name).version
            case FilesLeaf():
                if leaf.exact not in self.listings:
                    self.listings[leaf.exact] = self._files_of_the_cut(leaf)
                return self.listings[leaf.exact]
            case DeltaLeaf():
                return str(self.delta.version(leaf))
            case ConstantLeaf():
                return leaf.key
            case _:
                return None

    def _files_of_the_cut(self, leaf: FilesLeaf) -> dict[str, list[int]]:
        """List the files of a leaf without those that came after the run first looked into their folders."""
        known: set[str] = set()
        for root in leaf.roots:
            folder = root if os.path.isdir(root) else os.path.dirname(root)
            if folder not in self.folders:
                self.folders[folder] = frozenset(
                    os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
                )
            known |= self.folders[folder]
        return {path: mark for path, mark in files_there(leaf).items() if path in known}

    def positions(self, query: AnalysedQuery) -> dict[str, Position | None]:
        return {leaf.key: self.position(leaf) for leaf in query.leaves}

    def whole(self, leaf: Leaf) -> DataFrame:
        """Return all rows of an input."""
        position = self.position(leaf)
        if isinstance(leaf, TableLeaf):
            assert isinstance(position, int)
            return self._rows(leaf.name, position)
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
            return self._table_changes(leaf, before, now)
        if isinstance(leaf, FilesLeaf) and isinstance(before, dict) and isinstance(now, dict):
            if any(now.get(path) != mark for path, mark in before.items()):
                return None  # What stood in a file that has changed, or is gone, nobody knows.
            return weighted(self._new_files(leaf, now, before), 1)
        if isinstance(leaf, DeltaLeaf) and isinstance(before, str):
            return self.delta.changes(leaf, before)
        if isinstance(leaf, ConstantLeaf) and before == now:
            return weighted(frame_of_plan(leaf.node, self.spark).limit(0), 1)
        return None

    def unread(self, leaf: Leaf, before: Position | None, table: Table) -> DataFrame:
        """Return the rows that a stream into `table` has not read since a position; all without one.

        Raises `PipelineError` if rows that it has read were taken back.
        """
        now = self.position(leaf)
        if isinstance(leaf, FilesLeaf):
            assert isinstance(now, dict)
            return self._new_files(leaf, now, before)
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
        return repeated(changes)

    def takes_back(self, leaf: Leaf, before: Position | None, changes: DataFrame) -> bool:
        """Return whether the changes of an input since a position take rows back."""
        return not self.adds_only(leaf, before) and has_removals(changes)

    def adds_only(self, leaf: Leaf, before: Position | None) -> bool:
        """Return whether known changes since a position surely take nothing back, without computing them."""
        now = self.position(leaf)
        if isinstance(leaf, TableLeaf) and isinstance(before, int) and isinstance(now, int):
            folders = [self.catalog.changes(leaf.name, at) for at in range(before + 1, now + 1)]
            return all(map(adds_only, folders))
        if isinstance(leaf, DeltaLeaf) and isinstance(before, str):
            return self.delta.adds_only(leaf, before)
        return True

    def _table_changes(self, leaf: TableLeaf, before: int, now: int) -> DataFrame | None:
        folders = [self.catalog.changes(leaf.name, version) for version in range(before + 1, now + 1)]
        if not all(folder.is_dir() for folder in folders) or before > now:
            return None
        table = self.graph.table(leaf.name)
        frames = [read_changes(folder, table, self.spark) for folder in folders]
        whole = weighted(no_rows(table.schema, self.spark), 1)
        for frame in frames:
            whole = whole.unionByName(frame)
        # A row may have come in one version and gone in a later one.
        return summed(whole) if len(frames) > 1 else whole

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
                return sum(rows_in(self.catalog.changes(leaf.name, at)) for at in range(before + 1, now + 1))
            case FilesLeaf() if leaf.exact in self.counting:
                return _counted(self.counting.pop(leaf.exact))
            case FilesLeaf() if isinstance(now, dict):
                paths = _new(now, before)
                return rows_of_files(paths) if leaf.knows_its_rows or not paths else None
            case DeltaLeaf() if before is None:
                return self.delta.rows(leaf)
            case DeltaLeaf() if isinstance(before, str):
                return self.delta.rows_changed(leaf, before)
            case _:
                return None

    def _new_files(self, leaf: FilesLeaf, now: Mapping[str, Any], before: Position | None) -> DataFrame:
        """Return the rows of files that came since a position; of all without one."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        paths = _new(now, before)
        rows = self._files(leaf, paths)
        self.counting.pop(leaf.exact, None)
        # Counting breaks Spark's generated code in two: of many rows, as in a first run, that is noticed.
        if not paths or before is None or leaf.knows_its_rows:
            return rows
        self.counting[leaf.exact] = counting = Observation()
        return rows.observe(counting, f.count(f.lit(1)))

    def rows_of(self, leaves: Collection[Leaf]) -> int | None:
        """Return how many rows inputs have; None where only reading them tells."""
        inside = all(isinstance(leaf, (TableLeaf, DeltaLeaf)) for leaf in leaves)
        return self.rows_changed(leaves, {}) if inside else None

    def _rows(self, name: TableName, version: int) -> DataFrame:
        check_rows(self.catalog, self.graph.table(name), self._entry(name))
        return read_rows(self.catalog.rows(name, version), self.graph.table(name), self.spark)

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


def _new(now: Mapping[str, Any], before: Position | None) -> set[str]:
    """Return the files that are not in a position; all without one."""
    return now.keys() - (before if isinstance(before, dict) else {})


def _counted(counting: Observation) -> int | None:
    """Return the rows that were counted; None if Spark has not read them, since none was wanted."""
    made: Any = counting._jo  # pyright: ignore[reportPrivateUsage]
    if not made.future().isCompleted():
        return None  # `get` would wait for it.
    row = made.getRow()
    return row.getLong(0) if row.length() else None
