"""Collections in PostgreSQL: two tables of one schema, shared by any number of processes."""

from __future__ import annotations

import os
import re
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from threading import Lock
from typing import Any, TypeVar

import pg8000.converters as pg8000_converters  # pyright: ignore[reportMissingTypeStubs]
import pg8000.native as pg8000_native  # pyright: ignore[reportMissingTypeStubs]
from pg8000.exceptions import DatabaseError, InterfaceError  # pyright: ignore[reportMissingTypeStubs]

from headrace.compute.collections.rows import damaged_store_error
from headrace.compute.collections.sql_collections import SqlCollections
from headrace.compute.collections.sql_tables import Database, Stored, Transaction
from headrace.compute.errors import ComputeError, StoreUnavailable
from headrace.errors import BadInput
from headrace.io.postgres import Server, server_message, sqlstate, ssl_context, without_password

_SCHEMA = re.compile(r"[?&]schema=(?P<name>[^&@#]*)(?=&|$)")


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """Server and schema of the tables. schema: None for the first one in the server's search path."""

    server: Server
    schema: str | None

    @classmethod
    def parse(cls, url: str) -> ServerLocation:
        """Parse `postgresql://USER@HOST:PORT/DATABASE?schema=SCHEMA&sslmode=...`, as `Server.of` does.

        A password that is in neither the URL nor PGPASSWORD is looked up in the file that PGPASSFILE names,
        by default ~/.pgpass. Raises `BadUri`, `BadInput` for a file that others may read.
        """
        found = _SCHEMA.search(url)
        if found is not None:
            rest = url[found.end() :]
            url = url[: found.start()] + (f"?{rest[1:]}" if found[0][0] == "?" and rest else rest)
        server = Server.of(url)
        if server.password is None:
            server = replace(server, password=_password(server))
        return cls(server, (found["name"] or None) if found else None)

    def __str__(self) -> str:
        return f"{self.server}, schema {self.schema}" if self.schema else str(self.server)


def _password(server: Server) -> str | None:
    """Look up the password in a file of lines host:port:database:user:password, where * matches anything."""
    path = os.environ.get("PGPASSFILE") or os.path.expanduser("~/.pgpass")
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise BadInput(
                    f"others may read the password file {path}",
                    fix=f"chmod 600 {path}",
                    file=path,
                )
            lines = file.read().splitlines()
    except OSError:
        return None
    wanted = (server.host, str(server.port), server.database, server.user)
    for line in lines:
        fields = [re.sub(r"\\(.)", r"\1", field) for field in re.findall(r"(?:^|:)((?:\\.|[^\\:])*)", line)]
        if len(fields) == 5 and all(a in ("*", b) for a, b in zip(fields, wanted)):
            return fields[4]
    return None


T = TypeVar("T")
_connection: Any = pg8000_native.Connection
_converters: Any = pg8000_converters
_LOST = (InterfaceError, OSError, struct.error)
_LOST_STATES = ("08", "57P")
_DAMAGE_STATES = ("42P01", "42703", "42804", "XX")
_SOCKET_SECONDS = 60.0
_SETTINGS = (
    "SET client_encoding TO 'UTF8'",
    "SET synchronous_commit TO on",
    "SET lock_timeout TO '20s'",
    "SET idle_in_transaction_session_timeout TO '{idle}'",
)


