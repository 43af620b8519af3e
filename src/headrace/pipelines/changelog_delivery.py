"""Delivery of a table's versions to a changelog: a tick for each that was published, with what it changed.

A tick has the number of the version, and its folder appears by one rename: each comes once, whatever ends a
run. The layout is that of `headrace.io.files.changelog`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.io.delivery.atomic_files import TICK, published_ticks, remove_folder, tick_folder
from headrace.io.source import WEIGHT as CHANGELOG_WEIGHT
from headrace.pipelines.catalog import Catalog, TableEntry
from headrace.pipelines.errors import BadDefinition
from headrace.pipelines.graph import Table, as_stored
from headrace.pipelines.snapshots import can_be_grouped
from headrace.pipelines.versions import WEIGHT, read_changes, read_rows, save, summed, weighted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_changelog(table: Table) -> None:
    """Raise `BadDefinition` for a table whose changes cannot be known."""
    dataset = table.dataset
    taken = {CHANGELOG_WEIGHT, TICK} & {name.lower() for name in table.schema.names}
    if taken or not can_be_grouped(table.schema):
        what = f"has a column {min(taken)!r}" if taken else "has columns that Spark cannot compare"
        why = "A changelog adds it itself." if taken else "So nobody knows which rows have changed."
        raise BadDefinition(
            f"{dataset.name} is to be a changelog, and {what}",
            where=[dataset.location],
            why=why,
            fix="name it otherwise" if taken else "cast them in the query",
            dataset=str(dataset.name),
        )


@dataclass(frozen=True, slots=True)
class ChangelogDelivery:
    """Delivery of a table to the changelog in a folder."""

    catalog: Catalog
    table: Table
    spark: SparkSession
    folder: Path

    def publish(self, entry: TableEntry) -> None:
        """Add what changed from the last tick to a version, unless it is there."""
        if entry.schema != self.table.schema.json() or entry.layout != self.table.layout:
            return  # The version is of an earlier project; the next one is delivered.
        if self._delivered() and not self._has_the_form():
            remove_folder(self.folder)
        last = self._delivered()
        if last < entry.version:
            rows = self._changes(last, entry.version).withColumnRenamed(WEIGHT, CHANGELOG_WEIGHT)
            save(rows.write.format("parquet"), self.folder / tick_folder(entry.version))

    def _delivered(self) -> int:
        return max(published_ticks(self.folder), default=0)

    def _has_the_form(self) -> bool:
        """Return whether the changelog has the columns of the table."""
        there = self.spark.read.parquet(f"file:{self.folder}").drop(TICK, CHANGELOG_WEIGHT)
        return as_stored(there.schema) == as_stored(self.table.schema)

    def _changes(self, last: int, version: int) -> DataFrame:
        folders = [self.catalog.changes(self.table.name, at) for at in range(last + 1, version + 1)]
        if last and all(folder.is_dir() for folder in folders):
            found, *others = (read_changes(folder, self.table, self.spark) for folder in folders)
        else:
            rows = read_rows(self.catalog.rows(self.table.name, version), self.table, self.spark)
            found, others = weighted(rows, 1), [self._taken_back()] if last else []
        for each in others:
            found = found.unionByName(each)
        return summed(found)

    def _taken_back(self) -> DataFrame:
        """Return the rows that the changelog adds up to, as changes that take them back."""
        there = self.spark.read.parquet(f"file:{self.folder}").drop(TICK)
        return there.withColumn(CHANGELOG_WEIGHT, -there[CHANGELOG_WEIGHT]).withColumnRenamed(
            CHANGELOG_WEIGHT, WEIGHT
        )
