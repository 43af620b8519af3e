"""Delta tables as sources and sinks, through the `deltalake` package.

Each tick is one version of the table. The table's log also records the tick number (as a transaction id of
`app`), so a repeated tick is recognised and skipped. The package supports local folders and object stores.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from headrace.errors import BadInput, UnwritableSink
from headrace.expr.types import FloatingType, ListType, MapType, Schema, StructType, holds_intervals
from headrace.file_system import path_text
from headrace.io.files.changelog import check_columns
from headrace.io.keyed_tables import TableKey, validate_key
from headrace.io.outbox import DeliveredSink, DeliveryWriter
from headrace.io.sink import SinkRequest, Writer, column_names, open_sink
from headrace.io.source import Feed, Guarantee, Reader, Source, open_source, refuse_untyped, set_fields
from headrace.requirements import require_package
from headrace.source_location import SourceLocation

if TYPE_CHECKING:
    from headrace.io.versioned_tables import SourceVersions
    from headrace.tables.versioned_table import VersionedTable

_GUARANTEE = Guarantee(
    "exactly once", "a version of the table holds the rows of a tick together with its number"
)


@dataclass(frozen=True, init=False)
class DeltaTable(DeliveredSink):
    """Sink with the current rows of a stream, inserted, updated and deleted by key.

    path:    a folder or a URI; a missing table is created.
    key:     columns that identify a row; not nullable, and not floats, lists or nested rows.
    app:     name under which the table's log records ticks.
    feed:    create the table with a change data feed, which `DeltaRows` can follow.
    options: storage options of `deltalake`; they may hold secrets and are never shown.
    """

    guarantee: ClassVar[Guarantee] = _GUARANTEE
    path: str
    app: str
    feed: bool
    options: Mapping[str, str] = field(repr=False, compare=False)
    key: tuple[str, ...] = ()

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: Iterable[str] | str,
        *,
        app: str = "headrace",
        feed: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        set_fields(
            self,
            path=path_text(path, "DeltaTable"),
            key=column_names(key),
            app=app,
            feed=feed,
            options=dict(options or {}),
        )

    @property
    def destination(self) -> Hashable:
        return "delta", self.path, self.app


@dataclass(frozen=True, init=False)
class DeltaChangelog(DeliveredSink):
    """Sink with every change: the columns, then `weight` and `tick`. See `DeltaTable` for path, app and
    options.
    """

    guarantee: ClassVar[Guarantee] = _GUARANTEE
    path: str
    app: str
    options: Mapping[str, str] = field(repr=False, compare=False)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        app: str = "headrace",
        options: Mapping[str, str] | None = None,
    ) -> None:
        set_fields(self, path=path_text(path, "DeltaChangelog"), app=app, options=dict(options or {}))

    @property
    def destination(self) -> Hashable:
        return "delta", self.path, self.app


@dataclass(frozen=True, init=False)
class DeltaRows(Source):
    """Source of a Delta table's rows, then of the changes in each later version.

    path:    a folder or a URI.
    version: first version to read; by default the newest.
    versions_per_tick: number of versions per tick, however many rows they have.
    options: storage options of `deltalake`; they may hold secrets and are never shown.

    Versions are read whole. A bounded source reads the rows of one version. Others read those, and then the
    table's change data feed (`delta.enableChangeDataFeed`) up to the newest version or, when following,
    forever. An append source may read a table that only grows.
    """

    path: str
    version: int | None
    versions_per_tick: int | None
    options: Mapping[str, str] = field(repr=False, compare=False)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        version: int | None = None,
        versions_per_tick: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if versions_per_tick is not None and versions_per_tick < 1:
            raise BadInput(f"versions_per_tick is {versions_per_tick}", fix="give 1 or more, or leave it out")
        set_fields(
            self,
            path=path_text(path, "DeltaRows"),
            version=version,
            versions_per_tick=versions_per_tick,
            options=dict(options or {}),
        )


def check_delta(table: DeltaTable | DeltaChangelog | DeltaRows, what: str, schema: Schema) -> None:
    """Check a Delta table's package, location and column types. Raises `BadInput`, `BadUri`."""
    require_package(what, "deltalake", "delta")
    from headrace.tables.delta_table import check_location

    check_location(table.path, table.options, what)
    refuse_untyped(schema, f"{what}, a Delta table")
    for f in schema.fields:
        if holds_intervals(f.type):
            raise BadInput(
                f"{what}, a Delta table: column {f.name!r} is {f.type}, and Delta tables have no intervals",
                where=[SourceLocation.of_caller()],
                fix=f"make a number of it in a select: `{f.name}=col.{f.name} // timedelta(microseconds=1)`",
                column=f.name,
            )


def _comparable(sink: str, schema: Schema, key: tuple[str, ...]) -> tuple[str, ...]:
    for f in schema.fields:
        if f.name in key and isinstance(f.type, FloatingType | ListType | MapType | StructType):
            raise BadInput(
                f"sink {sink!r}: the key's column {f.name!r} is {f.type}, "
                "which Delta tables cannot have in a key",
                fix="give other columns as key, or cast it in a select before the sink",
                sink=sink,
                column=f.name,
            )
    return validate_key(sink, schema, key)


def _written(sink: DeltaTable | DeltaChangelog, name: str) -> VersionedTable:
    from headrace.tables.delta_table import DeltaLakeTable

    def error(what: str, why: str, _fix: str, _cause: Exception) -> UnwritableSink:
        return UnwritableSink(
            f"sink {name!r}: the Delta table at {sink.path} {what}",
            why=why,
            fix="correct the table, or give another path",
            sink=name,
            path=sink.path,
        )

    return DeltaLakeTable(sink.path, error, sink.options)


@open_sink.register
def _(sink: DeltaTable, request: SinkRequest) -> Writer:
    check_delta(sink, f"sink {request.name!r}", request.schema)
    key = _comparable(request.name, request.schema, sink.key)
    keys = TableKey(request.name, request.schema, key, request.sources)
    from headrace.io.versioned_tables import MergeDelivery
    from headrace.tables.delta_table import FEED

    table, properties = _written(sink, request.name), {FEED: "true"} if sink.feed else None
    delivery = MergeDelivery(request.name, table, sink.app, request.schema, properties, keys=keys)
    return DeliveryWriter(request, delivery, keys)


@open_sink.register
def _(sink: DeltaChangelog, request: SinkRequest) -> Writer:
    check_delta(sink, f"sink {request.name!r}", request.schema)
    check_columns(request.name, request.schema)
    from headrace.io.versioned_tables import AppendDelivery

    delivery = AppendDelivery(request.name, _written(sink, request.name), sink.app, request.schema)
    return DeliveryWriter(request, delivery, None)


def versions_of(source: DeltaRows, feed: Feed) -> SourceVersions:
    """Return the versions that a source reads."""
    from headrace.io.versioned_tables import SourceVersions, unreadable_table_error
    from headrace.tables.delta_table import DeltaLakeTable

    error = partial(unreadable_table_error, feed.name, DeltaLakeTable.kind, source.path)
    return SourceVersions(DeltaLakeTable(source.path, error, source.options), feed, source.version)


@open_source.register
def _(source: DeltaRows, feed: Feed) -> Reader:
    check_delta(source, f"source {feed.name!r}", feed.schema)
    from headrace.io.versioned_tables import VersionReader

    return VersionReader(versions_of(source, feed), source.versions_per_tick)
