"""Delta tables through the `deltalake` package: changes or current rows, and tables as sources.

A tick is one version of the table, whose log also holds the number of the tick
(a transaction id of `app`): so a tick that comes again is known and left out.
Files and log are the package's; a folder on this machine, or any place that the package knows.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.errors import BadInput
from penstock.expr.types import Float64Type, ListType, Schema, StructType
from penstock.io.changelog import check_columns
from penstock.io.guarantee import Guarantee
from penstock.io.keyed import Keys, key_of
from penstock.io.outbox import Delivered, DeliveryWriter
from penstock.io.sink import Drain, Writer, open_sink
from penstock.io.source import Feed, Reader, Source, open_source
from penstock.io.untyped import refuse_untyped
from penstock.paths import scheme_of, unsupported

_GUARANTEE = Guarantee(
    "exactly once", "a version of the table holds the rows of a tick together with its number"
)


def need_deltalake(what: str) -> None:
    """Raises `BadInput` if the package is not installed. `what` needs it: "sink 'totals'"."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise BadInput(
            f"{what} needs deltalake, which cannot be imported",
            why=str(error),
            fix="pip install 'penstock[delta]'",
        ) from error


def check_place(path: str, options: Mapping[str, str], what: str) -> None:
    """Raises `BadUri` for a scheme that `deltalake` does not know, before the first tick would fail."""
    if not scheme_of(path):
        return
    from deltalake.exceptions import DeltaError
    from deltalake.fs import DeltaStorageHandler

    try:
        DeltaStorageHandler(path, dict(options))
    except DeltaError as error:
        if not str(error).startswith(("Unknown scheme", "Generic error: Unable to recognise URL")):
            return  # as of an option that is missing: whoever reads or writes the table says so
        raise unsupported(
            path,
            what,
            why=f"The deltalake package says: {str(error).partition('. Known')[0]}.",
            fix="give a folder, or a URL that it knows, such as s3://BUCKET/TABLE, gs://... or abfss://...",
        ) from error
    except OSError:
        return


def _options(given: Mapping[str, str] | None) -> dict[str, str]:
    return dict(given or {})


@dataclass(frozen=True, init=False)
class DeltaTable(Delivered):
    """The current rows: inserted, updated and deleted by key.

    path:    a folder or a URI; the table is made if it is missing.
    key:     columns of which no two rows have the same values; not null, no floats, lists or nested rows.
    app:     the name under which ticks are noted in the table's log.
    feed:    a table that is made gets a change data feed, which `DeltaRows` can follow.
    options: for the storage, as `deltalake` has them; they may hold secrets and are shown nowhere.
    """

    guarantee: ClassVar[Guarantee] = _GUARANTEE
    path: str
    columns: tuple[str, ...]
    app: str
    feed: bool
    options: Mapping[str, str] = field(repr=False, compare=False)

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: Iterable[str] | str,
        *,
        app: str = "penstock",
        feed: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, "path", os.fspath(path))
        object.__setattr__(self, "columns", (key,) if isinstance(key, str) else tuple(key))
        object.__setattr__(self, "app", app)
        object.__setattr__(self, "feed", feed)
        object.__setattr__(self, "options", _options(options))

    @property
    def place(self) -> Hashable:
        return "delta", self.path, self.app

    @property
    def key(self) -> tuple[str, ...]:
        return self.columns


@dataclass(frozen=True, init=False)
class DeltaChangelog(Delivered):
    """Every change: the columns, then `weight` and `tick`. See `DeltaTable` for path, app and options."""

    guarantee: ClassVar[Guarantee] = _GUARANTEE
    path: str
    app: str
    options: Mapping[str, str] = field(repr=False, compare=False)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        app: str = "penstock",
        options: Mapping[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, "path", os.fspath(path))
        object.__setattr__(self, "app", app)
        object.__setattr__(self, "options", _options(options))

    @property
    def place(self) -> Hashable:
        return "delta", self.path, self.app


@dataclass(frozen=True, init=False)
class DeltaRows(Source):
    """The rows of a Delta table, then the changes of each later version.

    path:    a folder or a URI.
    version: the one to begin with; the newest where not given.
    versions_per_tick: take so many versions in each tick, however many rows they have.
    options: for the storage, as `deltalake` has them; they may hold secrets and are shown nowhere.

    Versions are taken whole. A bounded source takes the rows of one version. Others take those, and
    then the table's change data feed (`delta.enableChangeDataFeed`), to the newest version that is
    there or, following, for ever. A source that takes no row back may read a table that only grows.
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
        object.__setattr__(self, "path", os.fspath(path))
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "versions_per_tick", versions_per_tick)
        object.__setattr__(self, "options", _options(options))


def check_delta(end: DeltaTable | DeltaChangelog | DeltaRows, what: str, schema: Schema) -> None:
    """Check what a Delta table at either end needs: the package, the place, the types of rows.

    Raises `BadInput`, `BadUri`.
    """
    need_deltalake(what)
    check_place(end.path, end.options, what)
    refuse_untyped(schema, f"{what}, a Delta table")


def _comparable(sink: str, schema: Schema, key: tuple[str, ...]) -> tuple[str, ...]:
    for f in schema.fields:
        if f.name in key and isinstance(f.type, Float64Type | ListType | StructType):
            raise BadInput(
                f"sink {sink!r}: the key's column {f.name!r} is {f.type}, which is no key of a Delta table",
                fix="give other columns as key, or cast it in a select before the sink",
                sink=sink,
                column=f.name,
            )
    return key_of(sink, schema, key)


@open_sink.register
def _(sink: DeltaTable, drain: Drain) -> Writer:
    check_delta(sink, f"sink {drain.name!r}", drain.schema)
    key = _comparable(drain.name, drain.schema, sink.key)
    keys = Keys(drain.name, drain.schema, key, drain.sources)
    from penstock.io.delta_delivery import TableDelivery

    where: Any = (drain.name, sink.path, sink.app, sink.options, drain.schema)
    return DeliveryWriter(drain, TableDelivery(*where, keys=keys, feed=sink.feed), keys)


@open_sink.register
def _(sink: DeltaChangelog, drain: Drain) -> Writer:
    check_delta(sink, f"sink {drain.name!r}", drain.schema)
    check_columns(drain.name, drain.schema)
    from penstock.io.delta_delivery import ChangelogDelivery

    return DeliveryWriter(
        drain, ChangelogDelivery(drain.name, sink.path, sink.app, sink.options, drain.schema), None
    )


@open_source.register
def _(source: DeltaRows, feed: Feed) -> Reader:
    check_delta(source, f"source {feed.name!r}", feed.schema)
    from penstock.io.delta_reader import DeltaReader

    return DeltaReader(source, feed)
