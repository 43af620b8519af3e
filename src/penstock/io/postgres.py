"""PostgreSQL: changes or current rows in a table, each tick in one transaction.

The last tick stands in a small table `penstock_ticks` of the same schema, which
changes in the transaction of the tick. A table that is missing is made.

    bool boolean   int bigint   float double precision   Decimal numeric   str text   bytes bytea
    date date      datetime timestamp with time zone     a nested class, list: jsonb
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from penstock.io.changelog import check_columns
from penstock.io.guarantee import Guarantee
from penstock.io.keyed import Keys, key_of
from penstock.io.outbox import Delivered, DeliveryWriter
from penstock.io.postgres_server import Server
from penstock.io.sink import Drain, Writer, open_sink
from penstock.io.untyped import refuse_untyped

_GUARANTEE = Guarantee("exactly once", "rows and the number of the tick change in one transaction")


@dataclass(frozen=True, init=False)
class PostgresTable(Delivered):
    """The current rows: inserted, updated and deleted by key.

    url:    postgresql://user@host:port/database; the password better in PGPASSWORD.
    table:  its name; made if missing, with the key as primary key.
    key:    columns of which no two rows have the same values, and no row a null. A table that is
            there needs a unique index on them.
    schema: of the table; where not given, the first of the server's search path.

    Raises `BadUri` for the URL.
    """

    guarantee: ClassVar[Guarantee] = _GUARANTEE
    server: Server
    table: str
    columns: tuple[str, ...]
    schema: str | None

    def __init__(self, url: str, table: str, key: Iterable[str] | str, schema: str | None = None) -> None:
        object.__setattr__(self, "server", Server.of(url))
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "columns", (key,) if isinstance(key, str) else tuple(key))
        object.__setattr__(self, "schema", schema)

    @property
    def place(self) -> Hashable:
        return "postgresql", str(self.server), self.schema, self.table

    @property
    def key(self) -> tuple[str, ...]:
        return self.columns


@dataclass(frozen=True, init=False)
class PostgresChangelog(Delivered):
    """Every change: the columns, then `weight` and `tick`. See `PostgresTable` for url, table and schema."""

    guarantee: ClassVar[Guarantee] = _GUARANTEE
    server: Server
    table: str
    schema: str | None

    def __init__(self, url: str, table: str, schema: str | None = None) -> None:
        object.__setattr__(self, "server", Server.of(url))
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "schema", schema)

    @property
    def place(self) -> Hashable:
        return "postgresql", str(self.server), self.schema, self.table


@open_sink.register
def _(sink: PostgresTable, drain: Drain) -> Writer:
    from penstock.io.postgres_delivery import TableDelivery

    refuse_untyped(drain.schema, f"sink {drain.name!r}, a table in PostgreSQL")
    keys = Keys(drain.name, drain.schema, key_of(drain.name, drain.schema, sink.key), drain.sources)
    return DeliveryWriter(
        drain, TableDelivery(sink.server, drain.name, sink.table, sink.schema, drain.schema, keys), keys
    )


@open_sink.register
def _(sink: PostgresChangelog, drain: Drain) -> Writer:
    from penstock.io.postgres_delivery import ChangelogDelivery

    refuse_untyped(drain.schema, f"sink {drain.name!r}, a table in PostgreSQL")
    check_columns(drain.name, drain.schema)
    delivery = ChangelogDelivery(sink.server, drain.name, sink.table, sink.schema, drain.schema)
    return DeliveryWriter(drain, delivery, None)
