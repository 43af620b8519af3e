"""Versions of a table as folders of files: made beside the one before, of which they share what stays."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.io.delivery.atomic_files import (
    move_folder,
    remove_folder,
    sync_file,
    sync_folder,
    take_over,
    take_over_folder,
)
from penstock.io.source import WEIGHT as SINK_WEIGHT
from penstock.pipelines.catalog import Catalog, TableEntry
from penstock.pipelines.graph import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

WEIGHT = "__weight"
"""Column of changes: how many more of a row there are; no column of a table is called so."""


@dataclass(frozen=True, slots=True)
class VersionWriter:
    """Writer of the next version of a table.

    told: whether somebody reads the changes of the table.
    """

    catalog: Catalog
    table: Table
    spark: SparkSession
    told: bool

    @property
    def _before(self) -> TableEntry | None:
        return self.catalog.entries.get(self.table.name)

    @property
    def _comparable(self) -> TableEntry | None:
        """The entry of the version before, if its rows have the same columns and files."""
        before = self._before
        return before if before and before.version and before.schema == self.table.schema.json() else None

    def frame(self, version: int) -> DataFrame:
        """Rows of a version."""
        return read_rows(self.catalog.rows(self.table.name, version), self.table, self.spark)

    def replace(self, rows: DataFrame) -> int:
        """Write a version of exactly these rows; return its number, the old one if nothing differs."""
        name, before = self.table.name, self._comparable
        version = self.catalog.new_version(name)
        self._write(self._ordered(rows), self.catalog.rows(name, version))
        if before is None:
            return version
        if self.told or self._count(version) == before.rows:
            changes = _difference(self.frame(before.version), self.frame(version))
            folder = self.catalog.changes(name, version)
            self._write(changes, folder, "parquet")
            if not rows_in(folder):
                remove_folder(folder)
                remove_folder(self.catalog.rows(name, version))
                return before.version
        return version

    def append(self, rows: DataFrame) -> int:
        """Write a version with more rows; return its number, the old one if there are none."""
        name, before = self.table.name, self._comparable
        version = self.catalog.new_version(name)
        folder = self.catalog.rows(name, version)
        self._write(self._ordered(rows), folder)
        if before is None:
            return version
        if not self._has_rows(folder):
            remove_folder(folder)
            return before.version
        if self.told:
            take_over_tree(folder, self.catalog.changes(name, version))
        take_over_folder_into(self.catalog.rows(name, before.version), folder)
        return version

    def replace_by_changes(self, changes: DataFrame) -> int:
        """Write a version of exactly the rows that changes from nothing make."""
        return self.replace(repeated(_summed(changes)))

    def apply(self, changes: DataFrame) -> int:
        """Write a version with changes, which have a weight each; return its number, as `append` does."""
        name, before = self.table.name, self._comparable
        assert before is not None
        version = self.catalog.new_version(name)
        told, rows = self.catalog.changes(name, version), self.catalog.rows(name, version)
        self._write(_summed(changes), told, "parquet")
        if not rows_in(told):
            remove_folder(told)
            return before.version
        made = read_changes(told, self.table, self.spark)
        if _adds_only(told):
            self._write(self._ordered(repeated(made)), rows)
            take_over_folder_into(self.catalog.rows(name, before.version), rows)
        else:
            was = weighted(self.frame(before.version), 1)
            self._write(self._ordered(repeated(_summed(was.unionByName(made)))), rows)
        if not self.told:
            remove_folder(told)
        return version

    def rows_of(self, version: int) -> int:
        """Number of rows of a version."""
        before = self._before
        return before.rows if before and before.version == version else self._count(version)

    def _count(self, version: int) -> int:
        files = list(_data_files(self.catalog.rows(self.table.name, version)))
        if self.table.dataset.format == "parquet":
            return rows_in(self.catalog.rows(self.table.name, version))
        return self.frame(version).count() if files else 0

    def _has_rows(self, folder: Path) -> bool:
        if self.table.dataset.format == "parquet":
            return rows_in(folder) > 0
        return any(file.stat().st_size for file in _data_files(folder))

    def _ordered(self, rows: DataFrame) -> DataFrame:
        """Return rows with the columns of the table, in its order and of its types."""
        from pyspark.sql import functions as f

        found = {field.name: field.dataType for field in rows.schema.fields}
        columns: list[Any] = []
        for field in self.table.schema.fields:
            column: Any = f.col(f"`{field.name.replace('`', '``')}`")
            if found[field.name] != field.dataType:
                column = column.cast(field.dataType).alias(field.name)
            columns.append(column)
        return rows.select(*columns)

    def _write(self, rows: DataFrame, folder: Path, form: str | None = None) -> None:
        aside = folder.with_name(f".{folder.name}.tmp")
        remove_folder(aside)
        folder.parent.mkdir(parents=True, exist_ok=True)
        writer = rows.write.format(form or self.table.dataset.format)
        if form is None and self.table.dataset.partitioned_by:
            writer = writer.partitionBy(*self.table.dataset.partitioned_by)
        writer.save(f"file:{aside}")
        for file in list(aside.rglob("*")):
            if file.is_file() and (file.name.startswith(("_", "."))):
                file.unlink()
            elif file.is_file():
                sync_file(file)
        remove_folder(folder)
        move_folder(aside, folder, durable=True)


def read_rows(folder: Path, table: Table, spark: SparkSession) -> DataFrame:
    """Return the rows of a version's folder."""
    schema = as_stored(table.schema)
    if not any(_data_files(folder)):
        return spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)
    return spark.read.schema(schema).format(table.dataset.format).load(f"file:{folder}")


