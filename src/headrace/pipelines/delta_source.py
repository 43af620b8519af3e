"""Spark data source "delta" for sessions that have none, backed by `deltalake`.

Spark analyses queries by it. In their plans a relation of Parquet files takes its place, which names the
table and holds no file yet; a run puts the rows of a version, or what changed, there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from headrace.errors import BadUri, HeadraceError, UnreadableSource
from headrace.file_system import local_path
from headrace.pipelines.definitions import DELTA, TableName
from headrace.queries.plan_details import (
    frame_of_plan,
    items,
    java_class,
    java_session,
    pairs,
    with_subqueries,
)
from headrace.requirements import require_package
from headrace.tables.versioned_table import VersionedTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_VERSION = "versionAsOf"
_PATH, _NUMBER = "headrace.delta.path", "headrace.delta.version"
_RATES = frozenset({"maxfilespertrigger", "maxbytespertrigger"})
"""Options of streams that say how much is read at once: a run reads all that there is."""


@dataclass(frozen=True, slots=True)
class DeltaRelation:
    """Delta table named in a query. version: None for the newest of a run."""

    path: str
    version: int | None

    @classmethod
    def of_options(cls, options: Mapping[str, str], root: str) -> DeltaRelation:
        """Return the table named by options. Raises `ValueError` if they name none.

        root: folder that relative paths start from.
        """
        given = {key.lower(): value for key, value in options.items()}
        known = {"path", _VERSION.lower(), *_RATES}
        if unknown := sorted(key for key in options if key.lower() not in known):
            raise ValueError(f"a Delta table is read here without the option {unknown[0]!r}; leave it out")
        if "path" not in given:
            raise ValueError("the Delta table has no path; give it to load()")
        version = given.get(_VERSION.lower())
        if version is not None and not version.isdigit():
            raise ValueError(f"{_VERSION} is {version!r}, which is no version of a Delta table")
        try:
            path = local_path(given["path"], "Delta table")
        except BadUri as error:
            raise ValueError(f"{error.what}; tables in folders of this machine can be read") from None
        return cls(os.path.normpath(os.path.join(root, path)), None if version is None else int(version))


def register_delta(spark: SparkSession, root: Path) -> None:
    """Register the data source, unless the session has one. root: folder that relative paths start from."""
    datasources = java_class(spark, "org.apache.spark.sql.execution.datasources.DataSource")
    try:
        datasources.lookupDataSource(DELTA, java_session(spark).sessionState().conf())
    except Py4JJavaError:
        spark.dataSource.register(_source(str(root)))


def delta_table(path: str) -> VersionedTable:
    """Return the Delta table in a folder. Each of its versions is opened once."""
    require_package(f"the Delta table at {path}", "deltalake", "delta")
    from headrace.tables.delta_table import DeltaLakeTable

    def error(what: str, why: str, fix: str, _cause: Exception) -> UnreadableSource:
        return UnreadableSource(f"{path} {what}", why=why.partition("\n")[0], fix=fix, source=path, path=path)

    return DeltaLakeTable(path, error, keeps_opened=True)


def reporting_version(table: VersionedTable, number: int | None) -> AbstractContextManager[None]:
    """Report errors as a missing version, or for None as a missing table."""
    if number is None:
        return table.reporting("is no Delta table", "correct the path")
    return table.reporting(f"has no version {number}", "give a version that is there, or none for the newest")


def _source(root: str) -> type[DataSource]:
    class DeltaSource(DataSource):
        """Data source of Delta tables, which Spark calls in its own processes."""

        @classmethod
        def name(cls) -> str:
            return DELTA

        def _table(self) -> DeltaRelation:
            return DeltaRelation.of_options(self.options, root)

        def schema(self) -> StructType:
            try:
                table = self._table()
                return spark_schema(delta_table(table.path), table.version)
            except HeadraceError as error:
                # The last line of its traceback is what Spark tells.
                raise ValueError(f"{error.what}: {error.why} ({error.fix})".replace("\n", " ")) from None

        def reader(self, schema: StructType) -> DataSourceReader:
            return _WholeReader(self._table(), schema)

    return DeltaSource


@dataclass
class _WholeReader(DataSourceReader):
    table: DeltaRelation
    columns: StructType

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return rows_of_version(self.table.path, self.table.version, self.columns)


def rows_of_version(path: str, number: int | None, columns: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a version with Spark's types for these columns."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted: Any = to_arrow_schema(columns, timezone="UTC")
    table = delta_table(path)
    with reporting_version(table, number):
        found = table.scan(number, columns=columns.names)
    for batch in found:
        yield from pa.Table.from_batches([batch]).select(columns.names).cast(wanted).to_batches()


def spark_schema(table: VersionedTable, number: int | None) -> StructType:
    """Return the columns of a version with Spark's types."""
    from pyspark.sql.types import StructType

    with reporting_version(table, number):
        return StructType.fromJson(_without_metadata(json.loads(table.schema_json(number))))


