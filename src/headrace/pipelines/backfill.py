"""Backfill: the rows of a part of a table are computed again, by Spark from all rows of its inputs.

A backfill is a run of one table. It first brings the table up to date as any run does; then the rows that
meet a condition are replaced by those that its query gives now. The difference is a version like any other,
so readers get it, and a killed backfill has changed nothing.

Streaming tables keep what an earlier query, or an earlier row of the other side of a join, has made of a
record: a backfill makes it of the present ones. A view is a function of its inputs, so nothing differs unless
its rows were damaged, or a Python function answers otherwise than before. If they differ, so would what its
state gives out: the state is given up, and the next run makes the view from all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.expr.spark_columns import quoted
from headrace.pipelines.catalog import DELIVERY, TableEntry
from headrace.pipelines.definitions import VIOLATIONS, DatasetKind
from headrace.pipelines.errors import BackfillRefused
from headrace.pipelines.graph import StoredTable, empty_frame, settings
from headrace.pipelines.leaves import FilesLeaf
from headrace.pipelines.run_snapshot import RunSnapshot
from headrace.pipelines.table_plan import Method, TablePlan
from headrace.pipelines.table_update import Updated, Updater

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_backfill(table: StoredTable, plan: TablePlan, condition: str, snapshot: RunSnapshot) -> None:
    """Raise `BackfillRefused` if a part of a table cannot be computed by itself."""
    _check_condition(table, condition, snapshot.spark)
    if table.dataset.kind is DatasetKind.SINK:
        raise _refused(table, "Rows that a sink was given are not kept.", "backfill the table that it reads")
    if table.dataset.kind is DatasetKind.STREAMING_TABLE and plan.method is Method.INCREMENTAL:
        raise _refused(
            table,
            "Its rows are what its state has made of all records, in their order.",
            f"make it anew from all records: headrace pipeline run --full-refresh {table.name}",
        )
    entry = snapshot.entries.get(table.name)
    if entry is not None and plan.method is Method.APPEND:
        for why in _records_lost(table, entry, snapshot):
            raise _refused(
                table,
                why,
                "bring them back; or, to make it anew of what is there, "
                f"headrace pipeline run --full-refresh {table.name}",
            )


def _check_condition(table: StoredTable, condition: str, spark: SparkSession) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    from headrace.pipelines.query_errors import message_of

    def bad(why: str) -> BackfillRefused:
        return BackfillRefused(
            f"--where {condition!r} is no condition on the rows of {table.name}",
            where=[table.dataset.location],
            why=why,
            fix="write SQL over its columns, which are " + ", ".join(table.schema.fieldNames()),
            dataset=str(table.name),
        )

    try:
        rows: Any = empty_frame(table.schema, spark).where(f.expr(condition))
        plan = rows._jdf.queryExecution().analyzed()
    except PySparkException as error:
        raise bad(message_of(error)) from None
    if plan.subqueriesAll().size() or not plan.deterministic():
        raise bad("It is evaluated for each row by itself, without subqueries and random values.")


def _records_lost(table: StoredTable, entry: TableEntry, snapshot: RunSnapshot) -> Iterator[str]:
    """Yield why a streaming table holds rows that its inputs would not give again."""
    queries = {query.query.name: query for query in table.queries}
    for flow in sorted(entry.positions.keys() - queries - {DELIVERY}):
        yield f"It has rows of the flow {flow!r}, which the project no longer has; they would be lost."
    for name, query in queries.items():
        for leaf in query.leaves:
            read = entry.positions.get(name, {}).get(leaf.key)
            if not (leaf.streaming and isinstance(leaf, FilesLeaf) and isinstance(read, dict)):
                continue
            there: Any = snapshot.input(leaf).position()
            gone = sorted(path for path, mark in read.items() if there.get(path) != mark)
            if gone:
                others = f" and {len(gone) - 1:,} more" if len(gone) > 1 else ""
                yield f"It has read {gone[0]}{others}, gone or changed since; their rows would be lost."


def _refused(table: StoredTable, why: str, fix: str) -> BackfillRefused:
    return BackfillRefused(
        f"a part of {table.name} cannot be computed again",
        where=[table.dataset.location],
        why=why,
        fix=fix,
        dataset=str(table.name),
    )


@dataclass(frozen=True, slots=True)
class BackfillUpdater(Updater):
    """Update of a table that also computes the rows of a part again. condition: of the part, in SQL."""

    condition: str = ""

    def run(self) -> Updated:
        done = Updater.run(self)
        name, owner = self._table.name, self._table.dataset.beside
        if done.whole or (owner is not None and name == owner.beside(VIOLATIONS)):
            return done
        self.snapshot.entries[name] = self.snapshot.catalog.entries[name] = done.entry
        with settings(self.snapshot.spark, self._settings):
            writer = replace(self._writer, keeps_changes=True)  # So that the event log can count them.
            version = writer.replace_part(self._whole(), self.condition)
        why = f"backfill of {self.condition}"
        if version == done.entry.version:
            return replace(done, why=f"{why}: no row differs", rows_in=None)
        made = replace(done.entry, version=version, rows=self._writer.count(version))
        if made.generation:
            made = replace(made, generation=0, tick=0)
            why += "; the next run makes it from all rows, since its state answers otherwise"
        return replace(done, entry=made, why=why, rows_in=None)

    def _whole(self) -> DataFrame:
        """Return all rows that its queries give now; streams are read from their beginning."""
        names = [*map(quoted, self._table.schema.fieldNames())]
        frames = [
            self._run_query(
                query, {leaf.exact: self.snapshot.input(leaf).whole for leaf in query.leaves}
            ).select(*names)
            for query in self._table.queries
        ]
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.unionByName(frame)
        return rows
