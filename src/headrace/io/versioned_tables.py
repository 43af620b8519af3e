"""Versioned tables of any format as sources and sinks: a reader of versions, and deliveries of ticks.

The reader gives the rows of one version, then the changes of each later one. Deliveries commit one version
per tick; it carries the tick's number as a transaction of the sink's application, so a tick that is delivered
again is recognised and skipped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UnreadableSource, UnwritableSink
from headrace.expr.types import INT64, Field, Row, Rows, Schema
from headrace.io.arrow import arrow_schema, rows_to_table, table_to_rows
from headrace.io.change_data import DeltaChanges, build_decoder, record_schema
from headrace.io.files.parquet_rows import batch_records, check_columns
from headrace.io.keyed_tables import TableKey, net_change
from headrace.io.outbox import Batches, Delivery
from headrace.io.sink import other_rows
from headrace.io.source import WEIGHT, BadRecord, Batch, Feed, Reader
from headrace.tables.version_folders import TICK
from headrace.tables.versioned_table import OPERATION, VersionedTable, quote_column

_VERSION = "version"


@dataclass(frozen=True, slots=True)
class SourceVersions:
    """Versions of a table, read on behalf of one source. start: the first to read; None: the newest."""

    table: VersionedTable
    feed: Feed
    start: int | None

    def newest(self) -> int:
        with self.table.reporting("cannot be read"):
            return self.table.version().number

    def first(self) -> int:
        """Return the version to read in full."""
        return self.newest() if self.start is None else self.start

    def rows(self, version: int) -> list[tuple[Any, ...]]:
        """Read all rows of a version, weighted if the flow's source is a table."""
        with self.table.reporting(f"has no readable version {version}"):
            found = list(self._records(self.table.scan(version), version, replace(self.feed, append=True)))
        return found if self.feed.append else [(*row, 1) for row in found]

    def changes(self, version: int) -> list[tuple[Any, ...]]:
        """Read the changes from the previous version to this one.

        Raises `UnreadableSource` if the feed lacks them.
        """
        shape = DeltaChanges(None)
        feed = replace(
            self.feed,
            schema=record_schema(shape, self.feed.schema),
            append=True,
            decode=build_decoder(shape, self.feed.schema),
            live=None,
        )
        with self.table.reporting(f"has no readable changes of version {version}"):
            stream = self.table.feed(version)
            if stream is None:
                raise unreadable_table_error(
                    self.feed.name,
                    self.table.kind,
                    self.table.location,
                    "has no change data feed",
                    "without one, the changes from version to version are unknown",
                    f"set {self.table.feed_setting}, or read it as a bounded source",
                )
            found = self._records(stream, version, feed)
            if not self.feed.append:
                return [row for rows in found for row in rows]
            return [self._added(row, version) for rows in found for row in rows]

    def _added(self, row: tuple[Any, ...], version: int) -> tuple[Any, ...]:
        if row[-1] > 0:
            return row[:-1]
        raise unreadable_table_error(
            self.feed.name,
            self.table.kind,
            self.table.location,
            f"retracts rows in version {version}",
            f"{row[:-1]!r} is deleted, and the flow's source is append-only",
            f'declare it as flow.table("{self.feed.name}", ...)',
        )

    def _records(self, stream: pa.RecordBatchReader, version: int, feed: Feed) -> Iterator[Any]:
        location = Path(f"{self.table.location} (version {version})")
        fields: list[Field] = [*feed.schema.fields]
        present = [f.name for f in check_columns(feed.name, location, fields, stream.schema)]
        before = 0
        for batch in stream:
            for record in batch_records(feed, location, before, batch.select(present), fields):
                if isinstance(record, BadRecord):
                    raise record.error(feed.name)
                yield record
            before += batch.num_rows


def unreadable_table_error(
    source: str, kind: str, location: str, what: str, why: str, fix: str, _cause: Exception | None = None
) -> UnreadableSource:
    return UnreadableSource(
        f"source {source!r}: the {kind} at {location} {what}",
        why=why,
        fix=fix or "correct the path or the table",
        source=source,
        path=location,
    )


