"""Reader of versioned tables: the rows of one version, then the changes of each later one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import UnreadableSource
from headrace.expr.types import Field
from headrace.io.change_data import DeltaChanges, build_decoder, record_schema
from headrace.io.files.parquet_rows import batch_records, check_columns
from headrace.io.source import BadRecord, Batch, Feed, Reader
from headrace.tables.versioned_table import VersionedTable

_VERSION = "version"


@dataclass(frozen=True, slots=True)
class TableVersions:
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
                    self.table.location,
                    "has no change data feed",
                    "without one, the changes from version to version are unknown",
                    "set the table's property delta.enableChangeDataFeed to true, "
                    "or read it as a bounded source",
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
    source: str, location: str, what: str, why: str, fix: str, _cause: Exception | None = None
) -> UnreadableSource:
    return UnreadableSource(
        f"source {source!r}: the Delta table at {location} {what}",
        why=why,
        fix=fix or "correct the path or the table",
        source=source,
        path=location,
    )


class VersionReader(Reader):
    """Reader of whole versions, stopping after `limit` rows or `per_tick` versions."""

    def __init__(self, versions: TableVersions, per_tick: int | None) -> None:
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
