"""Collections in PostgreSQL: two tables of one schema, shared by any number of processes."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from headrace.compute.collections.postgres_connection import Connection, ServerLocation
from headrace.compute.collections.rows import damaged_store_error
from headrace.compute.collections.sql_collections import SqlCollections
from headrace.compute.collections.sql_database import Database, Transaction
from headrace.compute.errors import StoreUnavailable

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
        self._writer, self._reader = Connection(location), Connection(location)
        self._notifications = Notifications(location)
        self._idle: list[Connection] = []
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

    # -- transactions ---------------------------------------------------------------------------

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

    def _commit(self, tx: Connection, number: str | None) -> None:
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
        connection = self._idle.pop() if self._idle else Connection(self._location, idle="0")
        try:
            with _reading(connection) as tx:
                yield tx
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    # -- the rest -------------------------------------------------------------------------------

    def wait(self, seconds: float) -> bool:
        return self._notifications.wait(seconds)

    def close(self) -> None:
        for connection in (self._writer, self._reader, *self._idle):
            connection.close()
        self._idle.clear()
        self._notifications.close()


@contextmanager
def _reading(connection: Connection) -> Generator[Transaction]:
    connection.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield connection
        connection.simple("COMMIT")
    except BaseException:
        connection.roll_back()
        raise


class Notifications:
    """Connection that receives commit notifications, opened at the first wait."""

    def __init__(self, location: ServerLocation) -> None:
        self._connection = Connection(location)
        self._asked = 0.0

    def listen(self) -> None:
        """Connect. Earlier commits may have gone unnoticed."""
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
