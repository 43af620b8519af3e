"""Graph of a pipeline: stored tables with their analysed queries, each after those that it reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.expr.spark_columns import quoted
from headrace.pipelines.catalog import SINK, Position, Positions, TableEntry
from headrace.pipelines.definitions import (
    Dataset,
    DatasetKind,
    Definitions,
    QueryDefinition,
    TableName,
)
from headrace.pipelines.errors import QueryRefused
from headrace.pipelines.leaves import Leaf, TableLeaf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class AnalysedQuery:
    """A query with its plan. leaves: the relations that it reads, those of temporary views included."""

    query: QueryDefinition
    frame: DataFrame
    leaves: tuple[Leaf, ...]

    @property
    def plan(self) -> Any:
        return self.frame._jdf.queryExecution().analyzed()  # pyright: ignore


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Stored dataset of the graph, with its analysed queries.

    schema:  its columns, those it is partitioned by last.
    failure: why it cannot be brought up to date in this run; it has no queries then.
    """

    dataset: Dataset
    queries: tuple[AnalysedQuery, ...]
    schema: StructType
    failure: QueryRefused | None = None

    @property
    def name(self) -> TableName:
        return self.dataset.name

    @property
    def layout(self) -> str:
        """File format and partition columns; `SINK` for a sink."""
        if self.dataset.kind is DatasetKind.SINK:
            return SINK
        return " ".join((self.dataset.format, *map(quoted, self.dataset.partitioned_by)))

    @property
    def reads(self) -> frozenset[TableName]:
        """Tables of the pipeline that it reads."""
        leaves = (leaf for query in self.queries for leaf in query.leaves)
        return frozenset(leaf.name for leaf in leaves if isinstance(leaf, TableLeaf))

    def positions_in(self, entry: TableEntry) -> Positions | None:
        """Return how far a version has read the inputs of all its flows; None where two flows differ."""
        found: dict[str, Position | None] = {}
        for query in self.queries:
            read = entry.positions.get(query.query.name, {})
            for leaf in query.leaves:
                position = read.get(leaf.key)
                if found.setdefault(leaf.key, position) != position:
                    return None
        return found


@dataclass(frozen=True, slots=True)
class Graph:
    """Stored tables, each after those that it reads. names: of all datasets, by their folded names."""

    definitions: Definitions
    tables: tuple[StoredTable, ...]
    names: Mapping[TableName, TableName]

    def table(self, name: TableName) -> StoredTable:
        return next(table for table in self.tables if table.name == name)

    def readers_of(self, name: TableName) -> list[StoredTable]:
        return [table for table in self.tables if name in table.reads]

    def beside(self, name: TableName) -> list[StoredTable]:
        """Return the tables of a table's dropped rows and violations."""
        return [table for table in self.tables if table.dataset.beside == name]

    def read_by(self, table: StoredTable) -> frozenset[TableName]:
        """Return the tables that a table and those beside it read, without these."""
        together = (table, *self.beside(table.name))
        return frozenset().union(*(each.reads for each in together)) - {each.name for each in together}

    def hidden_inputs_of(self, names: Set[TableName]) -> frozenset[TableName]:
        """Return the kept snapshots and shared parts that some tables read, also through others of these."""
        read = {name for table in self.tables if table.name in names for name in self.read_by(table)}
        found = frozenset(name for name in read if self.table(name).dataset.kind.is_hidden)
        return found | self.hidden_inputs_of(found) if found else found


def stored_schema(schema: StructType) -> StructType:
    """Return columns as files store them: all nullable."""
    from pyspark.sql.types import StructType

    text = schema.json()
    for flag in ("nullable", "containsNull", "valueContainsNull"):
        text = text.replace(f'"{flag}":false', f'"{flag}":true')
    return StructType.fromJson(json.loads(text))


def empty_frame(schema: StructType, spark: SparkSession) -> DataFrame:
    """Return a frame without rows."""
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), stored_schema(schema))


@contextmanager
def settings(spark: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    """Apply a query's session settings for the block."""
    before = {key: spark.conf.get(key, None) for key in given}
    try:
        for key, value in given.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
