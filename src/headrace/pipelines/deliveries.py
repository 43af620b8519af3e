"""Deliveries of a run once it is published: rows to sinks, versions of tables to Delta tables and changelogs.

A run writes the rows for a sink beside the tables. When the catalogue names them they are delivered, and then
removed: so a run that dies delivers nothing, and the next one delivers what was published and not delivered.
What each destination promises:

- Files are moved one by one, each by a rename, so each comes exactly once.
- A commit of a Delta table names what it holds, a version or the files of a batch, as a transaction of its
  log: so each comes once, whatever ends a run. A version comes as a commit that adds and deletes the rows
  that changed, and reads so in the table's change data feed; where that cannot be, it replaces all rows.
- A changelog has a tick for each version, whose folder appears by one rename. The layout is that of
  `headrace.io.files.changelog`.
- Other formats get the rows of a run at least once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, HeadraceError, UnwritableSink
from headrace.expr.spark_columns import quoted
from headrace.file_system import local_path, remove_folder, sync_folder
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import CHANGELOG, DELTA, Dataset, DatasetKind
from headrace.pipelines.delta_source import delta_table
from headrace.pipelines.errors import BadDefinition, NeedsSpark, is_absent
from headrace.pipelines.graph import StoredTable, stored_schema
from headrace.pipelines.inputs import rows_at
from headrace.pipelines.query_errors import message_of
from headrace.pipelines.table_files import read_data_file
from headrace.pipelines.table_versions import TableVersions, adds_only, save, write_table
from headrace.pipelines.weighted_rows import (
    MAX_BYTES,
    WEIGHT,
    can_be_grouped,
    comparable_schema,
    consolidate,
    consolidate_arrow,
    difference,
    expand,
    expand_arrow,
    kinds_in,
    split_by_key,
    with_weight,
)
from headrace.requirements import require_package
from headrace.tables.version_folders import TICK, VersionFolders, data_files, tick_folders
from headrace.tables.version_folders import WEIGHT as CHANGELOG_WEIGHT
from headrace.tables.versioned_table import OPERATION, VersionedTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


FILES = frozenset({"parquet", "json", "csv", "orc", "text"})
"""Formats of sinks that are folders of files."""

CONSOLE = "console"


def check_sink(table: StoredTable) -> None:
    """Raise `BadDefinition` for a table or sink that cannot be delivered."""
    dataset = table.dataset
    if DELTA in (dataset.format, dataset.delivery):
        check_delta(table)
    if dataset.delivery == CHANGELOG:
        check_changelog(table)
    if (
        dataset.format in (*FILES, DELTA)
        and dataset.kind is DatasetKind.SINK
        and "path" not in dataset.properties
    ):
        raise BadDefinition(
            f"sink {dataset.name.table!r} has no path",
            where=[dataset.location],
            fix=f'dp.create_sink("{dataset.name.table}", "{dataset.format}", {{"path": "out"}})',
            dataset=str(dataset.name),
        )


def stage(catalog: PipelineCatalog, table: StoredTable, rows: DataFrame) -> tuple[int, int]:
    """Stage rows for a sink beside the tables; return the version and the row count.

    Without rows, it is the previous version.
    """
    before = catalog.entries.get(table.name)
    version = catalog.new_version(table.name)
    folder, dataset = catalog.rows(table.name).folder(version), table.dataset
    rows = rows.persist()  # They are computed once, to be counted and to be written.
    try:
        count = rows.count()
        if not count:
            return (before.version if before else 0), 0
        if dataset.format in FILES:
            options = {key: value for key, value in dataset.properties.items() if key != "path"}
            save(rows.write.format(dataset.format).options(**options), folder)
        else:
            save(rows.write.format("parquet"), folder)
        return version, count
    finally:
        rows.unpersist()


def stage_here(catalog: PipelineCatalog, table: StoredTable, rows: pa.Table) -> tuple[int, int]:
    """Stage rows for a sink like `stage`, in this process."""
    before = catalog.entries.get(table.name)
    if not len(rows):
        return (before.version if before else 0), 0
    version = catalog.new_version(table.name)
    write_table(rows, catalog.rows(table.name).folder(version), durable=True)
    return version, len(rows)


def why_not_staged_here(dataset: Dataset) -> str:
    """Return why only Spark can write the rows of a sink; empty if they can be staged in this process."""
    if dataset.format not in ("parquet", DELTA):
        return f"Spark writes sinks of the format {dataset.format}"
    options = sorted(dataset.properties.keys() - {"path"})
    return f"Spark writes sinks with the option {options[0]}" if options else ""


def has_undelivered(catalog: PipelineCatalog, table: StoredTable) -> bool:
    """Return whether something published may not be delivered yet."""
    entry, dataset = catalog.published.get(table.name), table.dataset
    if dataset.kind is DatasetKind.SINK:
        return bool(catalog.rows(table.name).numbers())
    if not dataset.delivery or entry is None:
        return False
    folder = catalog.delivery_folder(catalog.storage, dataset.delivery, table.name)
    if dataset.delivery == CHANGELOG:
        return (tick_folders(folder).latest() or 0) < entry.version
    return _delivered_to(str(folder), _application(catalog, table)) != entry.version


def _application(catalog: PipelineCatalog, table: StoredTable) -> str:
    """Return the application id under which deliveries to Delta tables are logged.

    Table names alone may clash between pipelines.
    """
    return f"headrace/{catalog.identity}/{table.name}"


def _delivered_to(path: str, application: str) -> int | None:
    """Return the number of the last transaction of an application in a Delta table; None if unknown."""
    delta = delta_table(path)
    return delta.transaction(application) if delta.exists() else None


def deliver(catalog: PipelineCatalog, table: StoredTable, spark: SparkSession) -> None:
    """Deliver the published but undelivered rows of a sink, or version of a table."""
    entry = catalog.published.get(table.name)
    delivery = table.dataset.delivery
    versions = TableVersions(catalog, table, spark, entry)
    # A version of an earlier project is passed over; the next one is delivered.
    if delivery and entry is not None and versions.has_project_layout(entry):
        folder = catalog.delivery_folder(catalog.storage, delivery, table.name)
        if delivery == DELTA:
            DeltaPublisher(versions, str(folder)).publish(entry.version)
        else:
            ChangelogPublisher(versions, folder).publish(entry.version)
    if table.dataset.kind is not DatasetKind.SINK:
        return
    staged = catalog.rows(table.name)
    for version in staged.numbers():
        if entry is not None and version <= entry.version:
            _deliver_rows(versions, staged.folder(version), version)
            staged.remove(version)


def _deliver_rows(versions: TableVersions, folder: Path, version: int) -> None:
    """Deliver the rows staged for a sink."""
    dataset = versions.table.dataset
    if dataset.format in FILES:
        _move_files(folder, Path(local_path(dataset.properties["path"], "sink")), version)
        return
    if dataset.format == DELTA:
        DeltaPublisher(versions, dataset.properties["path"]).append(folder)
        return
    rows = versions.spark.read.parquet(f"file:{folder}")  # The query may have other columns since.
    if dataset.format == CONSOLE:
        rows.show(int(dataset.properties.get("numRows", "20")), truncate=False)
    else:
        rows.write.format(dataset.format).options(**dataset.properties).mode("append").save()


def _move_files(folder: Path, target: Path, version: int) -> None:
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        at = target / file.relative_to(folder).parent / f"{version}-{file.name}"
        at.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(file, at)
        except OSError:  # on another file system
            aside = at.with_name(f".{at.name}.tmp")
            shutil.copy2(file, aside)
            os.replace(aside, at)
            file.unlink()
        sync_folder(at.parent)


# -- changelogs --------------------------------------------------------------------------------------


def check_changelog(table: StoredTable) -> None:
    """Raise `BadDefinition` for a table that cannot be delivered to a changelog."""
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
class ChangelogPublisher:
    """Delivery of a table's versions to the changelog in a folder."""

    versions: TableVersions
    folder: Path

    def publish(self, version: int) -> None:
        """Append a tick with the changes since the last one, unless it exists."""
        ticks = tick_folders(self.folder)
        if is_absent(self.versions.spark):
            self._publish_here(ticks, version)
            return
        if ticks.numbers() and not self._has_same_layout():
            remove_folder(self.folder)
        last = ticks.latest() or 0
        if last < version:
            rows = self._changes(last).withColumnRenamed(WEIGHT, CHANGELOG_WEIGHT)
            save(rows.write.format("parquet"), ticks.folder(version))

    def _publish_here(self, ticks: VersionFolders, version: int) -> None:
        """Append a tick like `publish`, in this process. Raises `NeedsSpark`."""
        import pyarrow.parquet as pq

        last = ticks.latest() or 0
        if last >= version:
            return
        columns = comparable_schema(self.versions.table.schema)
        files = data_files(ticks.folder(last)) if last else []
        there = {(field.name, str(field.type)) for file in files[:1] for field in pq.read_schema(file)}
        wanted = {(CHANGELOG_WEIGHT, "int64"), *((field.name, str(field.type)) for field in columns or ())}
        if columns is None or there != wanted:
            raise NeedsSpark(f"the changelog of {self.versions.table.name} begins, or has other columns")
        changes = consolidate_arrow(_few_changes(self.versions, last))
        names = [CHANGELOG_WEIGHT if name == WEIGHT else name for name in changes.column_names]
        write_table(changes.rename_columns(names), ticks.folder(version), durable=True)

    def _has_same_layout(self) -> bool:
        """Return whether the changelog has the columns of the table."""
        there = self.versions.spark.read.parquet(f"file:{self.folder}").drop(TICK, CHANGELOG_WEIGHT)
        return stored_schema(there.schema) == stored_schema(self.versions.table.schema)

    def _changes(self, last: int) -> DataFrame:
        known = self.versions.changes(last) if last else None
        if known is not None:
            return consolidate(known)
        rows = with_weight(self.versions.rows(), 1)
        return consolidate(rows.unionByName(self._retractions()) if last else rows)

    def _retractions(self) -> DataFrame:
        """Return changes that retract all rows in the changelog's consolidated state."""
        there = self.versions.spark.read.parquet(f"file:{self.folder}").drop(TICK)
        return there.withColumn(CHANGELOG_WEIGHT, -there[CHANGELOG_WEIGHT]).withColumnRenamed(
            CHANGELOG_WEIGHT, WEIGHT
        )


