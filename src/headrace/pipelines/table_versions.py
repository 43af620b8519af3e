"""Versions of a pipeline's table: reading the last one and the changes since earlier ones, writing the next.

The rows of a version, and what changed from the one before, are folders of files (`VersionFolders`). The next
version is made beside the last one and shares the files that stay; the catalogue then names it.

No user reads the rows of a shared part. So a row that is taken back stays in its file, and is in another one
with a negative weight; the files are written anew once such changes are half as many as the rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.expr.spark_columns import quoted
from headrace.file_system import (
    local_path,
    publish_folder,
    remove_folder,
    stage_beside,
    sync_file,
    sync_folder,
    take_over,
)
from headrace.pipelines import weighted_rows
from headrace.pipelines.catalog import PipelineCatalog, TableEntry
from headrace.pipelines.definitions import RESERVED
from headrace.pipelines.errors import CatalogDamaged, NeedsSpark, PipelineError, is_absent
from headrace.pipelines.graph import StoredTable, empty_frame, stored_schema
from headrace.pipelines.weighted_rows import (
    MAX_BYTES,
    WEIGHT,
    can_be_grouped,
    consolidate,
    difference,
    expand,
    holds_map,
    with_weight,
)
from headrace.state.chain import make_durable
from headrace.tables.version_folders import WEIGHT as SINK_WEIGHT
from headrace.tables.version_folders import data_files, row_count, share_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

FILE = f"{RESERVED}file"

MANY = 64
"""Small files of a table from which on they are merged."""

_SMALL, _LARGE = 1 << 23, 1 << 27
"""Bytes of a file that counts as small, and of one that small ones are merged into."""


@dataclass(frozen=True, slots=True)
class TableVersions:
    """Versions of a table at the current point of a run.

    entry: of its last version; None before the first.
    keeps_changes: whether somebody reads the changes of the next version.
    """

    catalog: PipelineCatalog
    table: StoredTable
    spark: SparkSession
    entry: TableEntry | None
    keeps_changes: bool = False

    def _rows_folder(self, version: int) -> Path:
        return self.catalog.rows(self.table.name).folder(version)

    def _changes_folder(self, version: int) -> Path:
        return self.catalog.changes(self.table.name).folder(version)

    @property
    def last(self) -> TableEntry:
        """Entry of the last version, which must exist."""
        assert self.entry is not None
        return self.entry

    # -- read -------------------------------------------------------------------------------------------

    def rows(self) -> DataFrame:
        """Return the rows of the last version. Raises `CatalogDamaged` if files are missing."""
        self._check_rows()
        return self._read(self.last.version)

    def _read(self, version: int, files: Collection[Path] | None = None) -> DataFrame:
        """Return the rows of a version, or those in some of its files."""
        schema, folder = stored_schema(self.table.schema), self._rows_folder(version)
        if not (data_files(folder) if files is None else files):
            return empty_frame(schema, self.spark)
        if self._weighted_files(version):
            return expand(consolidate(self.read_changes(folder)))
        reader = self.spark.read.schema(schema).format(self.table.dataset.format)
        reader = reader.option("basePath", f"file:{folder}")
        return reader.load([f"file:{each}" for each in ([folder] if files is None else files)])

    def _check_rows(self) -> None:
        """Raise `CatalogDamaged` if the last version's row count differs from the recorded one."""
        if self.entry is None or not self.entry.layout.startswith("parquet"):
            return
        folder = self._rows_folder(self.entry.version)
        if self._count(self.entry.version) != self.entry.rows:
            raise CatalogDamaged(
                f"{self.table.dataset.title} has lost rows: {folder} should hold {self.entry.rows:,}",
                fix="restore the storage from a backup, or recompute the table: "
                f"--full-refresh {self.table.dataset.made_with}",
                file=str(folder),
            )

    def _weighted_files(self, version: int) -> list[Path]:
        """Return the files of a version of a part whose rows have weights."""
        from headrace.pipelines.table_files import weighted_files

        return weighted_files(data_files(self._rows_folder(version))) if self.table.dataset.shared_by else []

    def has_project_layout(self, entry: TableEntry) -> bool:
        """Return whether a version has the columns and files that the table has in the project."""
        return entry.schema == self.table.schema.json() and entry.layout == self.table.layout

    @property
    def _comparable(self) -> TableEntry | None:
        """The last version, if its rows have the same columns and files."""
        return self.entry if self.entry is not None and self.has_project_layout(self.entry) else None

    def change_folders(self, before: int) -> list[Path] | None:
        """Return the folders of all changes since a version; None if some are no longer kept."""
        folders = [self._changes_folder(at) for at in range(before + 1, self.last.version + 1)]
        return folders if before <= self.last.version and all(map(Path.is_dir, folders)) else None

    def changes(self, before: int) -> DataFrame | None:
        """Return the weighted changes since a version; None if unknown."""
        folders = self.change_folders(before)
        if folders is None:
            return None
        whole = with_weight(empty_frame(self.table.schema, self.spark), 1)
        for folder in folders:
            whole = whole.unionByName(self.read_changes(folder))
        # A row may have come in one version and gone in a later one.
        return consolidate(whole) if len(folders) > 1 else whole

    def changes_here(self, before: int) -> pa.Table:
        """Return the weighted changes since a version as an Arrow table. Raises `NeedsSpark`."""
        import pyarrow as pa

        from headrace.pipelines.table_files import read_changes_file

        columns, folders = weighted_rows.comparable_schema(self.table.schema), self.change_folders(before)
        if columns is None or folders is None:
            raise NeedsSpark(f"what changed in {self.table.name} is not known, or cannot be compared")
        tables = [read_changes_file(file, columns) for folder in folders for file in data_files(folder)]
        none = weighted_rows.as_changes(columns.empty_table())
        whole = pa.concat_tables([none, *tables])
        # A row may have come in one version and gone in a later one.
        return weighted_rows.consolidate_arrow(whole) if len(folders) > 1 else whole

    def read_changes(self, folder: Path) -> DataFrame:
        """Return the rows of a folder of changes, with their weights and the types of the table."""
        from pyspark.sql import functions as f

        schema = stored_schema(self.table.schema).add(WEIGHT, "long")
        found = self.spark.read.schema(schema).parquet(f"file:{folder}")
        return found.withColumn(WEIGHT, f.coalesce(WEIGHT, f.lit(1).cast("long")))

    def read_ticks(self, folders: Sequence[Path]) -> DataFrame:
        """Return the changes in some ticks of the changelog of the table's flow."""
        import pyarrow.parquet as pq
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        first = next(file for folder in folders for file in data_files(folder))
        # A schema that is given saves the job by which Spark would find it.
        schema: Any = from_arrow_schema(pq.read_schema(first), prefer_timestamp_ntz=True)
        found = self.spark.read.schema(schema).parquet(*(f"file:{folder}" for folder in folders))
        fields = self.table.schema.fields
        typed = [f.col(quoted(each.name)).cast(each.dataType).alias(each.name) for each in fields]
        return found.select(*typed, f.col(SINK_WEIGHT).cast("long").alias(WEIGHT))

    def rows_like(self, some: pa.Table, columns: pa.Schema) -> pa.Table:
        """Return the rows of the last version that may equal one of `some`. Raises `NeedsSpark`."""
        version = self.last.version
        return self._rows_of_files(version, self._files_like(version, some, columns), columns)

    def _files_like(self, version: int, some: pa.Table, columns: pa.Schema) -> list[Path]:
        """Return the files of a version that may hold one of some rows. Raises `NeedsSpark`."""
        from headrace.pipelines.table_files import files_with_rows

        held, parts = self._rows_folder(version), self.table.dataset.partitioned_by
        found = files_with_rows(held, some, columns, parts)
        if is_absent(self.spark) and sum(file.stat().st_size for file in found) > MAX_BYTES:
            raise NeedsSpark(f"many files of {self.table.name} are to be read, or written anew")
        return found

    def _rows_of_files(self, version: int, files: Sequence[Path], columns: pa.Schema) -> pa.Table:
        import pyarrow as pa

        from headrace.pipelines.table_files import read_data_file

        held, parts = self._rows_folder(version), self.table.dataset.partitioned_by
        made = [read_data_file(held, file, columns, parts) for file in files]
        return pa.concat_tables([columns.empty_table(), *made])

    def rows_of_ticks(self, folders: Sequence[Path]) -> DataFrame:
        """Return the rows that the changes in all ticks of a changelog add up to."""
        changes = self.read_ticks(folders)
        least, most = _span_of_weights((file for each in folders for file in data_files(each)), SINK_WEIGHT)
        if least == most == 1:
            return changes.drop(WEIGHT)
        return expand(changes if least > 0 else consolidate(changes))

    def files(self) -> list[Path]:
        """Return the data files of the last version. Raises `CatalogDamaged` if files are missing."""
        self._check_rows()
        return data_files(self._rows_folder(self.last.version))

    def read_file(self, file: Path, columns: pa.Schema) -> pa.Table:
        """Read some columns of a data file of the last version in this process. Raises `NeedsSpark`."""
        from headrace.pipelines.table_files import read_data_file

        parts = self.table.dataset.partitioned_by
        return read_data_file(self._rows_folder(self.last.version), file, columns, parts)

    def collect(self, rows: DataFrame, columns: pa.Schema) -> pa.Table:
        """Collect rows with the columns of the table, which `columns` has for Arrow."""
        return self._conform(rows).toArrow().cast(columns)

    # -- write ------------------------------------------------------------------------------------------

    def replace(self, rows: DataFrame) -> int:
        """Write a version of exactly these rows; return its number, the old one if nothing differs."""
        before, version = self._comparable, self.catalog.new_version(self.table.name)
        self._write(self._conform(rows), self._rows_folder(version))
        if before is None or not can_be_grouped(self.table.schema):
            return version
        try:
            self._check_rows()
        except CatalogDamaged:
            return version  # It is replaced.
        if self.keeps_changes or self._count(version) == before.rows:
            folder = self._changes_folder(version)
            self._write(difference(self._read(before.version), self._read(version)), folder, "parquet")
            if not count_rows(folder):
                remove_folder(folder)
                remove_folder(self._rows_folder(version))
                return before.version
        return version

    def replace_part(self, rows: DataFrame, condition: str) -> int:
        """Write a version in which the rows that meet a condition are those of `rows` that do.

        condition: SQL over the columns of the table; null is not met. Return its number, like `append`.
        """
        from pyspark.sql import functions as f

        before, meets = self._comparable, f.coalesce(f.expr(condition), f.lit(False))
        assert before is not None
        self._check_rows()
        held, now = self._read(before.version), self._conform(rows).where(meets)
        if not can_be_grouped(self.table.schema):
            return self.replace(held.where(~meets).unionByName(now))
        return self.apply(difference(held.where(meets), now))

    def append(self, rows: DataFrame) -> int:
        """Write a version with more rows; return its number, the old one if there are none."""
        before, version = self._comparable, self.catalog.new_version(self.table.name)
        folder = self._rows_folder(version)
        self._write(self._conform(rows), folder)
        if before is None:
            return version
        if not self._has_rows(folder):
            remove_folder(folder)
            return before.version
        self._check_rows()
        if self.keeps_changes:
            self._keep_as_changes(version)
        self._take_over(before.version, folder)
        return version

    def extend(self, rows: DataFrame) -> int:
        """Write a version with rows appended, and possibly new columns, null in the earlier rows.

        Raises `PipelineError` for other differences between the rows before and these.
        """
        assert self.entry is not None
        was, version = self._with_new_columns(self.entry), self.catalog.new_version(self.table.name)
        added = self._changes_folder(version)
        self._write(with_weight(self._conform(rows), 1), added, "parquet")
        whole = was.unionByName(self.read_changes(added).drop(WEIGHT))
        self._write(self._conform(whole), self._rows_folder(version))
        return version

    def _with_new_columns(self, before: TableEntry) -> DataFrame:
        """Return the rows of the last version, with nulls in columns that are new."""
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
        held = self.spark.read.schema(stored_schema(schema)).format(self.table.dataset.format)
        rows = held.load(f"file:{self._rows_folder(before.version)}")
        columns = [
            f.col(quoted(each.name))
            if each.name in types
            else f.lit(None).cast(each.dataType).alias(each.name)
            for each in self.table.schema.fields
        ]
        return rows.select(*columns)

    def _keep_as_changes(self, version: int) -> None:
        """Store the rows of a version, so far only the added ones, as its changes."""
        rows, changed = self._rows_folder(version), self._changes_folder(version)
        if self.table.layout == "parquet":
            share_files(data_files(rows), rows, changed)
        else:
            self._write(with_weight(self._read(version), 1), changed, "parquet")

    def apply_ticks(self, ticks: Sequence[Path]) -> int:
        """Write a version with the changes in changelog ticks applied; return its number, like `append`."""
        few = weighted_rows
        columns = few.comparable_schema(self.table.schema)
        here = is_absent(self.spark)
        if columns is None or self._comparable is None or self.table.dataset.format != "parquet":
            return self.apply(self.read_ticks(ticks))
        if not here and (self.table.layout != "parquet" or sum(map(count_rows, ticks)) > few.FEW):
            return self.apply(self.read_ticks(ticks))
        return self.apply_here(few.read_ticks(ticks, columns), columns)

    def apply_tick(self, changes: pa.Table) -> int:
        """Write a version with the changes of a flow's tick applied in this process, like `append`.

        changes: with the weights of a changelog. Raises `NeedsSpark`.
        """
        columns = weighted_rows.comparable_schema(self.table.schema)
        if columns is None or self._comparable is None or self.table.dataset.format != "parquet":
            raise NeedsSpark("its rows cannot be compared here, or its files have another form")
        return self.apply_here(weighted_rows.changes_of_tick(changes, columns), columns)

    def apply_here(self, changes: pa.Table, columns: pa.Schema) -> int:
        """Write a version with few consolidated changes applied in this process, like `append`."""
        before, few = self._comparable, weighted_rows
        assert before is not None
        changes = few.without_empty_texts(changes, self.table.dataset.partitioned_by)
        if not len(changes):
            return before.version
        self._check_rows()
        version = self.catalog.new_version(self.table.name)
        folder, changed = self._rows_folder(version), self._changes_folder(version)
        added = few.expand_arrow(changes)
        made = write_table(changes, changed) if self.keeps_changes else []
        if added is not None:
            made += write_table(added, folder, self.table.dataset.partitioned_by)
            self._take_over(before.version, folder, durable=False)
        elif self._keeps_removed(before, len(changes)):
            made += write_table(changes, folder)
            self._take_over(before.version, folder, durable=False)
        elif self.table.dataset.shared_by:
            made += self._rewrite_part(before, version, changes, columns)
        else:
            made += self._rewrite_here(before, version, changes, columns)
        # Nobody reads the version before the catalogue names it: all of it is synced at once, side by side.
        make_durable({*made, *(each for made_in in (folder, changed) for each in _folders_in(made_in))})
        return version

    def _keeps_removed(self, before: TableEntry, changes: int) -> bool:
        """Return whether rows that are taken back stay in the files of a part."""
        if not self.table.dataset.shared_by:
            return False
        held = self._rows_folder(before.version)
        weighted = changes + sum(map(row_count, self._weighted_files(before.version)))
        large = sum(file.stat().st_size for file in data_files(held)) > MAX_BYTES
        return weighted <= max(before.rows // 2, MANY) or (large and is_absent(self.spark))

    def _rewrite_here(
        self, before: TableEntry, version: int, changes: pa.Table, columns: pa.Schema
    ) -> list[Path]:
        """Write a version by applying changes to the previous one, see `_rewrite`; return its new files."""
        import pyarrow as pa
        import pyarrow.compute as pc

        compute: Any = pc
        removed = changes.filter(compute.less(changes[WEIGHT], 0))
        anew = self._files_like(before.version, removed, columns)
        rows = self._rows_of_files(before.version, anew, columns)
        stay, touched = weighted_rows.split_by_rows(rows, removed)
        made = self._expanded(pa.concat_tables([changes, weighted_rows.as_changes(touched)]))
        folder = self._rows_folder(version)
        written = write_table(pa.concat_tables([stay, made]), folder, self.table.dataset.partitioned_by)
        self._take_over(before.version, folder, without=frozenset(anew), durable=False)
        return written

    def _rewrite_part(
        self, before: TableEntry, version: int, changes: pa.Table, columns: pa.Schema
    ) -> list[Path]:
        """Write a version of a part by applying changes to all rows of the previous one; return its files."""
        import pyarrow as pa

        from headrace.pipelines.table_files import read_changes_file

        files = data_files(self._rows_folder(before.version))
        rows = [read_changes_file(file, columns) for file in files]
        return write_table(self._expanded(pa.concat_tables([changes, *rows])), self._rows_folder(version))

    def _expanded(self, changes: pa.Table) -> pa.Table:
        """Return the rows that changes add up to. Raises `PipelineError` for a negative number of one."""
        expanded = weighted_rows.expand_arrow(weighted_rows.consolidate_arrow(changes))
        if expanded is None:
            raise PipelineError(
                f"{self.table.dataset.title} does not hold rows that are taken back",
                where=[self.table.dataset.location],
                why="Its query answers otherwise than when they came.",
                fix=f"make it anew: --full-refresh {self.table.dataset.made_with}",
            )
        return expanded

    def _rewrite(self, before: TableEntry, version: int) -> None:
        """Write a version by applying its changes to the previous one.

        Files that hold a row that is taken back are written anew; the version shares the others.
        """
        self._check_rows()
        folder, made = self._rows_folder(version), self.read_changes(self._changes_folder(version))
        if self.table.dataset.shared_by:
            anew = frozenset(data_files(self._rows_folder(before.version)))
            was = self.read_changes(self._rows_folder(before.version))
        else:
            anew = self._files_of(before.version, made.where(f"{WEIGHT} < 0"))
            was = with_weight(self._read(before.version, anew), 1)
        self._write(self._conform(expand(consolidate(was.unionByName(made)))), folder)
        self._take_over(before.version, folder, without=anew)

    def _files_of(self, version: int, rows: DataFrame) -> frozenset[Path]:
        """Return the files of a version that hold a copy of one of the rows."""
        from pyspark.sql import functions as f

        held, files = self._read(version), frozenset(data_files(self._rows_folder(version)))
        if holds_map(self.table.schema):  # Spark compares maps in groups only.
            return files
        same = [held[quoted(name)].eqNullSafe(rows[quoted(name)]) for name in self.table.schema.fieldNames()]
        where = held.withColumn(FILE, f.col("_metadata.file_path")).join(rows, same, "left_semi")
        found = {Path(local_path(row[FILE], "rows")) for row in where.select(FILE).distinct().collect()}
        return files & found if found <= files else files

    def apply(self, changes: DataFrame) -> int:
        """Write a version with weighted changes applied; return its number, like `append`."""
        before, version = self._comparable, self.catalog.new_version(self.table.name)
        assert before is not None
        changed, rows = self._changes_folder(version), self._rows_folder(version)
        self._write(consolidate(self._conform(changes, WEIGHT)), changed, "parquet")
        if not count_rows(changed):
            remove_folder(changed)
            return before.version
        if adds_only(changed):
            self._write(self._conform(expand(self.read_changes(changed))), rows)
            self._take_over(before.version, rows)
        elif self._keeps_removed(before, count_rows(changed)):
            self._check_rows()
            share_files(data_files(changed), changed, rows)
            self._take_over(before.version, rows)
        else:
            self._rewrite(before, version)
        if not self.keeps_changes:
            remove_folder(changed)
        return version

    def count(self, version: int) -> int:
        """Return the number of rows of a version."""
        if self.entry is not None and self.entry.version == version:
            return self.entry.rows
        return self._count(version)

    def _count(self, version: int) -> int:
        folder = self._rows_folder(version)
        if self._weighted_files(version):
            return sum(_weights_in(file) for file in data_files(folder))
        if self.table.dataset.format == "parquet":
            return count_rows(folder)
        return self._read(version).count() if data_files(folder) else 0

    def _has_rows(self, folder: Path) -> bool:
        if self.table.dataset.format == "parquet":
            return count_rows(folder) > 0
        return any(file.stat().st_size for file in data_files(folder))

    def _conform(self, rows: DataFrame, *further: str) -> DataFrame:
        """Conform rows to the columns of the table, with its column order and types."""
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

    def _take_over(
        self, version: int, folder: Path, without: frozenset[Path] = frozenset(), *, durable: bool = True
    ) -> None:
        """Add files of a version to a folder that has others; many small ones are merged."""
        held = self._rows_folder(version)
        kept = [file for file in data_files(held) if file not in without]
        small = [file for file in kept if file.stat().st_size < _SMALL]
        if len(small) < MANY or self.table.layout != "parquet":
            share_files(kept, held, folder, durable=durable)
            return
        merged = folder.with_name(f".{folder.name}.merged")
        if is_absent(self.spark) or self.table.dataset.shared_by:
            columns = weighted_rows.comparable_schema(self.table.schema)
            if columns is None:
                share_files(kept, held, folder, durable=durable)
                return
            import pyarrow as pa

            from headrace.pipelines.table_files import read_changes_file

            # They are a few hundred megabytes at most.
            changes = pa.concat_tables([read_changes_file(file, columns) for file in small])
            if self.table.dataset.shared_by:
                changes = weighted_rows.consolidate_arrow(changes)
            rows = weighted_rows.expand_arrow(changes)
            make_durable(write_table(changes if rows is None else rows, merged))
        else:
            self._merge_by_spark(small, merged)
        for file in {*kept} - {*small} | {*data_files(merged)}:
            take_over(file, folder / file.name)
        sync_folder(folder)
        remove_folder(merged)

    def _merge_by_spark(self, small: Sequence[Path], merged: Path) -> None:
        rows = self.spark.read.schema(stored_schema(self.table.schema)).parquet(
            *(f"file:{file}" for file in small)
        )
        parts = 1 + sum(file.stat().st_size for file in small) // _LARGE
        self._write(rows.coalesce(parts), merged)

    def _write(self, rows: DataFrame, folder: Path, form: str | None = None) -> None:
        writer = rows.write.format(form or self.table.dataset.format)
        if form is None and self.table.dataset.partitioned_by:
            writer = writer.partitionBy(*self.table.dataset.partitioned_by)
        save(writer, folder)


def save(writer: DataFrameWriter, folder: Path) -> None:
    """Write a folder of files atomically, without Spark's marker files."""
    staged = stage_beside(folder)
    writer.save(f"file:{staged}")
    _publish(staged, folder)


def write_table(
    rows: pa.Table, folder: Path, partitioned_by: Sequence[str] = (), *, durable: bool = False
) -> list[Path]:
    """Write rows to a folder of files. Return these; `make_durable` before the catalogue names them.

    durable: whether the folder appears once they are.
    """
    import pyarrow.parquet as pq

    from headrace.pipelines.table_files import parts_of

    staged = stage_beside(folder)
    staged.mkdir()
    written: list[Path] = []
    for at, part in parts_of(rows, partitioned_by):
        (staged / at).mkdir(parents=True, exist_ok=True)
        name = f"part-{uuid4()}.parquet"
        pq.write_table(part, staged / at / name, compression="zstd")
        written.append(folder / at / name)
    if durable:
        _publish(staged, folder)
    else:
        publish_folder(staged, folder, durable=False)
    return written


def _folders_in(folder: Path) -> set[Path]:
    """Return a folder, if it is there, and the folders of partitions in it."""
    return {Path(at) for at, _, _ in os.walk(folder)}


def _publish(staged: Path, folder: Path) -> None:
    for file in list(staged.rglob("*")):
        if file.is_file() and (file.name.startswith(("_", "."))):
            file.unlink()
        elif file.is_file():
            sync_file(file)
    publish_folder(staged, folder)


def adds_only(folder: Path) -> bool:
    """Return whether a folder of changes has no retractions."""
    return _span_of_weights(data_files(folder), WEIGHT)[0] > 0


def _span_of_weights(files: Iterable[Path], column: str) -> tuple[int, int]:
    """Return the least and the largest weight in files of changes; one of rows without a weight is 1."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    compute: Any = pc
    found = set[int]()
    for file in files:
        held = pq.ParquetFile(file)
        if not held.metadata.num_rows:
            continue
        if column not in held.schema_arrow.names:
            found.add(1)
            continue
        span = compute.min_max(compute.fill_null(held.read([column])[column], 1)).as_py()
        found |= {span["min"], span["max"]}
    return min(found, default=1), max(found, default=1)


def _weights_in(file: Path) -> int:
    """Return the sum of the weights of a file's rows."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    compute: Any = pc
    held = pq.ParquetFile(file)
    if WEIGHT not in held.schema_arrow.names:
        return held.metadata.num_rows
    return compute.sum(compute.fill_null(held.read([WEIGHT])[WEIGHT], 1)).as_py() or 0


def count_rows(folder: Path) -> int:
    """Return the number of rows in a folder of Parquet files."""
    try:
        return sum(map(row_count, data_files(folder)))
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these kinds
        raise CatalogDamaged(
            f"files in {folder} cannot be read",
            why=f"{error}.",
            fix="restore the storage from a backup, or recompute the table: --full-refresh",
            file=str(folder),
        ) from None