class PostgresConnection(Transaction):
    """Connection to PostgreSQL. idle: limit on idle time within a transaction, which blocks others."""

    def __init__(self, location: ServerLocation, idle: str = "30s") -> None:
        self._location = location
        self._idle = idle
        self._wire: Any = None
        self._prepared: dict[str, Any] = {}

    @property
    def is_lost(self) -> bool:
        """Return whether the connection is closed or was never opened."""
        return self._wire is None

    @property
    def wire(self) -> Any:
        if self._wire is None:
            self._wire = self._connect()
        return self._wire

    def _connect(self) -> Any:
        server = self._location.server
        try:
            wire = _connection(
                server.user,
                host=server.host,
                port=server.port,
                database=server.database,
                password=server.password,
                unix_sock=server.socket,
                ssl_context=False if server.socket else ssl_context(server.tls),
                timeout=_SOCKET_SECONDS,
                application_name="headrace collections",
            )
        except (DatabaseError, *_LOST) as error:
            raise self._unavailable(
                without_password(server_message(error))
            ) from None  # frames with the password
        try:
            if not server.socket:
                # pg8000 sends small chunks; each would wait for the answer to the one before.
                wire._usock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for setting in _SETTINGS:
                wire.execute_simple(setting.format(idle=self._idle))
            if self._location.schema is not None:
                wire.execute_unnamed(
                    "SELECT set_config('search_path', quote_ident($1), false)", (self._location.schema,)
                )
            if wire.execute_simple("SELECT current_schema()").rows == [[None]]:
                raise self._unavailable("there is no such schema")
        except (DatabaseError, *_LOST) as error:
            _hang_up(wire)
            raise self._unavailable(server_message(error)) from error
        except BaseException:
            _hang_up(wire)
            raise
        return wire

    def close(self) -> None:
        wire, self._wire = self._wire, None
        self._prepared.clear()
        if wire is not None:
            _hang_up(wire)

    def begin(self, statement: str) -> None:
        had = not self.is_lost
        try:
            self.simple(statement)
        except StoreUnavailable:
            if not had or not self.is_lost:
                raise
            self.simple(statement)  # it had been lost between two transactions

    def roll_back(self) -> None:
        if not self.is_lost:
            with suppress(ComputeError):
                self.simple("ROLLBACK")

    def simple(self, statement: str) -> list[Any]:
        return self._translated_errors(lambda: self.wire.execute_simple(statement).rows or [])

    def run(self, sql: str, *values: Any) -> list[Any]:
        return self._translated_errors(lambda: self._run(sql, values))

    def _run(self, sql: str, values: Sequence[Any]) -> list[Any]:
        wire = self.wire
        if not values:
            return wire.execute_simple(sql).rows or []
        if sql not in self._prepared:
            self._prepared[sql] = wire.prepare_statement(sql, ())
        name, columns, functions = self._prepared[sql]
        params = _converters.make_params(wire.py_types, values)
        return wire.execute_named(name, params, columns, functions, sql).rows or []

    def insert(self, updates: Iterable[Stored]) -> None:
        lines = (
            b"%d\t%d\t%d\t%d\t\\\\x%b\n" % (place, time, weight, hash, row.hex().encode())
            for place, time, weight, hash, row in updates
        )
        chunks = _chunks(lines)
        first = next(chunks, None)
        if first is not None:
            stream = chain([first], chunks)
            self._translated_errors(
                lambda: self.wire.execute_unnamed("COPY headrace_updates FROM STDIN", stream=stream)
            )

    def updates_with_hashes(self, hashes: Collection[int]) -> Iterable[tuple[int, bytes]]:
        return self.run(
            "SELECT weight, row FROM headrace_updates WHERE hash = ANY ($1::bigint[])", list(hashes)
        )

    def remove(self, places: Sequence[int]) -> None:
        if places:
            self.run("DELETE FROM headrace_updates WHERE place = ANY ($1::bigint[])", list(places))

    def set_weights(self, weights: Sequence[tuple[int, int]]) -> None:
        if weights:
            self.run(
                "UPDATE headrace_updates SET weight = new.weight "
                "FROM unnest($1::bigint[], $2::bigint[]) AS new (weight, place) "
                "WHERE headrace_updates.place = new.place",
                *([*column] for column in zip(*weights)),
            )

    def _translated_errors(self, do: Callable[[], T]) -> T:
        """Call a function, converting database errors. The connection is closed if its state is unknown."""
        try:
            return do()
        except DatabaseError as error:
            state = sqlstate(error) or ""
            if state.startswith(_LOST_STATES):
                self.close()
            if state.startswith(_DAMAGE_STATES):
                raise damaged_store_error(str(self._location), server_message(error)) from error
            raise self._unavailable(server_message(error)) from error
        except _LOST as error:
            self.close()
            raise self._unavailable(server_message(error)) from error
        except ComputeError:
            raise
        except BaseException:
            self.close()
            raise

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the collections in {self._location} cannot be used now",
            why=why,
            fix="check the server, the network and the password",
            undecided=False,
        )


def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Join lines into chunks of limited size for sending."""
    chunk = bytearray()
    for line in lines:
        chunk += line
        if len(chunk) > 1 << 16:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _hang_up(wire: Any) -> None:
    """Close a connection whose server may be unreachable."""
    with suppress(Exception):
        wire.close()
    with suppress(Exception):
        wire._sock.close()  # pg8000 leaves it open where it cannot end the session


_LAYOUT = "collections of Headrace, layout 1"
_TABLES = f"""
    CREATE TABLE headrace_collections (
        number bigserial PRIMARY KEY, id text UNIQUE, description bytea NOT NULL,
        since bigint, upper bigint, next bigint NOT NULL, merged bigint NOT NULL
    );
    COMMENT ON TABLE headrace_collections IS '{_LAYOUT}';
    CREATE TABLE headrace_updates (
        place bigint PRIMARY KEY, time bigint NOT NULL, weight bigint NOT NULL,
        hash bigint NOT NULL, row bytea NOT NULL
    );
    CREATE INDEX headrace_updates_by_hash ON headrace_updates (hash, place)
