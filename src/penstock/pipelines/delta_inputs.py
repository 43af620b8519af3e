"""Delta tables as inputs of a run: the versions that it reads, their rows, and what changed between two."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.io.delta.log import DataFile, DeltaLog, FileChanges, TableVersion
from penstock.pipelines.definitions import RESERVED
from penstock.pipelines.delta_source import rows_of_version, spark_schema
from penstock.pipelines.errors import PipelineError
from penstock.pipelines.graph import no_rows
from penstock.pipelines.leaves import DeltaLeaf
from penstock.pipelines.versions import WEIGHT, summed, weighted
from penstock.queries.plan_details import java_class
from penstock.spark.lowering.types import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CHANGE = "_change_type"
_WEIGHTS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
_FILE, _KNOWN = f"{RESERVED}file", f"{RESERVED}known"


@dataclass(slots=True)
class DeltaInputs:
    """The Delta tables of a run.

    pinned: the newest version of each when the run first looked, by path. known: what changed between two.
    """

    spark: SparkSession
    pinned: dict[str, TableVersion] = field(default_factory=dict[str, TableVersion])
    known: dict[tuple[str, int, int, bool], FileChanges | None] = field(
        default_factory=dict[tuple[str, int, int, bool], "FileChanges | None"]
    )

    def version(self, leaf: DeltaLeaf) -> TableVersion:
        """Return the version that a run reads. Raises `UnreadableSource` and `PipelineError`."""
        log, number = DeltaLog(leaf.path), leaf.version
        if number is not None:
            return log.version(number)
        if leaf.path not in self.pinned:
            self.pinned[leaf.path] = log.version()
        return self.pinned[leaf.path]

    def whole(self, leaf: DeltaLeaf) -> DataFrame:
        """Return the rows of the version that a run reads."""
        return rows_at(leaf.path, self.version(leaf).number, self._schema(leaf), self.spark)

    def changes(self, leaf: DeltaLeaf, before: str) -> DataFrame | None:
        """Return what changed since a position, with weights; None if that is not known."""
        files, schema = self._files(leaf, before), self._schema(leaf)
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

    def takes_back(self, leaf: DeltaLeaf, before: str, changes: DataFrame) -> bool:
        """Return whether changes since a position take rows back."""
        files = self._files(leaf, before)
        assert files is not None
        return not files.adds_only and not changes.where(f"{WEIGHT} < 0").isEmpty()

    def _files(self, leaf: DeltaLeaf, before: str) -> FileChanges | None:
        was, now = TableVersion.parse(before), self.version(leaf)
        if was.table != now.table or was.number > now.number:
            return None
        key = (leaf.path, was.number, now.number, leaf.streaming)
        if key not in self.known:
            self.known[key] = DeltaLog(leaf.path).changes(was.number, now.number, wider=leaf.streaming)
        return self.known[key]

    def _schema(self, leaf: DeltaLeaf) -> StructType:
        """Return the columns of an input. Raises `PipelineError` if they are not those of the query."""
        from pyspark.sql.types import StructType

        analysed = StructType.fromJson(json.loads(leaf.node.schema().json()))
        if spark_schema(DeltaLog(leaf.path), self.version(leaf).number) != analysed:
            raise PipelineError(
                f"the columns of {leaf.path} changed while the pipeline was analysed", fix="run it again"
            )
        return analysed


def told_changes(leaf: DeltaLeaf, before: str) -> str:
    """Tell how the changes of an input since a position are known."""
    was, log = TableVersion.parse(before), DeltaLog(leaf.path)
    now = log.version()
    if was == now:
        return f"read up to its version {was.number}"
    files = None
    if was.table == now.table and was.number < now.number:
        files = log.changes(was.number, now.number, wider=leaf.streaming)
    if files is None:
        how = "whole: its log does not tell what changed"
    elif files.whole:
        how = "by comparing its rows"
    else:
        how = "by its change data feed" if files.feed else "by its files"
    return f"version {was.number} to {now.number}, {how}"


def rows_at(path: str, number: int, schema: StructType, spark: SparkSession) -> DataFrame:
    """Return the rows of a version: as Spark reads its files, where these hold the rows as they are."""
    files = DeltaLog(path).files(number)
    return _scanned(path, number, schema, spark) if files is None else _rows_of(files, schema, spark)


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

    rows = _rows_of(files, StructType([*schema.fields]).add(_CHANGE, "string"), spark)
    weight = f.create_map(*(f.lit(each) for pair in _WEIGHTS.items() for each in pair))[f.col(_CHANGE)]
    return rows.withColumn(WEIGHT, weight.cast("long")).drop(_CHANGE)


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
            *(dict(file.partition)[name] for name in outside),
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