def read_changes(folder: Path, table: Table, spark: SparkSession) -> DataFrame:
    """Return the rows of a folder of changes, with their weights and the types of the table."""
    from pyspark.sql import functions as f

    found = spark.read.parquet(f"file:{folder}")
    weight = f.col(WEIGHT).cast("long") if WEIGHT in found.columns else f.lit(1).cast("long")
    return found.select(*_typed(table), weight.alias(WEIGHT))


def as_stored(schema: StructType) -> StructType:
    """Return columns as files have them: null may be in each."""
    from pyspark.sql.types import StructType

    made = StructType.fromJson(json.loads(schema.json()))
    for field in made.fields:
        field.nullable = True
    return made


def read_sink(folders: Iterable[Path], table: Table, spark: SparkSession) -> DataFrame:
    """Return the changes in some ticks of a flow's changelog."""
    from pyspark.sql import functions as f

    found = spark.read.parquet(*(f"file:{folder}" for folder in folders))
    typed = _typed(table)
    return found.select(*typed, f.col(SINK_WEIGHT).cast("long").alias(WEIGHT))


def _adds_only(folder: Path) -> bool:
    """Return whether changes take no row back."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    compute: Any = pc
    weights = (pq.read_table(file, columns=[WEIGHT])[WEIGHT] for file in _data_files(folder))
    return all(compute.min(each).as_py() > 0 for each in weights if len(each))


def _typed(table: Table) -> list[Any]:
    from pyspark.sql import functions as f

    return [
        f.col(f"`{field.name.replace('`', '``')}`").cast(field.dataType).alias(field.name)
        for field in table.schema.fields
    ]


def weighted(rows: DataFrame, weight: int) -> DataFrame:
    """Return rows as changes of a weight."""
    from pyspark.sql import functions as f

    return rows.withColumn(WEIGHT, f.lit(weight).cast("long"))


def _summed(changes: DataFrame) -> DataFrame:
    """Return each row once, with the sum of its weights, where that is not 0."""
    from pyspark.sql import functions as f

    columns = [f.col(f"`{name.replace('`', '``')}`") for name in changes.columns if name != WEIGHT]
    return changes.groupBy(*columns).agg(f.sum(WEIGHT).alias(WEIGHT)).where(f.col(WEIGHT) != 0)


def _difference(before: DataFrame, now: DataFrame) -> DataFrame:
    return _summed(weighted(before, -1).unionByName(weighted(now, 1)))


def repeated(rows: DataFrame, copies: str = WEIGHT) -> DataFrame:
    """Return each row as often as an expression of its weight says, without the weight."""
    from pyspark.sql import functions as f

    names = [f"`{name.replace('`', '``')}`" for name in rows.columns if name != WEIGHT]
    several = f.array_repeat(f.lit(1), f.expr(copies).cast("int"))
    once, more = rows.where(f"{copies} = 1"), rows.where(f"{copies} > 1")
    return once.select(*names).unionByName(more.select(*names, f.explode(several)).select(*names))


def _data_files(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()] if folder.is_dir() else []


def rows_in(folder: Path) -> int:
    """Return the number of rows in a folder of Parquet files."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in _data_files(folder))


def take_over_tree(old: Path, new: Path) -> None:
    """Make a folder with second names of the files in `old`."""
    remove_folder(new)
    new.mkdir(parents=True)
    take_over_folder(old, new)


def take_over_folder_into(old: Path, new: Path) -> None:
    """Add second names of the files in `old` to a folder that has others."""
    for file in _data_files(old):
        at = new / file.relative_to(old)
        at.parent.mkdir(parents=True, exist_ok=True)
        take_over(file, at)
    sync_folder(new)
