"""PostgreSQL sinks: changes or current rows in a table, one transaction per tick.

A small table `headrace_ticks` in the same schema holds the last tick, and is updated in the tick's
transaction. Missing tables are created.

    bool boolean   int bigint   float double precision   Decimal numeric   str text   bytes bytea
    date date      datetime timestamp with time zone     a nested class, list, map: jsonb
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import BadUri, UnwritableSink
from headrace.io.files.changelog import check_columns
from headrace.io.keyed_tables import TableKey, validate_key
from headrace.io.outbox import DeliveredSink, DeliveryWriter
from headrace.io.sink import SinkRequest, Writer, column_names, open_sink
from headrace.io.source import Guarantee, refuse_untyped, set_fields
from headrace.requirements import require_package

# --- servers and connections; passwords are never shown -------------------------------------------


Tls: TypeAlias = Literal["disable", "prefer", "require", "verify-full"]
# Match up to the last @: a password may hold an unescaped / or ?.
_SECRET = re.compile(r"(//[^/@:?#\s]*):\S*@")


def without_password(text: str) -> str:
    """Replace the password in a URL within a text with ***."""
    hidden = _SECRET.sub(r"\1:***@", text)
    return re.sub(r"(?i)([?&]password=)[^&\s'\"]*", r"\1***", hidden)


@dataclass(frozen=True, slots=True)
class Server:
    """Address of a database. socket: folder of the server's Unix socket, instead of host and port."""

    host: str
    port: int
    database: str
    user: str
    password: str | None = field(default=None, repr=False, compare=False)
    tls: Tls = "prefer"
    socket: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"postgresql://{self.user}@{self.socket or f'{host}:{self.port}'}/{self.database}"

    @classmethod
    def of(cls, url: str) -> Server:
        """Parse `postgresql://user:password@host:port/database?sslmode=...&host=/socket/folder`.

        Missing parts come from PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD. Raises `BadUri`.
        """
        shown = without_password(url)
        try:
            parts = urlsplit(url)
            port = parts.port or int(os.environ.get("PGPORT") or 5432)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError:
            what = ", or PGPORT is not a number" if "PGPORT" in os.environ else ""
            raise BadUri(
                f"{shown!r} is not the URL of a PostgreSQL server{what}", fix=_FORM, uri=shown
            ) from None
        # An @ after a / most likely ends a password.
        if parts.scheme not in ("postgres", "postgresql") or "\0" in url or "@" in parts.path:
            raise BadUri(f"{shown!r} is not the URL of a PostgreSQL server", fix=_FORM, uri=shown)
        given = os.environ.get
        host = options.pop("host", None) or unquote(parts.hostname or "") or given("PGHOST") or "localhost"
        tls: Any = options.pop("sslmode", "prefer")
        if options or tls not in get_args(Tls):
            wrong = f"option {next(iter(options))!r}" if options else f"sslmode {tls!r}"
            raise BadUri(
                f"{shown!r} has the unknown {wrong}",
                fix=f"the options are host (a socket's folder) and sslmode: {', '.join(get_args(Tls))}",
                uri=shown,
            )
        user = unquote(parts.username or "") or given("PGUSER") or given("USER") or "postgres"
        password = given("PGPASSWORD") if parts.password is None else unquote(parts.password)
        database = unquote(parts.path.lstrip("/")) or given("PGDATABASE") or user
        socket = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else None
        return cls("localhost" if socket else host, port, database, user, password, tls, socket)


_FORM = "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, preferably with the password in PGPASSWORD"


def connect(server: Server, sink: str) -> Any:
    """Connect through pg8000.

    Raises `BadInput` if it is not installed, `UnwritableSink` if no server responds.
    """
    require_package(f"sink {sink!r}", "pg8000", "postgres")
    from pg8000.exceptions import DatabaseError, InterfaceError
    from pg8000.native import Connection

    try:
        return Connection(
            server.user,
            host=server.host,
            port=server.port,
            database=server.database,
            password=server.password,
            unix_sock=server.socket,
            ssl_context=False if server.socket else ssl_context(server.tls),
            timeout=None,
            application_name="headrace",
        )
    except (InterfaceError, DatabaseError, OSError) as error:
        raise UnwritableSink(
            f"sink {sink!r} cannot connect to {server}",
            why=without_password(server_message(error)),
            fix="start the server, or correct the URL",
            sink=sink,
        ) from None  # the frames below hold the password


def ssl_context(tls: Tls) -> Any:
    import ssl

    return {"disable": lambda: False, "prefer": lambda: None, "require": lambda: True}.get(
        tls, ssl.create_default_context
    )()


def server_message(error: BaseException) -> str:
    """Return the server's error message, or the cause of a failed connection, in a line or two."""
    fields = error.args[0] if error.args else None
    if isinstance(fields, dict):
        parts: dict[str, str] = fields  # pyright: ignore[reportUnknownVariableType]
        detail = f"\n{parts['D']}" if parts.get("D") else ""
        return f"{parts.get('M', 'no message')} (SQLSTATE {parts.get('C', '?')}){detail}"
    return str(error) or type(error).__name__


def sqlstate(error: BaseException) -> str | None:
    fields = error.args[0] if error.args else None
    return fields.get("C") if isinstance(fields, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


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
    from headrace.io.postgres_delivery import TableDelivery

    refuse_untyped(request.schema, f"sink {request.name!r}, a table in PostgreSQL")
    keys = TableKey(
        request.name, request.schema, validate_key(request.name, request.schema, sink.key), request.sources
    )
    return DeliveryWriter(
        request, TableDelivery(sink.server, request.name, sink.table, sink.schema, request.schema, keys), keys
    )


@open_sink.register
def _(sink: PostgresChangelog, request: SinkRequest) -> Writer:
    from headrace.io.postgres_delivery import ChangelogDelivery

    refuse_untyped(request.schema, f"sink {request.name!r}, a table in PostgreSQL")
    check_columns(request.name, request.schema)
    delivery = ChangelogDelivery(sink.server, request.name, sink.table, sink.schema, request.schema)
    return DeliveryWriter(request, delivery, None)
