"""Versions of a table as folders of files: made beside the one before, of which they share what stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.expr.spark_columns import quoted
from headrace.io.delivery.atomic_files import (
    move_folder,
    remove_folder,
    sync_file,
    sync_folder,
    take_over,
)
from headrace.io.source import WEIGHT as SINK_WEIGHT
from headrace.path_or_url import local_path
from headrace.pipelines import small_changes
from headrace.pipelines.catalog import Catalog, TableEntry
from headrace.pipelines.definitions import RESERVED
from headrace.pipelines.errors import CatalogDamaged, PipelineError
from headrace.pipelines.graph import Table, as_stored, no_rows
from headrace.pipelines.map_entries import holds_map, with_entries, with_maps
from headrace.pipelines.snapshots import can_be_grouped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import DataType

WEIGHT = f"{RESERVED}weight"
"""Column of changes: how many more of a row there are."""

COPY = f"{RESERVED}copy"
FILE = f"{RESERVED}file"

MANY = 64
"""Small files of a table from which on they are merged."""

_SMALL, _LARGE = 1 << 23, 1 << 27
"""Bytes of a file that counts as small, and of one that small ones are merged into."""


@dataclass(frozen=True, slots=True)
class VersionWriter:
    """Writer of the next version of a table.

    keeps_changes: whether some table reads the changes of this one.
    """

    catalog: Catalog
    table: Table
    spark: SparkSession
    keeps_changes: bool

    @property
    def _before(self) -> TableEntry | None:
        return self.catalog.entries.get(self.table.name)

    @property
    def _comparable(self) -> TableEntry | None:
        """The entry of the version before, if its rows have the same columns and files."""
        before = self._before
        if before is None or before.schema != self.table.schema.json() or before.layout != self.table.layout:
            return None
        return before

    def _check_rows(self) -> None:
        """Raise `CatalogDamaged` if files of the version before are missing."""
        before = self._before
        if before is not None:
            check_rows(self.catalog, self.table, before)

    def _is_damaged(self, before: TableEntry) -> bool:
        try:
            check_rows(self.catalog, self.table, before)
        except CatalogDamaged:
            return True
        return False

    def frame(self, version: int) -> DataFrame:
        """Rows of a version."""
        self._check_rows()
        return read_rows(self.catalog.rows(self.table.name, version), self.table, self.spark)

    def replace(self, rows: DataFrame) -> int:
        """Write a version of exactly these rows; return its number, the old one if nothing differs."""
        name, before = self.table.name, self._comparable
        version = self.catalog.new_version(name)
        self._write(self._ordered(rows), self.catalog.rows(name, version))
        if before is None or not can_be_grouped(self.table.schema) or self._is_damaged(before):
            return version
        if self.keeps_changes or self._count(version) == before.rows:
            changes = difference(self.frame(before.version), self.frame(version))
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
        self._check_rows()
        if self.keeps_changes:
            self._keep_added(version)
        self._take_over(before.version, folder)
        return version

    def extend(self, rows: DataFrame) -> int:
        """Write a version with more rows, and columns of which the rows before have no values.

        Raises `PipelineError` for other differences between the rows before and these.
        """
        name, before = self.table.name, self._before
        assert before is not None
        was = self._extended(before)
        version = self.catalog.new_version(name)
        added = self.catalog.changes(name, version)
        self._write(weighted(self._ordered(rows), 1), added, "parquet")
        whole = was.unionByName(read_changes(added, self.table, self.spark).drop(WEIGHT))
        self._write(self._ordered(whole), self.catalog.rows(name, version))
        return version

    def _extended(self, before: TableEntry) -> DataFrame:
        """Return the rows before, with nulls in columns that are new."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(before.schema))
        types = {field.name: field.dataType for field in schema.fields}
        other = [f.name for f in self.table.schema.fields if types.get(f.name, f.dataType) != f.dataType]
        if before.layout != self.table.layout or other:
            raise PipelineError(
                f"{self.table.name} holds rows of another form"
                + (f": {', '.join(other)}" if other else ", format or partitioning"),
                where=[self.table.dataset.location],
                why="What a streaming table holds stays; columns may be added and left out.",
                fix=f"undo the change, or reread its inputs: --full-refresh {self.table.name}",
            )
        held = self.spark.read.schema(as_stored(schema)).format(self.table.dataset.format)
        rows = held.load(f"file:{self.catalog.rows(self.table.name, before.version)}")
        columns = [
            f.col(quoted(each.name))
            if each.name in types
            else f.lit(None).cast(each.dataType).alias(each.name)
            for each in self.table.schema.fields
        ]
        return rows.select(*columns)

    def _keep_added(self, version: int) -> None:
        """Keep the rows of a version, so far only those added, as its changes."""
        rows, changed = (
            self.catalog.rows(self.table.name, version),
            self.catalog.changes(self.table.name, version),
        )
        if self.table.layout == "parquet":
            take_over_files(_data_files(rows), rows, changed)
        else:
            self._write(weighted(self.frame(version), 1), changed, "parquet")

    def replace_by_changes(self, changes: DataFrame) -> int:
        """Write a version of exactly the rows that changes from nothing make."""
        return self.replace(repeated(summed(changes)))

    def apply_ticks(self, ticks: Sequence[Path]) -> int:
        """Write a version with the changes in ticks of a changelog; return its number, as `append` does."""
        columns = small_changes.arrow_schema(self.table.schema) if self.table.layout == "parquet" else None
        if columns is None or sum(map(rows_in, ticks)) > small_changes.FEW or self._comparable is None:
            return self.apply(read_sink(ticks, self.table, self.spark))
        return self._apply_here(small_changes.changes_of_ticks(ticks, columns, WEIGHT), columns)

    def _apply_here(self, changes: pa.Table, columns: pa.Schema) -> int:
        name, before = self.table.name, self._comparable
        assert before is not None
        if not len(changes):
            return before.version
        self._check_rows()
        version, held = self.catalog.new_version(name), self.catalog.rows(name, before.version)
        folder = self.catalog.rows(name, version)
        added = small_changes.rows_of(changes, WEIGHT)
        self._write_table(changes, self.catalog.changes(name, version))
        if added is None and before.rows > small_changes.FEW:
            self._rewrite(before, version)
        elif added is None:
            whole = small_changes.rows_of(small_changes.with_rows(changes, held, columns, WEIGHT), WEIGHT)
            if whole is None:
                raise not_held(self.table)
            self._write_table(whole, folder)
        else:
            self._write_table(added, folder)
            self._take_over(before.version, folder)
        if not self.keeps_changes:
            remove_folder(self.catalog.changes(name, version))
        return version

    def _rewrite(self, before: TableEntry, version: int) -> None:
        """Write the version before with the changes of this one.

        Files that hold a row that is taken back are written anew; the version shares the others.
        """
        self._check_rows()
        folder = self.catalog.rows(self.table.name, version)
        made = read_changes(self.catalog.changes(self.table.name, version), self.table, self.spark)
        anew = self._files_of(before.version, made.where(f"{WEIGHT} < 0"))
        was = read_rows(self.catalog.rows(self.table.name, before.version), self.table, self.spark, anew)
        self._write(self._ordered(repeated(summed(weighted(was, 1).unionByName(made)))), folder)
        self._take_over(before.version, folder, without=anew)

    def _files_of(self, version: int, rows: DataFrame) -> frozenset[Path]:
        """Return the files of a version that hold a copy of one of the rows."""
        from pyspark.sql import functions as f

        held = self.frame(version)
        files = frozenset(_data_files(self.catalog.rows(self.table.name, version)))
        if holds_map(self.table.schema):  # Spark compares maps in groups only.
            return files
        same = [held[quoted(name)].eqNullSafe(rows[quoted(name)]) for name in self.table.schema.fieldNames()]
        where = held.withColumn(FILE, f.col("_metadata.file_path")).join(rows, same, "left_semi")
        found = {Path(local_path(row[FILE], "rows")) for row in where.select(FILE).distinct().collect()}
        return files & found if found <= files else files

    def _write_table(self, rows: pa.Table, folder: Path) -> None:
        import pyarrow.parquet as pq

        aside = _aside(folder)
        aside.mkdir(parents=True)
        pq.write_table(rows, aside / f"part-{uuid4()}.parquet")
        _publish(aside, folder)

    def apply(self, changes: DataFrame) -> int:
        """Write a version with changes, which have a weight each; return its number, as `append` does."""
        name, before = self.table.name, self._comparable
        assert before is not None
        version = self.catalog.new_version(name)
        changed, rows = self.catalog.changes(name, version), self.catalog.rows(name, version)
        ordered = self._ordered(changes, WEIGHT)
        self._write(summed(ordered), changed, "parquet")
        if not rows_in(changed):
            remove_folder(changed)
            return before.version
        if adds_only(changed):
            made = read_changes(changed, self.table, self.spark)
            self._write(self._ordered(repeated(made)), rows)
            self._take_over(before.version, rows)
        else:
            self._rewrite(before, version)
        if not self.keeps_changes:
            remove_folder(changed)
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

    def _ordered(self, rows: DataFrame, *further: str) -> DataFrame:
        """Return rows with the columns of the table, in its order and of its types, and further ones."""
        from pyspark.sql import functions as f

        found = {field.name: field.dataType for field in rows.schema.fields}
        columns: list[Any] = []
        for field in self.table.schema.fields:
            column: Any = f.col(quoted(field.name))
            if found[field.name] != field.dataType:
                column = column.cast(field.dataType)
            if field.name in self.table.dataset.partitioned_by and field.dataType.typeName() == "string":
                column = f.nullif(column, f.lit(""))  # A folder has no name for it: Spark reads null.
            column = column.alias(field.name)
            columns.append(column)
        return rows.select(*columns, *further)

    def _take_over(self, version: int, folder: Path, without: frozenset[Path] = frozenset()) -> None:
        """Add files of a version to a folder that has others; many small ones are merged."""
        held = self.catalog.rows(self.table.name, version)
        kept = [file for file in _data_files(held) if file not in without]
        small = [file for file in kept if file.stat().st_size < _SMALL]
        if len(small) < MANY or self.table.layout != "parquet":
            take_over_files(kept, held, folder)
            return
        merged = folder.with_name(f".{folder.name}.merged")
        rows = self.spark.read.schema(as_stored(self.table.schema)).parquet(
            *(f"file:{file}" for file in small)
        )
        parts = 1 + sum(file.stat().st_size for file in small) // _LARGE
        self._write(rows.coalesce(parts), merged)
        for file in {*kept} - {*small} | {*_data_files(merged)}:
            take_over(file, folder / file.name)
        sync_folder(folder)
        remove_folder(merged)

    def _write(self, rows: DataFrame, folder: Path, form: str | None = None) -> None:
        writer = rows.write.format(form or self.table.dataset.format)
        if form is None and self.table.dataset.partitioned_by:
            writer = writer.partitionBy(*self.table.dataset.partitioned_by)
        save(writer, folder)


