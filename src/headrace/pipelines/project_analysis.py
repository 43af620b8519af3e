"""Analysis of a project: its queries, analysed by Spark in the order in which they read each other.

A query is analysed when its datasets are known. Which these are, Spark tells: a query that reads a dataset
that is not there yet fails with the name of it, this one is analysed first, and the query again. What is
there is an empty table of the dataset's columns, whatever the table held before; so nothing is read.

Inputs that cannot be asked for their changes have hidden tables with their rows, the kept snapshots. A run
reads such an input once, when it recomputes the snapshot. What reads it gets the difference to the snapshot
before, and all tables of the run see the same rows.
"""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Container, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from pyspark.errors import PySparkException

from headrace.errors import HeadraceError, Step
from headrace.expr.spark_columns import quoted
from headrace.file_system import subfolder_for
from headrace.pipelines.catalog import TableEntry
from headrace.pipelines.definition_files import import_python_file, name_parts, queries_only, read_sql_file
from headrace.pipelines.definitions import (
    DROPPED,
    POLICY,
    RESERVED,
    SNAPSHOTS,
    VIOLATIONS,
    Dataset,
    DatasetKind,
    Definitions,
    Policy,
    QueryDefinition,
    TableName,
    definition_lines,
)
from headrace.pipelines.delta_source import with_delta_relations
from headrace.pipelines.errors import BadDefinition, QueryRefused, Report, reporting
from headrace.pipelines.expectation_queries import (
    check_can_drop,
    checked_conditions,
    columns_with_failed,
    failing_rows,
    kept_rows,
    with_declared_types,
)
from headrace.pipelines.expectations import OnViolation, with_action
from headrace.pipelines.input_identity import digest
from headrace.pipelines.leaves import Leaf, UnversionedLeaf, leaves_of, with_leaves
from headrace.pipelines.query_errors import message_of, refusal_of
from headrace.pipelines.spec import PipelineSpec
from headrace.pipelines.weighted_rows import can_be_grouped, kinds_in
from headrace.queries.plan_details import frame_of_plan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


from headrace.pipelines.graph import AnalysedQuery, Graph, StoredTable, settings, stored_schema


def read_definitions(spec: PipelineSpec, spark: SparkSession, report: Report | None = None) -> Definitions:
    """Read the files of a project. Raises `BadSpec` and `BadDefinition`, or reports them (see `analysed`)."""
    linecache.checkcache()  # Errors quote the files as they are now.
    definitions = Definitions(spec.database)
    for file, _ in spec.files():
        with reporting(report):
            if file.suffix == ".py":
                import_python_file(file, spec.root, definitions, spark)
            else:
                read_sql_file(file, definitions, spark, report)
    definitions.check(report)
    return definitions


@contextmanager
def analysed(
    definitions: Definitions,
    spark: SparkSession,
    empty: Path,
    entries: Mapping[TableName, TableEntry],
    report: Report | None = None,
) -> Generator[Graph]:
    """Provide the graph of a pipeline, with its datasets in the session's catalogue for the block.

    empty: folder for the empty tables. entries: of the last run.

    Raises `BadDefinition` and `QueryRefused`, or reports them and leaves out their datasets.
    """
    analyser = _Analyser(definitions, spark, empty, entries, report)
    try:
        yield analyser.graph()
    finally:
        analyser.close()


