"""Delta table reader: the rows of one version, then the changes of each later one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError

from headrace.errors import UnreadableSource
from headrace.expr.types import Field
from headrace.io.change_data import DeltaChanges, build_decoder, record_schema
from headrace.io.delta.protocol import FEED
from headrace.io.files.parquet_rows import batch_records, check_columns
from headrace.io.source import BadRecord, Batch, Feed, Reader

_VERSION = "version"


class VersionedTable(Protocol):
    """Options of a Delta source that its reader needs; `DeltaRows` implements it."""

    @property
    def path(self) -> str: ...
    @property
    def version(self) -> int | None: ...
    @property
    def versions_per_tick(self) -> int | None: ...
    @property
    def options(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class DeltaVersions:
    """Versions of a Delta table, read on behalf of one source."""

    source: VersionedTable
    feed: Feed

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DeltaError, pa.ArrowException, OSError, ValueError) as error:
            raise self._error(what, str(error)) from error

    def _error(self, what: str, why: str, fix: str = "correct the path or the table") -> UnreadableSource:
        path = self.source.path
        return UnreadableSource(
            f"source {self.feed.name!r}: the Delta table at {path} {what}",
            why=why,
            fix=fix,
            source=self.feed.name,
            path=path,
        )

    def _table(self, version: int | None = None) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.source.path, version, storage_options=dict(self.source.options))

    def newest(self) -> int:
        with self._reporting("cannot be read"):
            return self._table().version()

    def first(self) -> int:
        """Return the version to read in full."""
        return self.newest() if self.source.version is None else self.source.version

    def rows(self, version: int) -> list[tuple[Any, ...]]:
        """Read all rows of a version, weighted if the flow's source is a table."""
        with self._reporting(f"has no readable version {version}"):
            stream = pa.RecordBatchReader.from_stream(self._table(version).scan())
            feed = replace(self.feed, append=True)
            found = list(self._records(stream, version, feed))
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
        with self._reporting(f"has no readable changes of version {version}"):
            table = self._table()
            if table.metadata().configuration.get(FEED) != "true":
                raise self._error(
                    "has no change data feed",
                    "without one, the changes from version to version are unknown",
                    f"set the table's property {FEED} to true, or read it as a bounded source",
                )
            stream = table.load_cdf(starting_version=version, ending_version=version)
            found = self._records(pa.RecordBatchReader.from_stream(stream), version, feed)
            if not self.feed.append:
                return [row for rows in found for row in rows]
            return [self._added(row, version) for rows in found for row in rows]

    def _added(self, row: tuple[Any, ...], version: int) -> tuple[Any, ...]:
        if row[-1] > 0:
            return row[:-1]
        raise self._error(
            f"retracts rows in version {version}",
            f"{row[:-1]!r} is deleted, and the flow's source is append-only",
            f'declare it as flow.table("{self.feed.name}", ...)',
        )

    def _records(self, stream: pa.RecordBatchReader, version: int, feed: Feed) -> Iterator[Any]:
        location = Path(f"{self.source.path} (version {version})")
        fields: list[Field] = [*feed.schema.fields]
        present = [f.name for f in check_columns(feed.name, location, fields, stream.schema)]
        before = 0
        for batch in stream:
            for record in batch_records(feed, location, before, batch.select(present), fields):
                if isinstance(record, BadRecord):
                    raise record.error(feed.name)
                yield record
            before += batch.num_rows


class DeltaReader(Reader):
    """Reader of whole versions, stopping after `limit` rows or `versions_per_tick` versions."""

    def __init__(self, source: VersionedTable, feed: Feed) -> None:
        feed.refuse_weight_column()
        self._versions = DeltaVersions(source, feed)
        self._feed = feed
        self._per_tick = source.versions_per_tick
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
