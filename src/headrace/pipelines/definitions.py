"""Definitions in the files of a pipeline: datasets, the queries that fill them, and AUTO CDC flows.

An AUTO CDC flow is a table held by key from change records. SCD type 1 is the operator `upsert`; type 2,
with all versions, is `history` (docs/reference/keyed-tables.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from headrace.errors import SourceLocation
from headrace.expr.spark_columns import quoted
from headrace.pipelines.errors import BadDefinition, Report, UnknownDataset, reporting
from headrace.pipelines.expectations import Expectation, check_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headrace.queries.catalyst_plan import QueryText


SEQUENCE, DELETED = "__headrace_sequence", "__headrace_deleted"
"""Columns that a flow adds to the records of its source."""

TOMBSTONES = "headrace.tombstones"
"""Property of a table of type 1: how far behind the highest sequence those of deleted keys are kept."""

START_AT, END_AT = "__START_AT", "__END_AT"
"""Columns of a table of type 2: the sequences from which on a version holds, and up to which."""


@dataclass(frozen=True, slots=True)
class AutoCdc:
    """Specification of an AUTO CDC flow: how change records become rows of a table.

    source:    dataset whose records are read as a stream. keys: columns that identify a row.
    sequence:  orders the records of a key, in whatever order they come.
    deleted:   condition of the records that delete.
    included:  columns of the table; None: all but `excluded`. tracked, untracked: the same, of those whose
               change makes a version. versions: whether all versions are kept (type 2).
    """

    source: str
    keys: tuple[str, ...]
    sequence: Column
    deleted: Column | None
    included: tuple[str, ...] | None
    excluded: tuple[str, ...]
    versions: bool
    tracked: tuple[str, ...] | None
    untracked: tuple[str, ...]

    def records(self, spark: SparkSession) -> DataFrame:
        """Read the records of the source, each with its sequence and a deletion flag."""
        from pyspark.sql import functions as f

        deleted = f.lit(False) if self.deleted is None else f.coalesce(self.deleted, f.lit(False))
        return spark.readStream.table(self.source).select(
            "*", self.sequence.alias(SEQUENCE), deleted.alias(DELETED)
        )

    def columns(self, records: DataFrame, location: SourceLocation) -> list[str]:
        """Return the columns that the table takes from records. Raises `BadDefinition` for unknown ones."""
        return _chosen("columns", _without_ours(records), self.included, self.excluded, location)

    def schema(self, records: DataFrame, location: SourceLocation) -> StructType:
        """Return the columns of the table."""
        from pyspark.sql.types import StructType

        chosen = self.columns(records, location)
        _chosen("keys", _without_ours(records), self.keys, (), location)
        made = StructType([records.schema[name] for name in chosen])
        if self.versions:
            at = records.schema[SEQUENCE].dataType
            made = made.add(START_AT, at).add(END_AT, at)
        return made

    def table(
        self, records: DataFrame, tombstones: str | None, location: SourceLocation
    ) -> Callable[[Any], Any]:
        """Build the function from a stream of records to the stream of the table's rows.

        tombstones: a number of steps of the sequence, or a time; None keeps them for good.
        """
        from headrace.expr.constructors import struct
        from headrace.expr.tree import Column as Read
        from headrace.operators.keyed_tables.history import END, START
        from headrace.operators.keyed_tables.upsert_rule import COMMITS
        from headrace.queries.plan_details import java_session

        if tombstones is not None and self.versions:
            raise BadDefinition(
                f"{TOMBSTONES} is {tombstones!r}, and the table is of SCD type 2, which keeps all records",
                where=[location],
                fix="leave it out",
                dataset="",
            )
        chosen = self.columns(records, location)
        tracked = _chosen("tracked columns", chosen, self.tracked, self.untracked, location)
        row = struct(**{name: Read(name) for name in chosen})
        keys = _chosen("keys", _without_ours(records), self.keys, (), location)

        # Commits of a Delta table are known by their name (see `UpsertRule`).
        ordered: Any = java_session(records.sparkSession).expression(self.sequence._jc)  # pyright: ignore
        is_commit = ordered.nodeName() == "UnresolvedAttribute" and ordered.name() == COMMITS
        order = COMMITS if is_commit else SEQUENCE

        def upserted(stream: Any) -> Any:
            return stream.upsert(
                keys,
                row=row,
                deleted=Read(DELETED),
                sequence=order,
                on_misfit="trust_key",
                tombstones=int(tombstones) if tombstones and tombstones.isdecimal() else tombstones,
            )

        def with_history(stream: Any) -> Any:
            versions = stream.history(
                keys, sequence=order, row=row, deleted=Read(DELETED), track=tracked, on_misfit="trust_key"
            )
            dated = {START_AT: Read(START), END_AT: Read(END)}
            return versions.select(**{name: Read(name) for name in chosen}, **dated)

        return with_history if self.versions else upserted


def _without_ours(records: DataFrame) -> list[str]:
    return [name for name in records.columns if name not in (SEQUENCE, DELETED)]


def _chosen(
    what: str,
    there: list[str],
    included: tuple[str, ...] | None,
    excluded: tuple[str, ...],
    location: SourceLocation,
) -> list[str]:
    by_folded = {name.lower(): name for name in there}
    for name in (*(included or ()), *excluded):
        if name.lower() not in by_folded:
            raise BadDefinition(
                f"the AUTO CDC flow names {name!r} among its {what}, which its source does not have",
                where=[location],
                fix=f"one of: {', '.join(there)}",
                dataset="",
            )
    if included is not None:
        return [by_folded[name.lower()] for name in included]
    left_out = {name.lower() for name in excluded}
    return [name for name in there if name.lower() not in left_out]


# --- refresh policies -----------------------------------------------------------------------------


POLICY = "headrace.refresh_policy"
"""Property of a table, and setting of a pipeline."""


class Policy(Enum):
    """Refresh policy of a materialized view (docs/reference/pipelines.md)."""

    INCREMENTAL_STRICT = "incremental_strict"
    INCREMENTAL = "incremental"
    AUTO = "auto"
    FULL = "full"


class Place(Enum):
    """Place where tables are brought up to date.

    AUTO:  in this process where that is possible, else by Spark.
    HERE:  in this process; a table that needs Spark fails.
    SPARK: by Spark.
    """

    AUTO = "auto"
    HERE = "here"
    SPARK = "spark"


def parse_policy(text: str, of: str, where: list[SourceLocation]) -> Policy:
    """Parse a policy. Raises `BadDefinition`, located at `where`. of: names its owner in the error."""
    try:
        return Policy(text.lower())
    except ValueError:
        raise BadDefinition(
            f"{of} has the refresh policy {text!r}",
            where=where,
            fix=f"one of: {', '.join(policy.value for policy in Policy)}",
        ) from None


CATALOG = "spark_catalog"

RESERVED = "__headrace_"
"""Prefix of the names of our own columns."""

SNAPSHOTS = f"{RESERVED}snapshots"
"""Database of kept snapshots."""

SHARED = f"{RESERVED}shared"
"""Database of shared parts."""

SHARING = "headrace.shared_parts"
"""Setting of a pipeline: whether equal parts of its tables are kept once."""

DROPPED, VIOLATIONS = f"{RESERVED}dropped", f"{RESERVED}violations"
"""Ends of the names of tables beside a table: rows that its expectations drop, and its other violations."""

FAILED_EXPECTATIONS = "failed_expectations"
"""Column of dropped rows and of violations: names of the expectations that a row fails, an array."""

DELTA = "delta"
CHANGELOG = "changelog"

_FORMATS = ("parquet", "orc")


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """Name of a dataset in its database. Names that differ in case only are the same to Spark."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{CATALOG}.{self.database}.{self.table}"

    @property
    def quoted(self) -> str:
        """The name in SQL."""
        return f"{quoted(self.database)}.{quoted(self.table)}"

    @property
    def is_hidden(self) -> bool:
        """Whether it names a kept snapshot or a shared part, which no user has defined."""
        return self.database in (SNAPSHOTS, SHARED)

    @property
    def keys(self) -> tuple[str, str]:
        """Names of the table as an input in positions: read whole, and as a stream."""
        return f"table {self}", f"stream {self}"

    @property
    def folded(self) -> TableName:
        """The name as Spark compares it."""
        return TableName(self.database.lower(), self.table.lower())

    def beside(self, end: str) -> TableName:
        """Name of a table beside this one. end: `DROPPED` or `VIOLATIONS`."""
        return TableName(self.database, f"{self.table}{end}")

    @property
    def owner(self) -> TableName:
        """Name of the table that this one is beside; its own name if there is none."""
        ended = (end for end in (DROPPED, VIOLATIONS) if self.table.lower().endswith(end))
        return TableName(self.database, self.table[: -len(next(ended, "")) or None])