@dataclass(slots=True)
class _Analyser:
    definitions: Definitions
    spark: SparkSession
    empty: Path
    entries: Mapping[TableName, TableEntry]
    report: Report | None = None
    tables: dict[TableName, StoredTable] = field(default_factory=dict[TableName, StoredTable])
    done: set[TableName] = field(default_factory=set[TableName])
    path: list[TableName] = field(default_factory=list[TableName])
    created: list[TableName] = field(default_factory=list[TableName])
    snapshots: dict[str, TableName] = field(default_factory=dict[str, TableName])

    def graph(self) -> Graph:
        datasets = self.definitions.datasets
        databases = {self.definitions.database, *(each.name.database for each in datasets.values())}
        for database in sorted(databases):
            self._create_database(database)
        self.spark.catalog.setCurrentDatabase(self.definitions.database)
        for name in sorted(datasets):
            with reporting(self.report):
                self._analyse(name)
        return Graph(self.definitions, tuple(self.tables.values()), self._names())

    def _create_database(self, database: str) -> None:
        try:
            self.spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
        except PySparkException as error:
            named = [d.location for d in self.definitions.datasets.values() if d.name.database == database]
            raise BadDefinition(
                f"Spark has no database {database!r}",
                where=named[:1],
                why=message_of(error),
                fix="name it by letters, digits and underscores",
                dataset=database,
            ) from None

    def close(self) -> None:
        for name in self.created:
            self.spark.sql(f"DROP TABLE IF EXISTS {name.quoted}")

    def _names(self) -> Mapping[TableName, TableName]:
        defined = {folded: each.name for folded, each in self.definitions.datasets.items()}
        added = {name: name for name in self.snapshots.values()}
        beside = {name: table.name for name, table in self.tables.items() if table.dataset.beside is not None}
        return defined | added | beside

    def _analyse(self, name: TableName) -> None:
        if name in self.done:
            return
        dataset = self.definitions.checked(name)
        if dataset.is_stored:
            table = self._table(dataset)
            if dataset.expectations:
                with self._undone_on_error():
                    self._add_with_expectations(table)
            else:
                self.tables[name] = table
                if dataset.kind is not DatasetKind.SINK:
                    self._create_empty(table)
        elif not self._create_view(dataset):
            return
        self.done.add(name)

    def _create_view(self, dataset: Dataset) -> bool:
        """Create a temporary view; return whether its sources are reachable, as its readers require."""
        try:
            (query,) = self._queries(dataset)
        except QueryRefused as refused:
            if self.path or not refused.unreachable:
                raise
            return False
        query.frame.createOrReplaceTempView(quoted(dataset.name.table))
        return True

    def _queries(self, dataset: Dataset) -> tuple[AnalysedQuery, ...]:
        self.path.append(dataset.name.folded)
        try:
            queries = tuple(map(self._query, self.definitions.queries[dataset.name.folded]))
        finally:
            self.path.pop()
        self._check_kinds(dataset, queries)
        return queries

    def _table(self, dataset: Dataset) -> StoredTable:
        """Return a stored table, as of the last run if a source cannot be reached."""
        from pyspark.sql.types import StructType

        try:
            queries = self._queries(dataset)
        except QueryRefused as refused:
            entry = self.entries.get(dataset.name)
            if entry is None or not refused.unreachable:
                raise
            return StoredTable(dataset, (), StructType.fromJson(json.loads(entry.schema)), refused)
        if dataset.kind is DatasetKind.TEMPORARY_VIEW:  # It has expectations, and so rows of its own.
            streams = queries[0].frame.isStreaming
            kind = DatasetKind.STREAMING_TABLE if streams else DatasetKind.MATERIALIZED_VIEW
            dataset = replace(dataset, kind=kind)
        return StoredTable(dataset, queries, _schema(dataset, queries))

    @contextmanager
    def _undone_on_error(self) -> Generator[None]:
        """Remove the tables that the block has added if it raises: the next reader analyses them again."""
        tables, created = dict(self.tables), len(self.created)
        try:
            yield
        except HeadraceError:
            for name in self.created[created:]:
                self.spark.sql(f"DROP TABLE IF EXISTS {name.quoted}")
            del self.created[created:]
            self.tables = tables
            raise

    def _add_with_expectations(self, table: StoredTable) -> None:
        """Add a table that drops rows, and the tables of its dropped rows and of other violations.

        The dropped rows come before the table, its violations after it.
        """
        self._create_empty(table)
        dataset, read = table.dataset, self.spark.table(table.name.quoted)
        conditions = checked_conditions(dataset, read)
        dropping = {
            each.name: conditions[each.name] for each in with_action(dataset.expectations, OnViolation.DROP)
        }
        others = {name: column for name, column in conditions.items() if name not in dropping}
        if dropping:
            dropped = self._beside(table, DROPPED, self._dropped(table, dropping))
            rows = self.spark.table(dropped.name.quoted).select(*map(quoted, table.schema.names))
            table, read = self._without_dropped(table, dropping), read.unionAll(rows)
        self.tables[table.name.folded] = table
        if others:
            violations = self._violations(table, failing_rows(read, others))
            self._beside(table, VIOLATIONS, (violations,))

    def _dropped(self, table: StoredTable, dropping: Mapping[str, Column]) -> tuple[AnalysedQuery, ...]:
        name = table.name.beside(DROPPED)
        for each in table.queries:
            check_can_drop(table.dataset, each.frame, records=each.query.cdc is not None)
        return tuple(
            self._analysed(
                replace(each.query, target=name),
                failing_rows(with_declared_types(each.frame, table.schema), dropping),
            )
            for each in table.queries
        )

    def _without_dropped(self, table: StoredTable, dropping: Mapping[str, Column]) -> StoredTable:
        kept = (
            self._analysed(
                each.query, kept_rows(with_declared_types(each.frame, table.schema), [*dropping.values()])
            )
            for each in table.queries
        )
        return replace(table, queries=tuple(kept))

    def _violations(self, table: StoredTable, rows: DataFrame) -> AnalysedQuery:
        name, location = table.name.beside(VIOLATIONS), table.dataset.location
        given = {key: value for each in table.queries for key, value in each.query.settings.items()}
        return self._analysed(QueryDefinition(name.table, name, lambda: rows, location, settings=given), rows)

    def _beside(self, table: StoredTable, end: str, queries: tuple[AnalysedQuery, ...]) -> StoredTable:
        """Add a table beside another one; without queries where that one cannot be brought up to date."""
        dataset, name = table.dataset, table.name.beside(end)
        kind, properties = dataset.kind, {POLICY: Policy.INCREMENTAL.value}
        if end == DROPPED:
            properties = {key: value for key, value in dataset.properties.items() if key == POLICY}
        else:
            kind = DatasetKind.MATERIALIZED_VIEW
        made = Dataset(name, kind, dataset.location, properties=properties, beside=table.name)
        columns = stored_schema(columns_with_failed(table.schema))
        added = StoredTable(made, () if table.failure else queries, columns, table.failure)
        self.tables[name.folded] = added
        self._create_empty(added)
        return added

    def _query(self, query: QueryDefinition) -> AnalysedQuery:
        while True:
            try:
                with settings(self.spark, query.settings), queries_only():
                    frame = query.frame()
                break
            except Exception as error:
                missing = self._missing_dataset(error)
                if missing is None:
                    raise refusal_of(query, error) from None
                self._analyse_first(missing, query)
        if not hasattr(frame, "_jdf"):
            raise QueryRefused(
                f"the query of {query.target} returns {type(frame).__name__}, not a DataFrame",
                where=[query.location],
                fix="return the DataFrame",
                dataset=str(query.target),
            )
        return self._read_from_snapshots(self._analysed(query, with_delta_relations(frame, self.spark)))

    def _analysed(self, query: QueryDefinition, frame: DataFrame) -> AnalysedQuery:
        without_leaves = AnalysedQuery(query, frame, ())
        with settings(self.spark, query.settings):  # The time zone of a query is one of what its leaves say.
            leaves = leaves_of(without_leaves.plan, self._names(), self.spark)
        return replace(without_leaves, leaves=tuple(leaves))

    def _read_from_snapshots(self, query: AnalysedQuery) -> AnalysedQuery:
        """Replace inputs that cannot report changes by their kept snapshots."""
        kept = {leaf.exact: self._snapshot(leaf, query.query) for leaf in query.leaves if is_kept(leaf)}
        if not kept:
            return query
        read = {exact: partial(self.spark.table, name.quoted) for exact, name in kept.items()}
        frame = with_leaves(query.plan, read, self._names(), self.spark, streams=True)
        return self._analysed(query.query, frame)

    def _snapshot(self, leaf: UnversionedLeaf, query: QueryDefinition) -> TableName:
        """Return the kept snapshot of an input, shared by all its readers. query: its first reader."""
        if leaf.exact not in self.snapshots:
            name = name_of_snapshot(leaf, self.tables)
            frame = frame_of_plan(leaf.node, self.spark)
            own = QueryDefinition(name.table, name, lambda: frame, query.location, settings=query.settings)
            dataset = Dataset(name, DatasetKind.SNAPSHOT, query.location, input=leaf.key)
            columns = stored_schema(columns_of_snapshot(frame.schema))
            table = StoredTable(dataset, (AnalysedQuery(own, frame, (leaf,)),), columns)
            self._create_database(name.database)
            self._create_empty(table)
            self.tables[name], self.snapshots[leaf.exact] = table, name
        return self.snapshots[leaf.exact]

    def _missing_dataset(self, error: Exception) -> TableName | None:
        """Return the dataset that a query did not find; None for other errors."""
        from pyspark.errors import AnalysisException

        if not isinstance(error, AnalysisException) or error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            return None
        parts = name_parts((error.getMessageParameters() or {})["relationName"], self.spark)
        if len(parts) > 3:
            return None
        *before, table = parts
        name = TableName(before[-1] if before else self.definitions.database, table).owner.folded
        return name if name in self.definitions.datasets and name not in self.done else None

    def _analyse_first(self, missing: TableName, query: QueryDefinition) -> None:
        if missing in self.path:
            cycle = [self.definitions.datasets[each] for each in self.path[self.path.index(missing) :]]
            raise BadDefinition(
                "datasets read each other: " + " <- ".join(str(each.name) for each in (*cycle, cycle[0])),
                where=[Step(each.location, str(each.name)) for each in cycle],
                fix="let one of them read what the other reads instead",
                dataset=str(query.target),
            )
        self._analyse(missing)

    def _check_kinds(self, dataset: Dataset, queries: tuple[AnalysedQuery, ...]) -> None:
        for each in queries:
            streaming: bool = each.frame.isStreaming
            if dataset.kind in (DatasetKind.STREAMING_TABLE, DatasetKind.SINK) and not streaming:
                what, fix = (
                    "reads no stream",
                    "spark.readStream, STREAM(table); or make it a materialized view",
                )
            elif dataset.kind is DatasetKind.MATERIALIZED_VIEW and streaming:
                what, fix = "reads a stream", "spark.read, or make it a streaming table: @dp.table"
            else:
                continue
            raise BadDefinition(
                f"{dataset.kind.value} {dataset.name} {what}",
                where=[each.query.location],
                fix=fix,
                dataset=str(dataset.name),
            )

    def _create_empty(self, table: StoredTable) -> None:
        name = table.name
        try:
            self._create(table)
        except (PySparkException, OSError) as error:
            raise BadDefinition(
                f"Spark has no table {name}",
                where=[table.dataset.location],
                why=message_of(error),
                fix="correct its name and columns",
                dataset=str(name),
            ) from None

    def _create(self, table: StoredTable) -> None:
        name = table.name
        if self.spark.catalog.tableExists(name.quoted):
            raise BadDefinition(
                f"the session has a table {name} already",
                where=[table.dataset.location],
                fix="run the pipeline in a session of its own, or name the table otherwise",
                dataset=str(name),
            )
        folder = subfolder_for(subfolder_for(self.empty, name.database), name.table)
        folder.mkdir(parents=True, exist_ok=True)
        self.spark.catalog.createTable(name.quoted, str(folder), "parquet", table.schema)
        self.created.append(name)


