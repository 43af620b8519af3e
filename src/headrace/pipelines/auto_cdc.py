"""AUTO CDC flows: tables held by key from change records, of SCD type 1, or with all versions, of type 2.

Type 1 is the operator `upsert`, type 2 is `history` (docs/reference/keyed-tables.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import SourceLocation
from headrace.expr.constructors import struct
from headrace.expr.tree import Column as Read
from headrace.operators.keyed_tables.history import END, START
from headrace.operators.keyed_tables.upsert_rule import COMMITS
from headrace.pipelines.errors import BadDefinition
from headrace.queries.plan_details import java_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
        """Return the columns that the table takes from its records. Raises `BadDefinition` for others."""
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