def _few_changes(versions: TableVersions, before: int) -> pa.Table:
    """Return the weighted changes since a version, unless they are many. Raises `NeedsSpark`."""
    folders = versions.change_folders(before) or ()
    size = sum(file.stat().st_size for folder in folders for file in data_files(folder))
    if size > MAX_BYTES:
        raise NeedsSpark(f"{size:,} bytes of changes of {versions.table.name} are to be delivered")
    return versions.changes_here(before)


# -- Delta tables -------------------------------------------------------------------------------------


def check_delta(table: StoredTable) -> None:
    """Raise `BadDefinition` or `BadUri` if a table cannot be delivered to a Delta table."""
    dataset = table.dataset
    try:
        require_package(f"{dataset.kind.value} {dataset.name}", "deltalake", "delta")
    except BadInput as error:
        raise _bad(table, error.what, error.why, error.fix) from None
    from headrace.tables.delta_table import check_location

    path = dataset.properties.get("path", "")
    for option in dataset.properties.keys() - {"path"} if not dataset.delivery else ():
        raise _bad(table, f"sink {dataset.name.table!r} has the option {option!r}", "", "give its path only")
    check_location(path, {}, f"sink {dataset.name.table!r}")
    for field in table.schema.fields:
        try:
            delta_table(path).stored_types(_arrow_schema([field]))
        except Exception as error:  # of Spark, or one of `deltalake` without a class of its own
            raise _bad(
                table,
                f"{dataset.name} has a column {field.name!r} of {field.dataType.simpleString()}",
                f"A Delta table cannot hold it: {_first_line(error)}.",
                "cast it in the query",
            ) from None


