"""Inputs of queries as a run reads them: one interface for tables of the pipeline, files and Delta tables.

A new kind of input, or a new table format, is a leaf of `leaves` and one subclass of `RunInput`. Of Delta
tables, versions are pinned, and rows and the changes between two versions are read.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.errors import UnreadableSource
from headrace.expr.spark_columns import quoted
from headrace.pipelines.catalog import Position
from headrace.pipelines.definitions import RESERVED
from headrace.pipelines.delta_source import delta_table, reporting_version, rows_of_version, spark_schema
from headrace.pipelines.errors import NeedsSpark, PipelineError
from headrace.pipelines.graph import StoredTable, empty_frame
from headrace.pipelines.leaves import (
    ConstantLeaf,
    DeltaLeaf,
    Leaf,
    TableLeaf,
    spark_columns,
)
from headrace.pipelines.table_versions import TableVersions, adds_only, count_rows
from headrace.pipelines.weighted_rows import (
    WEIGHT,
    as_changes,
    consolidate,
    consolidate_arrow,
    expand,
    expand_arrow,
    has_removals,
    with_weight,
)
from headrace.queries.plan_details import frame_of_plan, java_class
from headrace.tables.version_folders import data_files, row_count_of_files
from headrace.tables.versioned_table import (
    CHANGE_TYPE,
    CHANGE_WEIGHTS,
    ChangedFiles,
    DataFile,
    TableVersion,
    VersionedTable,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

L = TypeVar("L", bound=Leaf)


@dataclass(frozen=True, slots=True)
class RunInput(ABC, Generic[L]):
    """An input of a query, as all tables of one run read it. Methods may raise `PipelineError`.

    Each kind has positions of a type of its own; a position of another type counts as unknown.
    """

    leaf: L
    spark: SparkSession

    def position(self) -> Position | None:
        """Return the end position of the input in this run; None if unknown."""
        return None

    @abstractmethod
    def whole(self) -> DataFrame:
        """Return all rows."""

    def changes(self, before: Position | None) -> DataFrame | None:
        """Return the weighted changes since a position; None if unknown."""
        return None

    def adds_only(self, before: Position | None) -> bool:
        """Return whether the changes since a position are known to be append-only, without computing them."""
        return True

    def why_unknown(self, before: Position | None) -> str:
        """Return why the changes since a position are unknown."""
        return f"{self.leaf.key} {'was not read before' if before is None else 'has changed'}"

    def is_unchanged(self, before: Position | None) -> bool:
        """Return whether the input is known to be unchanged since a position."""
        return before is not None and before == self.position()

    def rows_changed(self, before: Position | None) -> int | None:
        """Return the number of rows changed since a position, or of all rows, once an update has read them.

        None where that is not known.
        """
        return None

    def has_retractions(self, before: Position | None, changes: DataFrame) -> bool:
        """Return whether the changes since a position include retractions."""
        return not self.adds_only(before) and has_removals(changes)

    def changes_here(self, before: Position | None) -> pa.Table:
        """Return the weighted changes since a position, read in this process. Raises `NeedsSpark`."""
        raise NeedsSpark(f"Spark reads {self.leaf.key}")

    def bytes_changed(self, before: Position | None) -> int:
        """Return the size of the files that hold the changes since a position; 0 where there are none."""
        return 0

    def unread_here(self, before: Position | None, table: StoredTable) -> pa.Table:
        """Return the rows since a position for a stream, like `unread`.

        Raises `NeedsSpark`, also for rows that were taken back.
        """
        changes = self.changes_here(before)
        rows = expand_arrow(changes)
        if rows is None:
            raise NeedsSpark(f"{self.leaf.key} has taken rows back")
        return rows

    def unread(self, before: Position | None, table: StoredTable) -> DataFrame:
        """Return the rows since a position, all if None, for a stream into `table`.

        Raises `PipelineError` if rows that it has read were taken back.
        """
        if before is None:
            return self.whole()
        changes = self.changes(before)
        if changes is None or self.has_retractions(before, changes):
            raise PipelineError(
                f"{self.leaf.key} has taken rows back, which a stream into {table.name} has read",
                where=[table.dataset.location],
                why="What a streaming table holds stays.",
                fix=f"make it a materialized view, or reread its inputs: --full-refresh {table.name}",
            )
        return expand(changes)


@dataclass(frozen=True, slots=True)
class TableInput(RunInput[TableLeaf]):
    """A table of the pipeline, at its last version. Positions are numbers of versions."""

    versions: TableVersions

    def position(self) -> int:
        return self.versions.last.version

    def whole(self) -> DataFrame:
        return self.versions.rows()

    def changes(self, before: Position | None) -> DataFrame | None:
        return self.versions.changes(before) if isinstance(before, int) else None

    def bytes_changed(self, before: Position | None) -> int:
        folders = self.versions.change_folders(before) if isinstance(before, int) else None
        return sum(file.stat().st_size for folder in folders or () for file in data_files(folder))

    def changes_here(self, before: Position | None) -> pa.Table:
        if not isinstance(before, int):
            raise NeedsSpark(f"{self.leaf.key} was not read before")
        return self.versions.changes_here(before)

    def adds_only(self, before: Position | None) -> bool:
        return not isinstance(before, int) or all(map(adds_only, self.versions.change_folders(before) or ()))

    def why_unknown(self, before: Position | None) -> str:
        if before is None:
            return f"{self.leaf.key} was not read before"
        return f"what changed in {self.leaf.name} since its version {before} is not kept"

    def rows_changed(self, before: Position | None) -> int | None:
        if before is None:
            return self.versions.last.rows
        if not isinstance(before, int):
            return None
        return sum(map(count_rows, self.versions.change_folders(before) or ()))


@dataclass(frozen=True, slots=True)
class ConstantInput(RunInput[ConstantLeaf]):
    """Rows written in the query text. Their position is that text."""

    def position(self) -> str:
        return self.leaf.key

    def whole(self) -> DataFrame:
        return frame_of_plan(self.leaf.node, self.spark)

    def changes(self, before: Position | None) -> DataFrame | None:
        return with_weight(self.whole().limit(0), 1) if before == self.position() else None

    def changes_here(self, before: Position | None) -> pa.Table:
        from headrace.pipelines.in_process_inputs import arrow_columns

        if before != self.position():
            raise NeedsSpark(f"{self.leaf.key} has changed")
        return as_changes(arrow_columns(spark_columns(self.leaf)).empty_table())


@dataclass(frozen=True, slots=True)
class UnversionedInput(RunInput[Leaf]):
    """Input that cannot report its changes."""

    def whole(self) -> DataFrame:
        return frame_of_plan(self.leaf.node, self.spark)


_FILE, _KNOWN = f"{RESERVED}file", f"{RESERVED}known"


@dataclass(slots=True)
class RunDeltaTables:
    """Delta tables that one run reads.

    lock: of all this, since tables are updated side by side.
    tables: each, by path. pinned: the newest version of each when the run first looked, by path.
    known: what changed between two.
    """

    lock: RLock = field(default_factory=RLock)
    tables: dict[str, VersionedTable] = field(default_factory=dict[str, VersionedTable])
    pinned: dict[str, TableVersion] = field(default_factory=dict[str, TableVersion])
    known: dict[tuple[str, int, int, bool], ChangedFiles | None] = field(
        default_factory=dict[tuple[str, int, int, bool], "ChangedFiles | None"]
    )

    def version(self, leaf: DeltaLeaf) -> TableVersion:
        """Return the version that a run reads. Raises `UnreadableSource` and `PipelineError`."""
        if leaf.version is not None:
            return read_version(self.table(leaf), leaf.version)
        with self.lock:
            if leaf.path not in self.pinned:
                self.pinned[leaf.path] = read_version(self.table(leaf))
            return self.pinned[leaf.path]

    def table(self, leaf: DeltaLeaf) -> VersionedTable:
        with self.lock:
            if leaf.path not in self.tables:
                self.tables[leaf.path] = delta_table(leaf.path)
            return self.tables[leaf.path]

    def changed_files(self, leaf: DeltaLeaf, before: str) -> ChangedFiles | None:
        was, now = TableVersion.parse(before), self.version(leaf)
        if not now.follows(was):
            return None
        key = (leaf.path, was.number, now.number, leaf.streaming)
        with self.lock:
            if key not in self.known:
                self.known[key] = self.table(leaf).changed_files(was.number, now.number, wider=leaf.streaming)
            return self.known[key]


@dataclass(frozen=True, slots=True)
class DeltaInput(RunInput[DeltaLeaf]):
    """A Delta table. Positions are versions, with the id of the table."""

    run: RunDeltaTables

    @property
    def _table(self) -> VersionedTable:
        return self.run.table(self.leaf)

    @property
    def _number(self) -> int:
        return self.run.version(self.leaf).number

    def position(self) -> str:
        return str(self.run.version(self.leaf))

    def whole(self) -> DataFrame:
        return rows_at(self._table, self._number, self._schema(), self.spark)

    def changes(self, before: Position | None) -> DataFrame | None:
        """Return the weighted changes since a position; None if unknown.

        Raises `PipelineError` if it is not known of a stream, which reads no row twice.
        """
        if not isinstance(before, str):
            return None
        files, schema = self.run.changed_files(self.leaf, before), self._schema()
        if files is None and self.leaf.streaming:
            raise self._lost(before)
        if files is None:
            return None
        if files.whole:
            numbers = ((TableVersion.parse(before).number, -1), (self._number, 1))
            old, new = (
                with_weight(_scan_in_one_task(self.leaf.path, at, schema, self.spark), weight)
                for at, weight in numbers
            )
            return consolidate(old.unionByName(new))
        added = with_weight(_rows_of(files.added, schema, self.spark), 1)
        if files.adds_only:
            return added
        removed = with_weight(_rows_of(files.removed, schema, self.spark), -1)
        # A file that is written anew holds most rows of the old one.
        return consolidate(
            added.unionByName(removed).unionByName(_read_feed_files(files.feed, schema, self.spark))
        )

    def bytes_changed(self, before: Position | None) -> int:
        files = self.run.changed_files(self.leaf, before) if isinstance(before, str) else None
        listed = (*files.added, *files.removed, *files.feed) if files is not None else ()
        return sum(os.path.getsize(file.path) for file in listed if os.path.exists(file.path))

    def changes_here(self, before: Position | None) -> pa.Table:
        import pyarrow as pa

        from headrace.pipelines.in_process_inputs import arrow_columns

        files = self.run.changed_files(self.leaf, before) if isinstance(before, str) else None
        if files is None or files.whole:
            raise NeedsSpark(f"the log of {self.leaf.path} does not tell which rows changed")
        schema = self._schema()
        made = [as_changes(arrow_columns(schema).empty_table())]
        for listed, weight in ((files.added, 1), (files.removed, -1)):
            made += [as_changes(_table_of(file, schema), weight) for file in listed]
        made += [_table_of_feed(file, schema) for file in files.feed]
        whole = pa.concat_tables(made)
        return whole if files.adds_only else consolidate_arrow(whole)

    def _lost(self, before: str) -> PipelineError:
        was, now = TableVersion.parse(before), self.run.version(self.leaf)
        if not now.follows(was):
            what = f"{self.leaf.path} is not the Delta table whose version {was.number} a stream has read"
            why = "It was replaced by another table or by an older copy."
        else:
            between = f"between version {was.number} and {now.number}"
            what = f"the log of {self.leaf.path} no longer tells what changed {between}"
            why = "Commits have left the log, VACUUM has removed files, or columns have changed or gone."
        return PipelineError(
            what,
            why=why,
            fix="reread it with --full-refresh and the table's name, or make it a materialized view",
        )

    def adds_only(self, before: Position | None) -> bool:
        if not isinstance(before, str):
            return True
        files = self.run.changed_files(self.leaf, before)
        return files is not None and files.adds_only

    def why_unknown(self, before: Position | None) -> str:
        if before is None:
            return f"{self.leaf.key} was not read before"
        return f"the log of {self.leaf.path} does not tell what changed"

    def rows_changed(self, before: Position | None) -> int | None:
        if before is None:
            return self._table.row_count(self._number)
        files = self.run.changed_files(self.leaf, before) if isinstance(before, str) else None
        if files is None or files.whole or files.removed:
            return None
        return row_count_of_files(file.path for file in (*files.added, *files.feed))

    def _schema(self) -> StructType:
        """Return the columns of an input. Raises `PipelineError` if they are not those of the query."""
        from pyspark.sql.types import StructType

        analysed = StructType.fromJson(json.loads(self.leaf.columns))
        if spark_schema(self._table, self._number) != analysed:
            raise PipelineError(
                f"the columns of {self.leaf.path} changed while the pipeline was analysed", fix="run it again"
            )
        return analysed


def describe_known_changes(leaf: DeltaLeaf, before: str) -> str:
    """Describe for users how the changes of an input since a position are found."""
    was, table = TableVersion.parse(before), delta_table(leaf.path)
    now = read_version(table)
    if was == now:
        return f"read up to its version {was.number}"
    files = table.changed_files(was.number, now.number, wider=leaf.streaming) if now.follows(was) else None
    if files is None:
        how = "whole: its log does not tell what changed"
    elif files.whole:
        how = "by comparing its rows"
    else:
        how = "by its change data feed" if files.feed else "by its files"
    return f"version {was.number} to {now.number}, {how}"


def read_version(table: VersionedTable, number: int | None = None) -> TableVersion:
    """Return a version; None: the newest. Raises `UnreadableSource` if it is missing."""
    with reporting_version(table, number):
        return table.version(number)


def rows_at(table: VersionedTable, number: int, schema: StructType, spark: SparkSession) -> DataFrame:
    """Return the rows of a version, by Spark if it can read the data files as they are."""
    files = table.files(number)
    if files is None:
        return _scan_in_one_task(table.location, number, schema, spark)
    if not all(os.path.exists(file.path) for file in files):
        raise UnreadableSource(
            f"{table.location} has lost files of version {number}",
            why="VACUUM removes the files of old versions.",
            fix="read a newer version",
            source=table.location,
            path=table.location,
        )
    return _rows_of(files, schema, spark)


def _scan_in_one_task(path: str, number: int, schema: StructType, spark: SparkSession) -> DataFrame:
    """Scan a version with `deltalake`, in one task."""
    one: Any = spark.range(0, 1, 1, 1)
    return one.mapInArrow(partial(_rows_in_task, path, number, schema), schema)


def _rows_in_task(
    path: str, number: int, schema: StructType, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield from rows_of_version(path, number, schema)


def _table_of(file: DataFile, schema: StructType) -> pa.Table:
    """Read a data file of a Delta table, adding the columns of its partition. Raises `NeedsSpark`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headrace.pipelines.in_process_inputs import (
        arrow_columns,
        check_writer,
        columns_of_table,
        partition_value,
    )

    wanted, outside = arrow_columns(schema), dict(file.partition)
    inside = pa.schema([field for field in wanted if field.name not in outside])
    held = pq.ParquetFile(file.path)
    check_writer(file.path, held)
    found = columns_of_table(file.path, held.read(), inside)
    for name, text in outside.items():
        value = partition_value(file.path, text, schema[name].dataType)
        found = found.append_column(wanted.field(name), pa.repeat(value, len(found)))
    return found.select(wanted.names)