class DatasetKind(Enum):
    """Kind of a dataset. The value is its name in messages."""

    MATERIALIZED_VIEW = "materialized view"
    STREAMING_TABLE = "streaming table"
    TEMPORARY_VIEW = "temporary view"
    SINK = "sink"
    SNAPSHOT = "snapshot"
    SHARED = "shared part"

    @property
    def is_stored(self) -> bool:
        return self is not DatasetKind.TEMPORARY_VIEW

    @property
    def is_hidden(self) -> bool:
        """Whether a run adds it itself, for what the tables of the project read."""
        return self in (DatasetKind.SNAPSHOT, DatasetKind.SHARED)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table, view or sink, a kept snapshot of an input, or a shared part of tables.

    schema:     declared columns, as Spark's type or DDL; None where the query decides.
    format:     of the files of its versions; of a sink, where the rows go.
    properties: of a table; the options of a sink.
    input:      what a snapshot is of.
    delivery:   format in which each version is delivered besides; empty: in none.
    expectations: conditions on its rows.
    beside:     of a table of dropped rows or violations, the table whose rows they are.
    shared_by:  of a shared part, the tables that have it.
    """

    name: TableName
    kind: DatasetKind
    location: SourceLocation
    schema: StructType | str | None = None
    partitioned_by: tuple[str, ...] = ()
    format: str = "parquet"
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    delivery: str = ""
    input: str = ""
    expectations: tuple[Expectation, ...] = ()
    beside: TableName | None = None
    shared_by: tuple[TableName, ...] = ()

    @property
    def is_stored(self) -> bool:
        """Whether it has rows of its own. A temporary view is kept as a table if it has expectations."""
        return self.kind.is_stored or bool(self.expectations)

    @property
    def title(self) -> str:
        """Name shown to users."""
        if self.beside is not None:
            rows = "dropped rows" if self.name == self.beside.beside(DROPPED) else "violations"
            return f"{rows} of {self.beside}"
        if self.shared_by:
            return f"{self.kind.value} of {', '.join(map(str, self.shared_by))}"
        return f"{self.kind.value} of {self.input}" if self.input else str(self.name)

    @property
    def made_with(self) -> TableName:
        """Name that a user gives to --full-refresh to have it made anew."""
        return next(iter(self.shared_by), self.name)


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """A query that writes to a dataset.

    name:     of the flow; that of its dataset where it has no other.
    frame:    makes the DataFrame; a dataset that is not there yet is Spark's error of a missing table.
    text:     of a query in SQL.
    cdc:      what is made of the rows of an AUTO CDC flow, which are records.
    settings: of the session while it is analysed and runs.
    """

    name: str
    target: TableName
    frame: Callable[[], DataFrame]
    location: SourceLocation
    text: QueryText | None = None
    cdc: AutoCdc | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


def definition_lines(dataset: Dataset, queries: Iterable[QueryDefinition]) -> list[SourceLocation]:
    """Return the lines that define a dataset and its queries, each once."""
    return list(dict.fromkeys([dataset.location, *(query.location for query in queries)]))


def parse_table_name(text: str, database: str) -> TableName:
    """Parse the name of a table on the command line. database: of names without one."""
    *before, table = (part.strip("`") for part in text.split("."))
    if len(before) > 1 and before[0].lower() == CATALOG:
        del before[0]
    return TableName(".".join(before) or database, table)


@dataclass(slots=True)
class Definitions:
    """Datasets and queries defined by a pipeline's files. database: of names without one."""

    database: str
    datasets: dict[TableName, Dataset] = field(default_factory=dict[TableName, Dataset])
    queries: dict[TableName, list[QueryDefinition]] = field(
        default_factory=dict[TableName, list[QueryDefinition]]
    )

    def add_dataset(self, dataset: Dataset) -> None:
        """Add a dataset. Raises `BadDefinition` if its name is taken, ignoring case."""
        other = self.datasets.get(dataset.name.folded)
        if other is not None:
            raise BadDefinition(
                f"{dataset.name} is defined twice"
                + ("" if other.name == dataset.name else f", once as {other.name}"),
                where=[other.location, dataset.location],
                why="" if other.name == dataset.name else "To Spark these are one name, and were one table.",
                fix="give one of them another name",
                dataset=str(dataset.name),
            )
        if RESERVED in str(dataset.name.folded):
            raise BadDefinition(
                f"a {dataset.kind.value} is called {dataset.name}",
                where=[dataset.location],
                why=f"Names with {RESERVED} are for tables that a run adds itself.",
                fix="name it otherwise",
                dataset=str(dataset.name),
            )
        if dataset.kind is not DatasetKind.SINK and dataset.format in (DELTA, CHANGELOG):
            dataset = replace(dataset, format="parquet", delivery=dataset.format)
        self.datasets[dataset.name.folded] = dataset

    def add_expectations(self, name: TableName, expectations: Iterable[Expectation]) -> None:
        """Add expectations to a dataset, before others: decorators apply from the last one to the first.

        Raises `BadDefinition` for their names, and for a sink.
        """
        dataset = self.datasets[name.folded]
        whole = (*expectations, *dataset.expectations)
        check_names(whole, str(dataset.name))
        if whole and dataset.kind is DatasetKind.SINK:
            raise BadDefinition(
                f"sink {dataset.name} has expectations",
                where=[whole[0].location],
                fix="declare them on the table that its flow reads",
                dataset=str(dataset.name),
            )
        self.datasets[name.folded] = replace(dataset, expectations=whole)

    def add_query(self, query: QueryDefinition) -> None:
        """Add a query. Raises `BadDefinition` for a second query of the same name."""
        others = self.queries.setdefault(query.target.folded, [])
        for other in others:
            if other.name == query.name:
                raise BadDefinition(
                    f"{query.target} has two flows {query.name!r}",
                    where=[other.location, query.location],
                    fix="give one of them another name",
                    dataset=str(query.target),
                )
        others.append(query)

    def name(self, parts: list[str], location: SourceLocation) -> TableName:
        """Build the full name from its parts. Raises `BadDefinition` for another catalogue."""
        if len(parts) > 3 or (len(parts) == 3 and parts[0].lower() != CATALOG):
            raise BadDefinition(
                f"{'.'.join(parts)} is not in {CATALOG}",
                where=[location],
                why="Tables of a pipeline lie under its storage, in one catalogue.",
                fix="name it database.table, or table",
                dataset=".".join(parts),
            )
        *before, table = parts
        return TableName(before[-1] if before else self.database, table)

    def find(self, text: str) -> Dataset:
        """Find a dataset by its name on the command line. Raises `UnknownDataset`."""
        found = self.datasets.get(parse_table_name(text, self.database).folded)
        if found is None or not found.is_stored:
            known = ", ".join(sorted(str(d.name) for d in self.datasets.values() if d.is_stored))
            raise UnknownDataset(
                f"the pipeline has no table {text!r}",
                fix=f"give one of: {known or 'none is defined'}",
                dataset=text,
            )
        return found

    def check(self, report: Report | None = None) -> None:
        """Raise or report `BadDefinition` for queries without a dataset, and like `checked`."""
        for name, queries in self.queries.items():
            with reporting(report):
                if name not in self.datasets:
                    raise BadDefinition(
                        f"flow {queries[0].name!r} goes to {queries[0].target}, which nothing defines",
                        where=[queries[0].location],
                        fix="define it: dp.create_streaming_table(...), or CREATE STREAMING TABLE",
                        dataset=str(queries[0].target),
                    )
        for name in self.datasets:
            with reporting(report):
                self.checked(name)

    def checked(self, name: TableName) -> Dataset:
        """Return a dataset by its folded name. Raises `BadDefinition` for a bad format or query count."""
        dataset, queries = self.datasets[name], self.queries.get(name, [])
        if dataset.format not in _FORMATS and dataset.kind is not DatasetKind.SINK:
            raise BadDefinition(
                f"{dataset.name} has the format {dataset.format!r}",
                where=[dataset.location],
                fix=f"one of: {', '.join((*_FORMATS, DELTA))}",
                dataset=str(dataset.name),
            )
        several = dataset.kind in (DatasetKind.STREAMING_TABLE, DatasetKind.SINK)
        if not queries or (len(queries) > 1 and not several):
            raise BadDefinition(
                f"{dataset.kind.value} {dataset.name} has {len(queries) or 'no'} queries",
                where=definition_lines(dataset, queries),
                fix="give a streaming table or sink one flow at least, a view exactly one query",
                dataset=str(dataset.name),
            )
        records = [query for query in queries if query.cdc is not None]
        if records and (len(queries) > 1 or dataset.kind is not DatasetKind.STREAMING_TABLE):
            raise BadDefinition(
                f"{dataset.kind.value} {dataset.name} has an AUTO CDC flow and "
                + ("another one" if len(queries) > 1 else "is no streaming table"),
                where=definition_lines(dataset, queries),
                fix="give the AUTO CDC flow a streaming table of its own",
                dataset=str(dataset.name),
            )
        return dataset