def _schema(dataset: Dataset, queries: tuple[AnalysedQuery, ...]) -> StructType:
    """Return the columns of a table. Raises `BadDefinition` if queries and declaration disagree."""
    from pyspark.sql.types import StructType

    declared: Any = dataset.schema
    if isinstance(declared, str):
        declared = StructType.fromDDL(declared)
    whole: StructType = declared if declared is not None else _columns_of_query(queries[0])
    names = {field.name for field in whole.fields}
    for each in queries:
        other = {field.name for field in _columns_of_query(each).fields}
        if other != names:
            difference = ", ".join(sorted(names ^ other))
            raise BadDefinition(
                f"the columns of {dataset.name} are not those of its query: {difference}",
                where=definition_lines(dataset, [each.query]),
                fix="select exactly the columns of the table",
                dataset=str(dataset.name),
            )
    for column in dataset.partitioned_by:
        if column not in names:
            raise BadDefinition(
                f"{dataset.name} is partitioned by {column!r}, which it does not have",
                where=[dataset.location],
                fix=f"one of: {', '.join(sorted(names))}",
                dataset=str(dataset.name),
            )
    for each in whole.fields:
        if each.dataType.simpleString() in ("void", "array<void>"):
            raise BadDefinition(
                f"column {each.name!r} of {dataset.name} has no type",
                where=definition_lines(dataset, [query.query for query in queries]),
                fix=f"cast it: CAST(NULL AS STRING) AS {each.name}",
                dataset=str(dataset.name),
            )
    if 0 < len(dataset.partitioned_by) == len(whole.fields):
        raise BadDefinition(
            f"{dataset.name} is partitioned by all its columns",
            where=[dataset.location],
            fix="leave one out",
            dataset=str(dataset.name),
        )
    if len({name.lower() for name in whole.fieldNames()}) < len(whole.fields):
        raise BadDefinition(
            f"{dataset.name} has two columns of one name: {', '.join(whole.fieldNames())}",
            where=definition_lines(dataset, [each.query for each in queries]),
            fix="name one of them otherwise; names have no case",
            dataset=str(dataset.name),
        )
    for column in names:
        if column.lower().startswith(RESERVED):
            raise BadDefinition(
                f"{dataset.name} has a column {column!r}",
                where=definition_lines(dataset, [each.query for each in queries]),
                why=f"Names that begin with {RESERVED} are for what a run adds itself.",
                fix="name it otherwise",
                dataset=str(dataset.name),
            )
    last = [whole[column] for column in dataset.partitioned_by]
    first = [each for each in whole.fields if each.name not in dataset.partitioned_by]
    return stored_schema(StructType([*first, *last]))


