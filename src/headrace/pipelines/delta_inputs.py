"""Delta tables as inputs of a run: the versions that it reads, their rows, and what changed between two."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.expr.spark_columns import quoted
from headrace.io.delta.log import DataFile, DeltaLog, FileChanges, TableVersion
from headrace.io.delta.protocol import CHANGE_TYPE, WEIGHTS
from headrace.pipelines.definitions import RESERVED
from headrace.pipelines.delta_source import rows_of_version, spark_schema
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.graph import no_rows
from headrace.pipelines.leaves import DeltaLeaf, rows_of_files
from headrace.pipelines.versions import WEIGHT, summed, weighted
from headrace.queries.plan_details import java_class

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_FILE, _KNOWN = f"{RESERVED}file", f"{RESERVED}known"


@dataclass(slots=True)
class DeltaInputs:
    """The Delta tables of a run.

    logs: of each, by path. pinned: the newest version of each when the run first looked, by path.
    known: what changed between two.
    """

    spark: SparkSession
    logs: dict[str, DeltaLog] = field(default_factory=dict[str, DeltaLog])
    pinned: dict[str, TableVersion] = field(default_factory=dict[str, TableVersion])
    known: dict[tuple[str, int, int, bool], FileChanges | None] = field(
        default_factory=dict[tuple[str, int, int, bool], "FileChanges | None"]
    )

    def version(self, leaf: DeltaLeaf) -> TableVersion:
        """Return the version that a run reads. Raises `UnreadableSource` and `PipelineError`."""
        log, number = self._log(leaf), leaf.version
        if number is not None:
            return log.version(number)
        if leaf.path not in self.pinned:
            self.pinned[leaf.path] = log.version()
        return self.pinned[leaf.path]

    def _log(self, leaf: DeltaLeaf) -> DeltaLog:
        return self.logs.setdefault(leaf.path, DeltaLog(leaf.path))

    def whole(self, leaf: DeltaLeaf) -> DataFrame:
        """Return the rows of the version that a run reads."""
        return rows_at(self._log(leaf), self.version(leaf).number, self._schema(leaf), self.spark)

    def changes(self, leaf: DeltaLeaf, before: str) -> DataFrame | None:
        """Return what changed since a position, with weights; None if that is not known.

        Raises `PipelineError` if it is not known of a stream, which reads no row twice.
        """
        files, schema = self._files(leaf, before), self._schema(leaf)
        if files is None and leaf.streaming:
            raise self._lost(leaf, before)
        if files is None:
            return None
        if files.whole:
            numbers = ((TableVersion.parse(before).number, -1), (self.version(leaf).number, 1))
            old, new = (
                weighted(_scanned(leaf.path, at, schema, self.spark), weight) for at, weight in numbers
            )
            return summed(old.unionByName(new))
        added = weighted(_rows_of(files.added, schema, self.spark), 1)
        if files.adds_only:
            return added
        removed = weighted(_rows_of(files.removed, schema, self.spark), -1)
        # A file that is written anew holds most rows of the old one.
        return summed(added.unionByName(removed).unionByName(_rows_of_feed(files.feed, schema, self.spark)))

    def _lost(self, leaf: DeltaLeaf, before: str) -> PipelineError:
        was, now = TableVersion.parse(before), self.version(leaf)
        if not now.follows(was):
            what = f"{leaf.path} is not the Delta table whose version {was.number} a stream has read"
            why = "It was replaced by another table or by an older copy."
        else:
            between = f"between version {was.number} and {now.number}"
            what = f"the log of {leaf.path} no longer tells what changed {between}"
            why = "Commits have left the log, VACUUM has removed files, or columns have changed or gone."
        return PipelineError(
            what,
            why=why,
            fix="reread it with --full-refresh and the table's name, or make it a materialized view",
        )

    def adds_only(self, leaf: DeltaLeaf, before: str) -> bool:
        """Return whether the log says of changes that are known that they only add rows."""
        files = self._files(leaf, before)
        return files is not None and files.adds_only

    def rows(self, leaf: DeltaLeaf) -> int | None:
        """Return the number of rows of the version that a run reads; None if the log does not tell."""
        return self._log(leaf).rows(self.version(leaf).number)

    def rows_changed(self, leaf: DeltaLeaf, before: str) -> int | None:
        """Return how many rows changed since a position; None where only comparing rows tells."""
        files = self._files(leaf, before)
        if files is None or files.whole or files.removed:
            return None
        return rows_of_files(file.path for file in (*files.added, *files.feed))

    def _files(self, leaf: DeltaLeaf, before: str) -> FileChanges | None:
        was, now = TableVersion.parse(before), self.version(leaf)
        if not now.follows(was):
            return None
        key = (leaf.path, was.number, now.number, leaf.streaming)
        if key not in self.known:
            self.known[key] = self._log(leaf).changes(was.number, now.number, wider=leaf.streaming)
        return self.known[key]

    def _schema(self, leaf: DeltaLeaf) -> StructType:
        """Return the columns of an input. Raises `PipelineError` if they are not those of the query."""
        from pyspark.sql.types import StructType

        analysed = StructType.fromJson(json.loads(leaf.node.schema().json()))
        if spark_schema(self._log(leaf), self.version(leaf).number) != analysed:
            raise PipelineError(
                f"the columns of {leaf.path} changed while the pipeline was analysed", fix="run it again"
            )
        return analysed


def how_changes_are_known(leaf: DeltaLeaf, before: str) -> str:
    """Say how the changes of an input since a position are known."""
    was, log = TableVersion.parse(before), DeltaLog(leaf.path)
    now = log.version()
    if was == now:
        return f"read up to its version {was.number}"
    files = log.changes(was.number, now.number, wider=leaf.streaming) if now.follows(was) else None
    if files is None:
        how = "whole: its log does not tell what changed"
    elif files.whole:
        how = "by comparing its rows"
    else:
        how = "by its change data feed" if files.feed else "by its files"
    return f"version {was.number} to {now.number}, {how}"


def rows_at(log: DeltaLog, number: int, schema: StructType, spark: SparkSession) -> DataFrame:
    """Return the rows of a version: as Spark reads its files, where these hold the rows as they are."""
    files = log.files(number)
    return _scanned(log.path, number, schema, spark) if files is None else _rows_of(files, schema, spark)


def _scanned(path: str, number: int, schema: StructType, spark: SparkSession) -> DataFrame:
    """Return the rows of a version as `deltalake` reads them, in one task."""
    one: Any = spark.range(0, 1, 1, 1)
    return one.mapInArrow(partial(_rows_in_task, path, number, schema), schema)


def _rows_in_task(
    path: str, number: int, schema: StructType, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield from rows_of_version(path, number, schema)


def _rows_of_feed(files: Sequence[DataFile], schema: StructType, spark: SparkSession) -> DataFrame:
    """Return the changes in files of a change data feed."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    rows = _rows_of(files, StructType([*schema.fields]).add(CHANGE_TYPE, "string"), spark)
    weight = f.create_map(*(f.lit(each) for pair in WEIGHTS.items() for each in pair))[f.col(CHANGE_TYPE)]
    return rows.withColumn(WEIGHT, weight.cast("long")).drop(CHANGE_TYPE)


def _rows_of(files: Sequence[DataFile], schema: StructType, spark: SparkSession) -> DataFrame:
    """Return the rows of some files, with the values of the partitions that they are in."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    if not files:
        return no_rows(schema, spark)
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
            *(_with_zone(dict(file.partition)[name], schema[name].dataType) for name in outside),
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


def _with_zone(text: str | None, type: DataType) -> str | None:
    """Return the value of a partition as any session reads it: logs have times in UTC and do not say so."""
    from pyspark.sql.types import TimestampType

    if text is None or not isinstance(type, TimestampType):
        return text
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()