def _table_of_feed(file: DataFile, schema: StructType) -> pa.Table:
    """Read a file of a change data feed as weighted rows. Raises `NeedsSpark`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = pq.ParquetFile(file.path).read([CHANGE_TYPE])[CHANGE_TYPE].to_pylist()
    weights = pa.array([CHANGE_WEIGHTS[each] for each in types], pa.int64())
    return _table_of(file, schema).append_column(WEIGHT, weights)


def _read_feed_files(files: Sequence[DataFile], schema: StructType, spark: SparkSession) -> DataFrame:
    """Read files of a change data feed as weighted rows."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    rows = _rows_of(files, StructType([*schema.fields]).add(CHANGE_TYPE, "string"), spark)
    weight = f.create_map(*(f.lit(each) for pair in CHANGE_WEIGHTS.items() for each in pair))[
        f.col(CHANGE_TYPE)
    ]
    return rows.withColumn(WEIGHT, weight.cast("long")).drop(CHANGE_TYPE)


def _rows_of(files: Sequence[DataFile], schema: StructType, spark: SparkSession) -> DataFrame:
    """Read data files, adding the columns of their partitions."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    if not files:
        return empty_frame(schema, spark)
    outside = [name for name, _ in files[0].partition]
    held = StructType([each for each in schema.fields if each.name not in outside])
    # Only what is listed: names are no patterns, and folders of partitions no columns.
    reader = spark.read.schema(held).options(recursiveFileLookup=True, __globPaths__=False)
    rows = reader.parquet(*(f"file:{file.path}" for file in files))
    if not outside:
        return rows
    path = java_class(spark, "org.apache.hadoop.fs").Path
    listed = [
        (
            path(f"file:{file.path}").toUri().toString(),
            True,
            *(_with_utc_offset(dict(file.partition)[name], schema[name].dataType) for name in outside),
        )
        for file in files
    ]
    keys = [f"{RESERVED}{at}" for at in range(len(outside))]
    texts = StructType().add(_FILE, "string").add(_KNOWN, "boolean")
    for key in keys:
        texts = texts.add(key, "string")
    values = f.broadcast(spark.createDataFrame(listed, texts))
    joined = rows.withColumn(_FILE, f.col("_metadata.file_path")).join(values, _FILE, "left")
    unknown = f.raise_error(f.concat(f.lit("no partition is known of "), f.col(_FILE)))
    typed = {
        name: f.when(f.col(_KNOWN), f.col(key)).otherwise(unknown).cast(schema[name].dataType).alias(name)
        for name, key in zip(outside, keys, strict=True)
    }
    return joined.select(*(typed.get(name, f.col(quoted(name))) for name in schema.names))


def _with_utc_offset(text: str | None, type: DataType) -> str | None:
    """Return a partition's value with its UTC offset: logs omit it, and their times are in UTC."""
    from pyspark.sql.types import TimestampType

    if text is None or not isinstance(type, TimestampType):
        return text
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()