def _first_line(error: Exception) -> str:
    """Return the message of an error, without the trace that `deltalake` appends."""
    return message_of(error).partition("\n")[0]


def _bad(table: StoredTable, what: str, why: str, fix: str) -> BadDefinition:
    dataset = table.dataset
    return BadDefinition(what, where=[dataset.location], why=why, fix=fix, dataset=str(dataset.name))


def _arrow_schema(fields: Sequence[Any]) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    made: Any = to_arrow_schema(stored_schema(StructType([*fields])), timezone="UTC")
    return made


@dataclass(frozen=True, slots=True)
class DeltaPublisher:
    """Delivery of a table's versions, or of a sink's rows, to the Delta table at a path."""

    versions: TableVersions
    path: str

    @property
    def _table(self) -> StoredTable:
        return self.versions.table

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except HeadraceError:
            raise
        except Exception as error:
            raise UnwritableSink(
                f"the Delta table at {self.path} does not take the rows of {self._table.name}",
                where=[self._table.dataset.location],
                why=_first_line(error),
                fix="correct or remove that table; the next run delivers what it missed",
                sink=str(self._table.name),
                path=self.path,
            ) from error

    @property
    def _app(self) -> str:
        return _application(self.versions.catalog, self._table)

    @property
    def _delta(self) -> VersionedTable:
        return delta_table(self.path)

    def _delivered(self) -> int | None:
        """Return the number of the last delivered transaction; None if unknown."""
        return _delivered_to(self.path, self._app)

    def append(self, staged: Path) -> None:
        """Append the rows of a sink staged in a folder, unless they were the last ones delivered."""
        with self._reporting():
            # Versions are counted anew where the storage is restored from a backup, and so tell nothing.
            number = _batch_number(staged)
            if self._delivered() != number:
                if is_absent(self.versions.spark):
                    self._delta.append(self._staged_here(staged), {self._app: number})
                    return
                with self._batches(self.versions.spark.read.parquet(f"file:{staged}")) as batches:
                    self._delta.append(batches, {self._app: number})

    def _staged_here(self, staged: Path) -> pa.RecordBatchReader:
        """Read the rows staged in a folder. Raises `NeedsSpark` for many, or with other columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns, files = comparable_schema(self._table.schema), sorted(staged.rglob("*.parquet"))
        if columns is None or sum(file.stat().st_size for file in files) > MAX_BYTES:
            raise NeedsSpark(f"Spark delivers the rows of {self._table.name}")
        if any(set(pq.read_schema(file).names) != set(columns.names) for file in files):
            raise NeedsSpark(f"rows of another query wait for {self.path}")
        rows = [read_data_file(staged, file, columns, ()) for file in files]
        return _reader_of(pa.concat_tables(rows), _arrow_schema(self._table.schema.fields))

    def publish(self, version: int) -> None:
        """Update the Delta table to the rows of the last version."""
        from headrace.tables.delta_table import FEED

        with self._reporting():
            delivered = self._delivered()
            if delivered == version:
                return
            if is_absent(self.versions.spark):
                self._publish_here(version, delivered)
                return
            changed = self._changed(version, delivered)
            if changed is None:
                dataset = self._table.dataset
                with self._batches(self.versions.rows()) as batches:
                    self._delta.replace(
                        batches,
                        {self._app: version},
                        partitioned_by=dataset.partitioned_by,
                        properties={FEED: "true"} if dataset.delivery else None,
                    )
                return
            changes = self.versions.read_changes(changed)
            if adds_only(changed):
                with self._batches(expand(changes)) as batches:
                    self._delta.append(batches, {self._app: version})
            else:
                self._merge(changes, version)
            remove_folder(self._compared)

    def _publish_here(self, version: int, delivered: int | None) -> None:
        """Update the Delta table like `publish`, in this process. Raises `NeedsSpark`."""
        import polars as pl
        import pyarrow as pa
        import pyarrow.compute as pc

        schema, transaction = self._table.schema, {self._app: version}
        columns = comparable_schema(schema)
        if columns is None or delivered != version - 1 or not self._has_same_layout():
            raise NeedsSpark(f"all rows of {self._table.name} are to be delivered, or compared")
        changes = consolidate_arrow(_few_changes(self.versions, version - 1))
        types = _arrow_schema(schema.fields)
        if (added := expand_arrow(changes)) is not None:
            self._delta.append(_reader_of(added, types), transaction)
            return
        if not _is_comparable(schema):
            raise NeedsSpark(f"rows of {self._table.name} are to be taken back, which only Spark compares")
        compute: Any = pc
        gone = changes.filter(compute.less(changes[WEIGHT], 0)).drop_columns([WEIGHT])
        came = expand_arrow(changes.filter(compute.greater(changes[WEIGHT], 0)))
        # All copies of a row are deleted, so those that stay are inserted.
        _, stay = split_by_key(self.versions.rows_like(gone, columns), pl.from_arrow(gone), columns.names)
        rows = pa.concat_tables([gone, came, stay])
        operations = pa.array([-1] * len(gone) + [1] * (len(rows) - len(gone)), pa.int32())
        source = rows.append_column(OPERATION, operations)
        types = types.append(pa.field(OPERATION, pa.int32()))
        self._delta.merge(_reader_of(source, types), schema.names, transaction)

    @property
    def _compared(self) -> Path:
        return self.versions.catalog.storage / "delta/.compared"

    def _changed(self, version: int, delivered: int | None) -> Path | None:
        """Return a folder with the changes since the last delivery; None to replace all rows."""
        if not self._has_same_layout():
            return None
        folder = self.versions.catalog.changes(self._table.name).folder(version)
        known = folder.is_dir() and delivered == version - 1
        comparable = _is_comparable(self._table.schema)
        if not known and comparable:
            delta = self._delta
            there = rows_at(delta, delta.version().number, self._table.schema, self.versions.spark)
            folder = self._compared
            save(difference(there, self.versions.rows()).write.format("parquet"), folder)
        elif not known or (not comparable and not adds_only(folder)):
            return None
        return folder

    def _has_same_layout(self) -> bool:
        """Return whether the Delta table exists, with the columns and partitions of the table."""
        delta = self._delta
        if not delta.exists():
            return False
        there, wanted = delta.schema(), _arrow_schema(self._table.schema.fields)
        return (
            delta.stored_types(there) == delta.stored_types(wanted)
            and all(field.nullable for field in there)
            and delta.partition_columns() == list(self._table.dataset.partitioned_by)
        )

    def _merge(self, changes: DataFrame, version: int) -> None:
        """Delete all copies of retracted rows, and insert the copies in the new version."""
        from pyspark.sql import functions as f

        gone = changes.where(f"{WEIGHT} < 0").drop(WEIGHT)
        same = [f.col(f"left.{quoted(n)}").eqNullSafe(f.col(f"right.{quoted(n)}")) for n in gone.columns]
        left = self.versions.rows().alias("left").join(gone.alias("right"), same, "left_semi")
        added = expand(changes.where(f"{WEIGHT} > 0")).unionByName(left)
        source = gone.withColumn(OPERATION, f.lit(-1)).unionByName(added.withColumn(OPERATION, f.lit(1)))
        with self._batches(source) as rows:
            self._delta.merge(rows, self._table.schema.names, {self._app: version})

    @contextmanager
    def _batches(self, rows: DataFrame) -> Iterator[pa.RecordBatchReader]:
        """Stream rows in batches via files, with only one batch in memory at a time."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self.versions.catalog.storage / "delta/.staged"
        save(rows.write.format("parquet"), folder)
        schema = _arrow_schema(rows.schema.fields)
        batches = (
            _canonical(batch, schema)
            for file in sorted(folder.rglob("*.parquet"))
            for batch in pq.ParquetFile(file).iter_batches()
        )
        try:
            yield pa.RecordBatchReader.from_batches(schema, batches)
        finally:
            remove_folder(folder)


def _reader_of(rows: pa.Table, schema: pa.Schema) -> pa.RecordBatchReader:
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema, (_canonical(each, schema) for each in rows.to_batches()))


def _batch_number(staged: Path) -> int:
    """Return a number unique to a batch of staged files: Spark puts an id of the job into their names."""
    names = sorted(str(file.relative_to(staged)) for file in staged.rglob("*.parquet"))
    return int.from_bytes(blake2b("\n".join(names).encode(), digest_size=8).digest()) >> 1


def _is_comparable(schema: StructType) -> bool:
    """Return whether `deltalake` and Spark agree on which rows of some columns are equal."""
    unlike = {"struct", "array", "map", "variant", "collated", "geography", "geometry"}
    return not kinds_in(schema) & unlike


def _canonical(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Normalize zeros and NaNs in rows: equal zeros, or NaNs, to Spark may be unequal to `deltalake`."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    compute: Any = pc
    columns: list[Any] = []
    for field in schema:
        column: Any = batch.column(field.name).cast(field.type)
        if kinds.is_floating(field.type):
            nan = pa.scalar(float("nan"), field.type)
            column = compute.if_else(
                compute.is_nan(column), nan, compute.add(column, pa.scalar(0.0, field.type))
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
