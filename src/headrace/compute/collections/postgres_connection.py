"""Connection to PostgreSQL, opened on demand and reopened after a loss."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import pg8000.converters as pg8000_converters  # pyright: ignore[reportMissingTypeStubs]
import pg8000.native as pg8000_native  # pyright: ignore[reportMissingTypeStubs]
from pg8000.exceptions import DatabaseError, InterfaceError  # pyright: ignore[reportMissingTypeStubs]

from headrace.compute.collections.rows import damaged_store_error
from headrace.compute.collections.sql_database import Stored, Transaction
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


class Connection(Transaction):
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

    # -- transactions ---------------------------------------------------------------------------

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

    # -- statements -----------------------------------------------------------------------------

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

    # -- errors ---------------------------------------------------------------------------------

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
    """Close a connection, of which the server may be gone."""
    with suppress(Exception):
        wire.close()
    with suppress(Exception):
        wire._sock.close()  # pg8000 leaves it open where it cannot end the session