class VersionReader(Reader):
    """Reader of whole versions, stopping after `limit` rows or `per_tick` versions."""

    def __init__(self, versions: SourceVersions, per_tick: int | None) -> None:
        versions.feed.refuse_weight_column()
        self._versions = versions
        self._feed = versions.feed
        self._per_tick = per_tick
        self._newest = self._versions.newest()
        self._in_tick = 0

    def read(self, limit: int | None) -> Batch | None:
        rows: list[tuple[Any, ...]] = []
        while not self.done and not self._enough(rows, limit):
            taken = self._feed.taken.get(_VERSION)
            if taken is None:
                taken = self._versions.first()
                found = self._versions.rows(taken)
                self.done = limit is None  # a bounded source
            elif taken < self._newest:
                taken += 1
                found = self._versions.changes(taken)
            else:
                break
            rows += found
            self._feed.taken[_VERSION] = taken
            self._in_tick += bool(found)
        self._in_tick = 0
        if rows:
            return Batch(rows)
        if self._feed.follow:
            self._newest = self._versions.newest()
        else:
            self.done = True
        return None

    def _enough(self, rows: list[tuple[Any, ...]], limit: int | None) -> bool:
        if self._per_tick is not None:
            return self._in_tick >= self._per_tick
        return limit is not None and len(rows) >= limit


# --- deliveries -----------------------------------------------------------------------------------


_compute: Any = pc  # generated at import time, unseen by type checkers