def _columns_of_query(analysed: AnalysedQuery) -> StructType:
    """Return the columns that a query contributes to its table."""
    query = analysed.query
    frame = analysed.frame
    return frame.schema if query.cdc is None else query.cdc.schema(frame, query.location)


def is_kept(leaf: Leaf) -> TypeGuard[UnversionedLeaf]:
    """Return whether snapshots of an input are kept: its rows can be stored, and compared."""
    from pyspark.sql.types import StructType

    if not isinstance(leaf, UnversionedLeaf) or leaf.identity is None:
        return False
    schema = StructType.fromJson(json.loads(leaf.node.schema().json()))
    names = [name.lower() for name in schema.names]
    named_well = len({*names}) == len(names) and not any(name.startswith(RESERVED) for name in names)
    return named_well and not kinds_in(schema) & {"void", "udt"} and can_be_grouped(schema)


def name_of_snapshot(leaf: UnversionedLeaf, taken: Container[TableName]) -> TableName:
    """Return the name of an input's snapshot: stable across runs, and not among the `taken` ones."""
    assert leaf.identity is not None
    called = re.sub(r"\W+", "_", leaf.identity.title.lower(), flags=re.ASCII).strip("_")[:_LONGEST]
    name, number = f"{called}_{digest(leaf.identity.description)}", 1
    found = TableName(SNAPSHOTS, name)
    while found in taken:
        number += 1
        found = TableName(SNAPSHOTS, f"{name}_{number}")
    return found


_LONGEST = 40
"""Characters of a name that come from its input."""


def columns_of_snapshot(schema: StructType) -> StructType:
    """Return the columns of a snapshot as stored: nullable, without database metadata."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, each.dataType) for each in schema.fields])
