"""Delivery to Delta tables: the versions of a table of the pipeline, and the rows of a sink.

A commit of the Delta table names what it holds, a version or the files of a batch, as a transaction of its
log: so each comes once, whatever ends a run. A version comes as a commit that adds and deletes the rows that
changed, and reads so in the table's change data feed; where that cannot be, it replaces all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, HeadraceError, UnwritableSink
from headrace.expr.spark_columns import quoted
from headrace.io.delivery.atomic_files import remove_folder
from headrace.io.delta import check_location, require_deltalake
from headrace.io.delta.log import DeltaLog
from headrace.io.delta.protocol import FEED, OPERATION
from headrace.pipelines.catalog import Catalog, TableEntry
from headrace.pipelines.delta_inputs import rows_at
from headrace.pipelines.errors import BadDefinition
from headrace.pipelines.graph import Table, as_stored, message_of
from headrace.pipelines.snapshots import kinds_in
from headrace.pipelines.versions import (
    WEIGHT,
    adds_only,
    difference,
    read_changes,
    read_rows,
    repeated,
    save,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_WITH_FEED: Mapping[str, str | None] = {FEED: "true"}


def check_delta(table: Table) -> None:
    """Raise `BadDefinition` or `BadUri` for what cannot be delivered to a Delta table."""
    dataset = table.dataset
    try:
        require_deltalake(f"{dataset.kind.value} {dataset.name}")
    except BadInput as error:
        raise _bad(table, error.what, error.why, error.fix) from None
    import deltalake

    path = dataset.properties.get("path", "")
    for option in dataset.properties.keys() - {"path"} if not dataset.delivery else ():
        raise _bad(table, f"sink {dataset.name.table!r} has the option {option!r}", "", "give its path only")
    check_location(path, {}, f"sink {dataset.name.table!r}")
    for field in table.schema.fields:
        try:
            deltalake.Schema.from_arrow(_arrow_schema([field]))
        except Exception as error:  # of Spark, or one of `deltalake` without a class of its own
            raise _bad(
                table,
                f"{dataset.name} has a column {field.name!r} of {field.dataType.simpleString()}",
                f"A Delta table cannot hold it: {_first_line(error)}.",
                "cast it in the query",
            ) from None


def _first_line(error: Exception) -> str:
    """Return what an error says, without the trace that those of `deltalake` have."""
    return message_of(error).partition("\n")[0]


def _bad(table: Table, what: str, why: str, fix: str) -> BadDefinition:
    dataset = table.dataset
    return BadDefinition(what, where=[dataset.location], why=why, fix=fix, dataset=str(dataset.name))


def _arrow_schema(fields: Sequence[Any]) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    made: Any = to_arrow_schema(as_stored(StructType([*fields])), timezone="UTC")
    return made


@dataclass(frozen=True, slots=True)
class DeltaPublisher:
    """Delivery of a table, or of a sink, to the Delta table at a path."""

    catalog: Catalog
    table: Table
    spark: SparkSession
    path: str

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except HeadraceError:
            raise
        except Exception as error:
            raise UnwritableSink(
                f"the Delta table at {self.path} does not take the rows of {self.table.name}",
                where=[self.table.dataset.location],
                why=_first_line(error),
                fix="correct or remove that table; the next run delivers what it missed",
                sink=str(self.table.name),
                path=self.path,
            ) from error

    @property
    def _app(self) -> str:
        """Application by which the log knows what was delivered. Another pipeline may have the same names."""
        return f"headrace/{self.catalog.identity}/{self.table.name}"

    def _delivered(self) -> int | None:
        """Return the number of the transaction that was delivered last; None if that is not known."""
        import deltalake

        if not deltalake.DeltaTable.is_deltatable(self.path):
            return None
        return deltalake.DeltaTable(self.path).transaction_version(self._app)

    def append(self, rows: DataFrame, staged: Path) -> None:
        """Add the rows of a sink that are staged in a folder, unless they came last."""
        with self._reporting():
            # Versions are counted anew where the storage is restored from a backup, and so tell nothing.
            number = _number_of(staged)
            if self._delivered() != number:
                self._write(rows, number, "append")

    def publish(self, entry: TableEntry) -> None:
        """Make the rows of a version those of the Delta table."""
        if entry.schema != self.table.schema.json() or entry.layout != self.table.layout:
            return  # The version is of an earlier project; the next one is delivered.
        with self._reporting():
            delivered = self._delivered()
            if delivered == entry.version:
                return
            changed = self._changed(entry.version, delivered)
            if changed is None:
                self._write(self._rows(entry.version), entry.version, "overwrite")
                return
            changes = read_changes(changed, self.table, self.spark)
            if adds_only(changed):
                self._write(repeated(changes), entry.version, "append")
            else:
                self._merge(changes, entry.version)
            remove_folder(self._compared)

    def _rows(self, version: int) -> DataFrame:
        return read_rows(self.catalog.rows(self.table.name, version), self.table, self.spark)

    @property
    def _compared(self) -> Path:
        return self.catalog.storage / "delta/.compared"

    def _changed(self, version: int, delivered: int | None) -> Path | None:
        """Return a folder of what changed since the last delivery; None if all rows are to be replaced."""
        if not self._has_the_form():
            return None
        folder = self.catalog.changes(self.table.name, version)
        known = folder.is_dir() and delivered == version - 1
        comparable = _is_comparable(self.table.schema)
        if not known and comparable:
            log = DeltaLog(self.path)
            there = rows_at(log, log.version().number, self.table.schema, self.spark)
            folder = self._compared
            save(difference(there, self._rows(version)).write.format("parquet"), folder)
        elif not known or (not comparable and not adds_only(folder)):
            return None
        return folder

    def _has_the_form(self) -> bool:
        """Return whether the Delta table is there, with the columns and partitions of the table."""
        import deltalake

        if not deltalake.DeltaTable.is_deltatable(self.path):
            return False
        there = deltalake.DeltaTable(self.path)
        wanted = deltalake.Schema.from_arrow(_arrow_schema(self.table.schema.fields))
        partitions = list(self.table.dataset.partitioned_by)
        return there.schema() == wanted and there.metadata().partition_columns == partitions

    def _merge(self, changes: DataFrame, version: int) -> None:
        """Delete all copies of rows that were taken back, and insert those that the version has."""
        import deltalake
        from pyspark.sql import functions as f

        from headrace.io.delta.delivery import quoted as sql_name

        gone = changes.where(f"{WEIGHT} < 0").drop(WEIGHT)
        same = [f.col(f"left.{quoted(n)}").eqNullSafe(f.col(f"right.{quoted(n)}")) for n in gone.columns]
        left = self._rows(version).alias("left").join(gone.alias("right"), same, "left_semi")
        added = repeated(changes.where(f"{WEIGHT} > 0")).unionByName(left)
        source = gone.withColumn(OPERATION, f.lit(-1)).unionByName(added.withColumn(OPERATION, f.lit(1)))
        names = list(map(sql_name, self.table.schema.names))
        operation = f"s.{sql_name(OPERATION)}"
        matching = (f"(t.{name} is not distinct from s.{name})" for name in names)
        with self._batches(source) as rows:
            merge = deltalake.DeltaTable(self.path).merge(
                source=rows,
                predicate=" and ".join([*matching, f"{operation} < 0"]),
                source_alias="s",
                target_alias="t",
                commit_properties=self._properties(version),
            )
            inserted = {name: f"s.{name}" for name in names}
            merge.when_matched_delete().when_not_matched_insert(inserted, f"{operation} > 0").execute()

    def _write(self, rows: DataFrame, number: int, mode: Any) -> None:
        import deltalake

        with self._batches(rows) as batches:
            deltalake.write_deltalake(
                self.path,
                batches,
                mode=mode,
                schema_mode="overwrite" if mode == "overwrite" else None,
                partition_by=list(self.table.dataset.partitioned_by) if mode == "overwrite" else None,
                configuration=_WITH_FEED if self.table.dataset.delivery else None,
                commit_properties=self._properties(number),
            )

    def _properties(self, number: int) -> Any:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(app_transactions=[Transaction(self._app, number)])

    @contextmanager
    def _batches(self, rows: DataFrame) -> Iterator[pa.RecordBatchReader]:
        """Provide rows as a stream that holds a batch at a time, by way of files."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self.catalog.storage / "delta/.staged"
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


def _number_of(staged: Path) -> int:
    """Return a number that no other rows have: Spark puts an id of the job into the names of its files."""
    names = sorted(str(file.relative_to(staged)) for file in staged.rglob("*.parquet"))
    return int.from_bytes(blake2b("\n".join(names).encode(), digest_size=8).digest()) >> 1


def _is_comparable(schema: StructType) -> bool:
    """Return whether `deltalake` and Spark agree on which rows of some columns are equal."""
    unlike = {"struct", "array", "map", "variant", "collated", "geography", "geometry"}
    return not kinds_in(schema) & unlike


def _canonical(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with one zero and one NaN: to Spark all are equal, and to `deltalake` they are not."""
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