class VersionedTableDelivery(Delivery):
    """Base class of deliveries to a versioned table: its columns, and the tick number in its log.

    app: application under which the log has the ticks. properties: of a table that is created.
    """

    def __init__(
        self,
        sink: str,
        table: VersionedTable,
        app: str,
        rows: Schema,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.destination = table.location
        self._sink = sink
        self._table = table
        self._app = app
        self._rows = rows
        self._properties = properties
        self._ready: tuple[int, Callable[[], object]] | None = None

    def last_tick(self) -> int | None:
        with self._table.reporting("cannot be read"):
            return self._table.transaction(self._app) if self._table.exists() else None

    def begin(self) -> None:
        schema = arrow_schema(self.columns())
        with self._table.reporting("cannot be made"):
            if not self._table.exists():
                self._table.create(schema, properties=self._properties, transactions={self._app: 0})
                return
            found = self._table.schema()
        self._check(schema, found)
        if self.last_tick() is None:
            with self._table.reporting("cannot be changed"):
                holds_rows = any(batch.num_rows for batch in self._table.scan())
                self._append(0, schema, iter(()), {self._adopted: 1} if holds_rows else {})

    def _check(self, wanted: pa.Schema, found: pa.Schema) -> None:
        if dict(self._table.stored_types(wanted)) != dict(self._table.stored_types(found)):
            raise UnwritableSink(
                f"sink {self._sink!r}: the {self._table.kind} at {self.destination} has other columns",
                why=f"it has {', '.join(f'{f.name}: {f.type}' for f in found)}; "
                f"the sink has {', '.join(f'{f.name}: {f.type}' for f in wanted)}",
                fix="give another path, or select the table's columns before the sink",
                sink=self._sink,
                path=self.destination,
            )

    def apply(self, tick: int, batches: Batches) -> Rows | None:
        # There are no open transactions, so the change waits for `finish`.
        self._ready = None
        with self._table.reporting("cannot be read"):
            if (self.last_tick() or 0) >= tick:
                return None
            change, held = self._change(tick, batches)
        self._ready = tick, change
        return held

    def finish(self, tick: int) -> None:
        if self._ready is not None and self._ready[0] == tick:
            with self._table.reporting("refuses a tick"):
                if (self.last_tick() or 0) < tick:
                    self._ready[1]()
            self._ready = None

    def close(self) -> None:
        self._ready = None

    @property
    def _adopted(self) -> str:
        """Application id that marks, in the log, a table with rows from before its first tick."""
        return f"{self._app}/adopted"

    def _append(
        self,
        tick: int,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        notes: Mapping[str, int] | None = None,
    ) -> None:
        rows = pa.RecordBatchReader.from_batches(schema, batches)
        self._table.append(rows, {self._app: tick, **(notes or {})})

    def columns(self) -> Schema:
        """List the columns of the table."""
        return self._rows

    def rows(self) -> Iterator[Row]:
        if self._table.transaction(self._adopted) is not None:
            raise other_rows(
                self._sink, self.destination, "It had rows before its first tick, which are not this flow's."
            )
        wanted = arrow_schema(self.columns())
        self._check(wanted, self._table.schema())
        with self._table.reporting("cannot be read"):
            for batch in self._table.scan():
                found = pa.Table.from_batches([batch]).select(wanted.names).cast(wanted)
                yield from map(self._change_of, table_to_rows(found, self.columns()))

    @abstractmethod
    def _change_of(self, row: Row) -> Row:
        """Return a row of the table as a change, weight last."""

    @abstractmethod
    def _change(self, tick: int, batches: Batches) -> tuple[Callable[[], object], Rows]:
        """Return the action that creates the tick's version, and the rows held back after it."""


class AppendDelivery(VersionedTableDelivery):
    """Delivery of a changelog: appends every change, with weight and tick."""

    def columns(self) -> Schema:
        return Schema((*self._rows.fields, Field(WEIGHT, INT64), Field(TICK, INT64)))

    def _change_of(self, row: Row) -> Row:
        return row[:-1]

    def _change(self, tick: int, batches: Batches) -> tuple[Callable[[], object], Rows]:
        columns = self.columns()

        def append() -> None:
            made = (
                batch
                for rows in batches()
                for batch in rows_to_table([(*row, tick) for row in rows], columns).to_batches()
            )
            self._append(tick, arrow_schema(columns), made)

        return append, []


class MergeDelivery(VersionedTableDelivery):
    """Delivery of a table: merges rows by key. It first compares existing rows of the tick's keys."""

    def __init__(self, *where: Any, keys: TableKey) -> None:
        super().__init__(*where)
        self._keys = keys

    def _change_of(self, row: Row) -> Row:
        return (*row, 1)

    def _change(self, tick: int, batches: Batches) -> tuple[Callable[[], object], Rows]:
        changes = {tuple(row): weight for rows in batches() for *row, weight in rows}
        # Other writers' rows may have existed before this run began.
        adopted = self._table.transaction(self._adopted) is not None
        after = net_change(self._keys, self._there(changes), changes, replaces=adopted)
        return lambda: self._merge(tick, after.rows), after.held

    def _there(self, changes: Iterable[Row]) -> Iterator[Row]:
        """Yield the table's rows that share a key with the changes."""
        key = self._keys.of()
        keys = set(map(key, changes))
        if not keys:
            return
        wanted = arrow_schema(self._rows)
        first = self._keys.key[0]
        firsts = pa.array({found[0] for found in keys}, wanted.field(first).type)
        for batch in self._table.scan(where=self._range(keys)):
            found = pa.Table.from_batches([batch]).select(self._rows.names).cast(wanted)
            found = found.filter(_compute.is_in(found.column(first), firsts))
            yield from (row for row in table_to_rows(found, self._rows) if key(row) in keys)

    def _range(self, keys: set[Row]) -> str | None:
        """Build a predicate that prunes files by the range of the first key column, for integers and text."""
        firsts = [key[0] for key in keys]
        if not all(type(first) is int or type(first) is str for first in firsts):
            return None
        column = quote_column(self._keys.key[0])
        low, high = (
            str(bound) if isinstance(bound, int) else "'" + bound.replace("'", "''") + "'"
            for bound in (min(firsts), max(firsts))
        )
        return f"{column} between {low} and {high}"

    def _merge(self, tick: int, rows: Rows) -> None:
        if not rows:  # An empty merge would not record the tick.
            self._append(tick, arrow_schema(self._rows), iter(()))
            return
        columns = Schema((*self._rows.fields, Field(OPERATION, INT64)))
        made = rows_to_table(rows, columns).to_batches()
        source = pa.RecordBatchReader.from_batches(arrow_schema(columns), made)
        self._table.merge(source, self._rows.names, {self._app: tick}, self._keys.key)