def _without_metadata(node: Any) -> Any:
    """Return the JSON of a type without field metadata, and with all fields nullable."""
    if isinstance(node, list):
        return [_without_metadata(each) for each in node]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    plain: dict[str, Any] = {key: _without_metadata(value) for key, value in node.items()}  # pyright: ignore[reportUnknownVariableType]
    plain |= {"metadata": {}} if "metadata" in plain else {}
    return plain | {key: True for key in ("nullable", "containsNull", "valueContainsNull") if key in plain}


# -- relations in plans ----------------------------------------------------------------------------


def with_delta_relations(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Replace the Delta tables that a query reads in a batch by relations of files."""
    plan: Any = frame._jdf.queryExecution().analyzed()  # pyright: ignore
    leaves = (leaf for each in with_subqueries(plan) for leaf in items(each.collectLeaves()))
    if all(leaf.nodeName() != "DataSourceV2Relation" for leaf in leaves):
        return frame

    def files(node: Any) -> Any:
        if node.nodeName() != "DataSourceV2Relation" or not _is_ours(node.table()):
            return None
        return _relation(
            node, DeltaRelation.of_options(dict(node.options().asCaseSensitiveMap()), os.getcwd()), spark
        )

    from headrace.queries.planning import PlanCopier

    return frame_of_plan(PlanCopier(spark, relations=files).plan(plan), spark)


def resolve_delta_paths(plan: Any, spark: SparkSession, datasets: Container[TableName]) -> Any:
    """Resolve paths of Delta tables in a parsed query, as in delta.`in/orders`.

    datasets: folded names that are no paths. Spark itself allows this for formats of its own only.
    """

    def table(node: Any) -> Any:
        if node.getClass().getSimpleName() != "UnresolvedRelation":
            return None
        parts = items(node.multipartIdentifier())
        if len(parts) != 2 or parts[0].lower() != DELTA or TableName(*parts).folded in datasets:
            return None
        reader = spark.readStream if node.isStreaming() else spark.read
        return reader.format(DELTA).load(parts[1])._jdf.queryExecution().analyzed()  # pyright: ignore

    from headrace.queries.planning import PlanCopier

    copier = PlanCopier(spark, relations=table)
    if plan.getClass().getSimpleName() != "UnresolvedWith":
        return copier.plan(plan)
    tuples = java_class(spark, "scala.Tuple3")
    named = [tuples(e._1(), copier.plan(e._2()), e._3()) for e in items(plan.cteRelations())]
    gateway: Any = spark.sparkContext._gateway
    given = gateway.new_array(java_class(spark, "java.lang.Object"), plan.productArity())
    for at in range(plan.productArity()):
        given[at] = plan.productElement(at)
    seq = java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq
    given[0], given[1] = copier.plan(plan.child()), seq(named)
    return plan.makeCopy(given)


def _is_ours(table: Any) -> bool:
    return table.name() == DELTA and table.getClass().getSimpleName() == "PythonTable"


def _relation(node: Any, table: DeltaRelation, spark: SparkSession) -> Any:
    """Build a relation without files that names a table, with a node's columns and attributes."""
    datasources = java_class(spark, "org.apache.spark.sql.execution.datasources")
    python = java_class(spark, "org.apache.spark.api.python.PythonUtils")
    option = java_class(spark, "scala.Option")
    named = {_PATH: table.path, _NUMBER: "" if table.version is None else str(table.version)}
    given = java_class(spark, "java.util.HashMap")()
    for key, value in named.items():
        given[key] = value
    options, schema = python.toScalaMap(given), node.schema()
    index = index_of_files([], options, schema, spark)
    made = datasources.HadoopFsRelation(
        index,
        java_class(spark, "org.apache.spark.sql.types.StructType")(),
        schema,
        option.empty(),
        java_class(spark, "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat")(),
        options,
        java_session(spark),
    )
    return datasources.LogicalRelation(made, node.output(), option.empty(), False, option.empty())


def index_of_files(paths: list[Any], options: Any, schema: Any, spark: SparkSession) -> Any:
    """Build Spark's index of files with known columns. paths: Hadoop paths."""
    datasources = java_class(spark, "org.apache.spark.sql.execution.datasources")
    defaults = getattr(datasources, "InMemoryFileIndex$").__getattr__("MODULE$")
    seq = java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq
    return datasources.InMemoryFileIndex(
        java_session(spark),
        seq(paths),
        options,
        java_class(spark, "scala.Some")(schema),
        getattr(defaults, "$lessinit$greater$default$5")(),
        getattr(defaults, "$lessinit$greater$default$6")(),
        getattr(defaults, "$lessinit$greater$default$7")(),
    )


def table_of_relation(relation: Any) -> DeltaRelation | None:
    """Return the Delta table that a relation represents; None for a relation of files."""
    options = dict(pairs(relation.options()))
    if _PATH not in options:
        return None
    number = options[_NUMBER]
    return DeltaRelation(options[_PATH], int(number) if number else None)


def table_of_stream(node: Any) -> DeltaRelation | None:
    """Return the table that a stream reads; None for other sources."""
    if node.sourceName() != DELTA or not _is_ours(node.table()):
        return None
    return DeltaRelation.of_options(dict(node.extraOptions().asCaseSensitiveMap()), os.getcwd())