def save(writer: DataFrameWriter, folder: Path) -> None:
    """Write a folder of files that is there as a whole or not at all, without the marks that Spark leaves."""
    aside = _aside(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    writer.save(f"file:{aside}")
    _publish(aside, folder)


def _aside(folder: Path) -> Path:
    aside = folder.with_name(f".{folder.name}.tmp")
    remove_folder(aside)
    return aside


def _publish(aside: Path, folder: Path) -> None:
    """Give a finished folder its name."""
    for file in list(aside.rglob("*")):
        if file.is_file() and (file.name.startswith(("_", "."))):
            file.unlink()
        elif file.is_file():
            sync_file(file)
    remove_folder(folder)
    move_folder(aside, folder, durable=True)


def check_rows(catalog: Catalog, table: Table, entry: TableEntry) -> None:
    """Raise `CatalogDamaged` if a version has other rows than it was written with."""
    folder = catalog.rows(table.name, entry.version)
    if entry.layout.startswith("parquet") and rows_in(folder) != entry.rows:
        raise CatalogDamaged(
            f"{table.name} has lost rows: {folder} should hold {entry.rows:,}",
            fix=f"restore the storage from a backup, or recompute the table: --full-refresh {table.name}",
            file=str(folder),
        )


def read_rows(
    folder: Path, table: Table, spark: SparkSession, files: Collection[Path] | None = None
) -> DataFrame:
    """Return the rows of a version's folder, or of some of its files."""
    schema = as_stored(table.schema)
    if not (_data_files(folder) if files is None else files):
        return no_rows(schema, spark)
    reader = spark.read.schema(schema).format(table.dataset.format).option("basePath", f"file:{folder}")
    return reader.load([f"file:{each}" for each in ([folder] if files is None else files)])


def read_changes(folder: Path, table: Table, spark: SparkSession) -> DataFrame:
    """Return the rows of a folder of changes, with their weights and the types of the table."""
    from pyspark.sql import functions as f

    schema = as_stored(table.schema).add(WEIGHT, "long")
    found = spark.read.schema(schema).parquet(f"file:{folder}")
    return found.withColumn(WEIGHT, f.coalesce(WEIGHT, f.lit(1).cast("long")))


def read_sink(folders: Sequence[Path], table: Table, spark: SparkSession) -> DataFrame:
    """Return the changes in some ticks of a flow's changelog."""
    import pyarrow.parquet as pq
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    first = next(file for folder in folders for file in _data_files(folder))
    # A schema that is given saves the job by which Spark would find it.
    schema: Any = from_arrow_schema(pq.read_schema(first), prefer_timestamp_ntz=True)
    found = spark.read.schema(schema).parquet(*(f"file:{folder}" for folder in folders))
    return found.select(*_typed(table), f.col(SINK_WEIGHT).cast("long").alias(WEIGHT))


def adds_only(folder: Path) -> bool:
    """Return whether a folder of changes takes no row back."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    compute: Any = pc
    files = [file for file in _data_files(folder) if WEIGHT in pq.read_schema(file).names]
    weights = (pq.ParquetFile(file).read([WEIGHT])[WEIGHT] for file in files)
    return all(compute.min(each).as_py() > 0 for each in weights if len(each))


def has_removals(changes: DataFrame) -> bool:
    """Return whether changes take rows back, by computing them."""
    return not changes.where(f"{WEIGHT} < 0").isEmpty()


def not_held(table: Table) -> PipelineError:
    return PipelineError(
        f"{table.name} does not hold rows that are taken back",
        where=[table.dataset.location],
        why="Its query answers otherwise than when they came.",
        fix=f"make it anew: --full-refresh {table.name}",
    )


def _typed(table: Table) -> list[Any]:
    from pyspark.sql import functions as f

    return [f.col(quoted(field.name)).cast(field.dataType).alias(field.name) for field in table.schema.fields]


def weighted(rows: DataFrame, weight: int) -> DataFrame:
    """Return rows as changes of a weight."""
    from pyspark.sql import functions as f

    return rows.withColumn(WEIGHT, f.lit(weight).cast("long"))


def summed(changes: DataFrame) -> DataFrame:
    """Return each row once, with the sum of its weights, where that is not 0."""
    from pyspark.sql import functions as f

    fields = [field for field in changes.schema.fields if field.name != WEIGHT]

    def columns(form: Callable[[Column, DataType], Column]) -> list[Column]:
        return [form(f.col(quoted(each.name)), each.dataType).alias(each.name) for each in fields]

    maps = any(holds_map(each.dataType) for each in fields)
    rows = changes.select(*columns(with_entries), WEIGHT) if maps else changes
    names = [quoted(each.name) for each in fields]
    found = rows.groupBy(*names).agg(f.sum(WEIGHT).alias(WEIGHT)).where(f.col(WEIGHT) != 0)
    return found.select(*columns(with_maps), WEIGHT) if maps else found


def difference(before: DataFrame, now: DataFrame) -> DataFrame:
    return summed(weighted(before, -1).unionByName(weighted(now, 1)))


def repeated(rows: DataFrame, copies: str = WEIGHT) -> DataFrame:
    """Return each row as often as an expression of its weight says, without the weight."""
    from pyspark.sql import functions as f

    names = [quoted(name) for name in rows.columns if name != WEIGHT]
    below = f.raise_error(f.lit("rows are taken back that the table does not hold: --full-refresh"))
    count = f.when(f.expr(copies) < 0, below).otherwise(f.expr(copies)).cast("int")
    once, others = rows.where(f"{copies} = 1"), rows.where(f"{copies} <> 1")
    several = others.select(*names, f.explode(f.array_repeat(f.lit(1), count)).alias(COPY))
    return once.select(*names).unionByName(several.select(*names))


def _data_files(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()] if folder.is_dir() else []


def rows_in(folder: Path) -> int:
    """Return the number of rows in a folder of Parquet files."""
    import pyarrow.parquet as pq

    try:
        return sum(pq.read_metadata(file).num_rows for file in _data_files(folder))
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these kinds
        raise CatalogDamaged(
            f"files in {folder} cannot be read",
            why=f"{error}.",
            fix="restore the storage from a backup, or recompute the table: --full-refresh",
            file=str(folder),
        ) from None


def take_over_files(files: Iterable[Path], old: Path, new: Path) -> None:
    """Add second names of files of the folder `old` to a folder that has others."""
    for file in files:
        at = new / file.relative_to(old)
        at.parent.mkdir(parents=True, exist_ok=True)
        take_over(file, at)
    for folder in {file.parent for file in new.rglob("*")}:
        sync_folder(folder)