"""
_LONGEST_WAIT = 0.25
"""Seconds after which `wait` polls, in case a notification was lost."""
_DECISION_SECONDS = 20.0
"""Seconds for which to keep asking whether a commit succeeded after its reply was lost."""


class PostgresCollections(SqlCollections):
    """Store in two PostgreSQL tables, created if missing.

    url: postgresql://USER@HOST:PORT/DATABASE?schema=SCHEMA. The schema must exist; the default is the first
        of the server's search path. Give the password in PGPASSWORD, or in the file that PGPASSFILE names.

    A lost connection raises `StoreUnavailable`; the next call reconnects. If the reply to an append is lost,
    the server is asked for the outcome, so an append that raises has changed nothing. Only if the server
    cannot be reached for 20 seconds is the error's `undecided` true; then the upper shows the outcome.
    """

    def __init__(self, url: str) -> None:
        super().__init__(PostgresDatabase(ServerLocation.parse(url)))


class PostgresDatabase(Database):
    """Connections: one for writing, one for short reads, one for notifications, and one per long read."""

    def __init__(self, location: ServerLocation) -> None:
        self.location = str(location)
        self._location = location
        self._write_lock, self._read_lock = Lock(), Lock()
        self._writer, self._reader = PostgresConnection(location), PostgresConnection(location)
        self._notifications = PostgresNotifications(location)
        self._idle: list[PostgresConnection] = []
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        with self.write_transaction() as tx:
            ((there, layout),) = tx.run(
                "SELECT to_regclass('headrace_collections') IS NOT NULL, "
                "obj_description(to_regclass('headrace_collections'))"
            )
            if there and layout != _LAYOUT:
                raise damaged_store_error(
                    self.location, f"the table headrace_collections says {layout!r}, not {_LAYOUT!r}"
                )
            if not there:
                for statement in _TABLES.split(";"):
                    tx.run(statement)

    @contextmanager
    def write_transaction(self) -> Generator[Transaction]:
        with self._write_lock:
            tx = self._writer
            tx.begin("BEGIN")
            try:
                # In each statement after this one, what the writers before us have committed is seen.
                tx.run("SELECT pg_advisory_xact_lock(hashtextextended('headrace ' || current_schema(), 0))")
                yield tx
                ((number, _),) = tx.run(
                    "SELECT pg_current_xact_id_if_assigned()::text, "
                    "pg_notify('headrace_' || md5(current_schema()), '')"
                )
            except BaseException:
                tx.roll_back()
                raise
            self._commit(tx, number)

    def _commit(self, tx: PostgresConnection, number: str | None) -> None:
        try:
            tx.simple("COMMIT")
        except StoreUnavailable as error:
            if not tx.is_lost:
                raise
            if number is None or not self._committed(number, error):
                raise

    def _committed(self, number: str, lost: StoreUnavailable) -> bool:
        """Return whether a transaction committed although the connection broke before the reply."""
        until = time.monotonic() + _DECISION_SECONDS
        while time.monotonic() < until:
            try:
                ((status,),) = self._writer.run("SELECT pg_xact_status($1::text::xid8)", number)
            except StoreUnavailable:
                time.sleep(0.2)
                continue
            if status != "in progress":
                return status == "committed"
            time.sleep(0.02)
        raise StoreUnavailable(
            f"it is not known whether something was written to the collections in {self.location}",
            why=f"the connection broke during the commit, and the server cannot be asked: {lost.why}",
            fix="when the server can be reached again, read the upper: it tells",
            undecided=True,
        ) from lost

    @contextmanager
    def read_transaction(self) -> Generator[Transaction]:
        with self._read_lock, _reading(self._reader) as tx:
            yield tx

    @contextmanager
    def snapshot_transaction(self) -> Generator[Transaction]:
        connection = self._idle.pop() if self._idle else PostgresConnection(self._location, idle="0")
        try:
            with _reading(connection) as tx:
                yield tx
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def wait(self, seconds: float) -> bool:
        return self._notifications.wait(seconds)

    def close(self) -> None:
        for connection in (self._writer, self._reader, *self._idle):
            connection.close()
        self._idle.clear()
        self._notifications.close()


@contextmanager
def _reading(connection: PostgresConnection) -> Generator[Transaction]:
    connection.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield connection
        connection.simple("COMMIT")
    except BaseException:
        connection.roll_back()
        raise


class PostgresNotifications:
    """Connection that receives commit notifications, opened at the first wait."""

    def __init__(self, location: ServerLocation) -> None:
        self._connection = PostgresConnection(location)
        self._asked = 0.0

    def listen(self) -> None:
        """Start listening. Commits before this call may have been missed."""
        ((channel,),) = self._connection.simple("SELECT 'headrace_' || md5(current_schema())")
        self._connection.simple(f"LISTEN {channel}")

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._happened(min(_LONGEST_WAIT, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
        return True

    def _happened(self, seconds: float) -> bool:
        if self._connection.is_lost:
            self.listen()
            return True
        # What pg8000 has read from the socket already is only found by asking the server something.
        if self._readable(seconds) or time.monotonic() - self._asked > _LONGEST_WAIT:
            self._connection.simple("SELECT 1")
            self._asked = time.monotonic()
        heard: deque[Any] = self._connection.wire.notifications
        happened = bool(heard)
        heard.clear()
        return happened

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._connection.wire._usock, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        self._connection.close()
