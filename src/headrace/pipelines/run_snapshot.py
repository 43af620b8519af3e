"""The input versions that all tables of one run read, whatever arrives meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.pipelines.catalog import PipelineCatalog, Position, Positions, TableEntry
from headrace.pipelines.definitions import TableName
from headrace.pipelines.delta_inputs import DeltaInput, RunDeltaTables
from headrace.pipelines.errors import QueryRefused
from headrace.pipelines.file_inputs import FileInput, RunFiles
from headrace.pipelines.graph import AnalysedQuery, Graph, StoredTable
from headrace.pipelines.input_contents import InputContents
from headrace.pipelines.inputs import ConstantInput, RunInput, TableInput, UnversionedInput
from headrace.pipelines.leaves import ConstantLeaf, DeltaLeaf, FilesLeaf, Leaf, TableLeaf
from headrace.pipelines.table_versions import TableVersions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class RunSnapshot:
    """The input versions that all tables of one run read.

    entries:  tables as far as the run has come.
    compared: folders and files that a table reads by their changes.
    """

    catalog: PipelineCatalog
    graph: Graph
    spark: SparkSession
    entries: dict[TableName, TableEntry]
    compared: frozenset[str]
    files: RunFiles = field(init=False)
    delta: RunDeltaTables = field(init=False)

    def __post_init__(self) -> None:
        self.files = RunFiles(InputContents.open(self.catalog.storage), self.compared)
        self.delta = RunDeltaTables()

    def versions(self, table: StoredTable) -> TableVersions:
        """Return the versions of a table, as far as the run has come, and the writer of the next one."""
        name = table.name
        is_read = bool(self.graph.readers_of(name)) or self.catalog.is_read(name)
        keeps_changes = is_read or bool(table.dataset.delivery)
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
        """Keep the contents of the files of inputs, to compare later ones with."""
        for leaf in leaves:
            if isinstance(leaf, FilesLeaf):
                FileInput(leaf, self.spark, self.files).keep()

    def check(self, leaves: Iterable[Leaf]) -> None:
        """Look at the files of inputs once more, after they were read: what has changed is not compared."""
        for leaf in leaves:
            if isinstance(leaf, FilesLeaf):
                FileInput(leaf, self.spark, self.files).check()

    def positions(self, query: AnalysedQuery) -> dict[str, Position | None]:
        return {leaf.key: self.input(leaf).position() for leaf in query.leaves}

    def rows_changed(self, leaves: Iterable[Leaf], before: Positions) -> int | None:
        """Return how many rows of inputs have changed since positions, once an update has read them.

        None where that is not known.
        """
        counts = [self.input(leaf).rows_changed(before.get(leaf.key)) for leaf in leaves]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def rows_of(self, leaves: Collection[Leaf]) -> int | None:
        """Return how many rows inputs have; None where only reading them tells."""
        inside = all(isinstance(leaf, (TableLeaf, DeltaLeaf)) for leaf in leaves)
        return self.rows_changed(leaves, {}) if inside else None
