"""PostgreSQL sinks: changes or current rows in a table, one transaction per tick.

A small table `headrace_ticks` in the same schema holds the last tick, and is updated in the tick's
transaction. Missing tables are created.

    bool boolean   int bigint   float double precision   Decimal numeric   str text   bytes bytea
    date date      datetime timestamp with time zone     a nested class, list, map: jsonb
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from headrace.io.declared_types import refuse_untyped
from headrace.io.delivery.guarantee import Guarantee
from headrace.io.delivery.outbox import DeliveredSink, DeliveryWriter
from headrace.io.delivery.table_keys import TableKey, validate_key
from headrace.io.files.changelog import check_columns
from headrace.io.postgres.server import Server
from headrace.io.sink import SinkRequest, Writer, column_names, open_sink
from headrace.io.source import set_fields

_GUARANTEE = Guarantee("exactly once", "rows and the number of the tick change in one transaction")


@dataclass(frozen=True, init=False)
class PostgresTable(DeliveredSink):
    """Sink with the current rows of a stream, inserted, updated and deleted by key.

    url:    postgresql://user@host:port/database; preferably with the password in PGPASSWORD.
    table:  its name; a missing table is created, with the key as primary key.
    key:    columns that identify a row, not nullable. An existing table needs a unique index on them.
    schema: of the table; by default the first of the server's search path.

    Raises `BadUri` for the URL.
    """

    guarantee: ClassVar[Guarantee] = _GUARANTEE
    server: Server
    table: str
    schema: str | None
    key: tuple[str, ...] = ()

    def __init__(self, url: str, table: str, key: Iterable[str] | str, schema: str | None = None) -> None:
        set_fields(self, server=Server.of(url), table=table, key=column_names(key), schema=schema)

    @property
    def destination(self) -> Hashable:
        return "postgresql", str(self.server), self.schema, self.table


@dataclass(frozen=True, init=False)
class PostgresChangelog(DeliveredSink):
    """Sink with every change: the columns, then `weight` and `tick`. See `PostgresTable` for url, table and
    schema.
    """

    guarantee: ClassVar[Guarantee] = _GUARANTEE
    server: Server
    table: str
    schema: str | None

    def __init__(self, url: str, table: str, schema: str | None = None) -> None:
        set_fields(self, server=Server.of(url), table=table, schema=schema)

    @property
    def destination(self) -> Hashable:
        return "postgresql", str(self.server), self.schema, self.table


@open_sink.register
def _(sink: PostgresTable, request: SinkRequest) -> Writer:
    from headrace.io.postgres.delivery import TableDelivery

    refuse_untyped(request.schema, f"sink {request.name!r}, a table in PostgreSQL")
    keys = TableKey(
        request.name, request.schema, validate_key(request.name, request.schema, sink.key), request.sources
    )
    return DeliveryWriter(
        request, TableDelivery(sink.server, request.name, sink.table, sink.schema, request.schema, keys), keys
    )


@open_sink.register
def _(sink: PostgresChangelog, request: SinkRequest) -> Writer:
    from headrace.io.postgres.delivery import ChangelogDelivery

    refuse_untyped(request.schema, f"sink {request.name!r}, a table in PostgreSQL")
    check_columns(request.name, request.schema)
    delivery = ChangelogDelivery(sink.server, request.name, sink.table, sink.schema, request.schema)
    return DeliveryWriter(request, delivery, None)
