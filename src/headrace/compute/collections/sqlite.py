"""Collections in one SQLite file, shared by several processes."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from headrace.compute.collections.rows import damaged_store_error
from headrace.compute.collections.sql_collections import SqlCollections
from headrace.compute.collections.sql_tables import Database, Stored, Transaction
from headrace.compute.errors import ComputeError, StoreUnavailable
from headrace.compute.sqlite_files import (
    OpenFile,
    count_commit,
    cut_log,
    damage_in,
    give_identity,
    has_identity,
    limit_log,
)
from headrace.file_system import make_private_file

_APPLICATION = 0x48524354
_VERSION = 1
_BUSY_SECONDS = 20.0
_SHORTEST, _LONGEST = 0.0005, 0.010
"""Minimum and maximum polling interval of `wait` in seconds, longer the longer nothing happens."""
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}
_TABLES = f"""
    CREATE TABLE headrace_collections (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, description BLOB NOT NULL,
        since INTEGER, upper INTEGER, next INTEGER NOT NULL, merged INTEGER NOT NULL
    );
    CREATE TABLE headrace_updates (
        place INTEGER PRIMARY KEY, time INTEGER NOT NULL, weight INTEGER NOT NULL,
        hash INTEGER NOT NULL, row BLOB NOT NULL
    );
    CREATE INDEX headrace_updates_by_hash ON headrace_updates (hash);
    PRAGMA application_id = {_APPLICATION};
    PRAGMA user_version = {_VERSION}
"""


class SqliteCollections(SqlCollections):
    """Store in one SQLite file, created if missing.

    There is one writer at a time, and an append is on disk when it returns (write-ahead log, fully
    synchronous). Readers never wait. The folder must be on a local disk. Raises `StoreUnavailable` if the
    file cannot be opened, and `StoreDamaged` if it is not a store.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(SqliteDatabase(os.fspath(path)))


class SqliteDatabase(Database):
    """Connections to the file: one for writing, one for short reads, and one per long read."""

    def __init__(self, path: str) -> None:
        self.location = path
        self._write_lock, self._read_lock = Lock(), Lock()
        self._idle: list[sqlite3.Connection] = []
        self._is_closed = False
        with self._translated_errors():
            self._writer = self._open()
            try:
                self._prepare()
                self._file = OpenFile(path, self._writer)
                self._reader = self._open()
                self._seen = self._version()
            except BaseException:
                self._writer.close()
                raise
        self._pause = _SHORTEST

    def _open(self) -> sqlite3.Connection:
        with suppress(OSError):  # SQLite has the better error
            make_private_file(self.location)
        # Each is used by one thread at a time: by the locks, or as long as it is no one else's.
        connection = sqlite3.connect(
            self.location, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cache_size = -32000")
            limit_log(connection, 4000)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self) -> None:
        if self._is_ours() and has_identity(self._writer):
            return
        # The mode of the log cannot be changed within a transaction; it stays with the file.
        self._writer.execute("PRAGMA journal_mode = WAL")
        with _transaction(self._writer, "BEGIN IMMEDIATE"):
            is_new = not self._is_ours()
            if not has_identity(self._writer):
                give_identity(self._writer)
            if is_new:
                for statement in _TABLES.split(";"):
                    self._writer.execute(statement)

    def _is_ours(self) -> bool:
        """Return whether the file is a store, or False if empty. Raises `StoreDamaged` for any other file."""
        ((application,),) = self._writer.execute("PRAGMA application_id").fetchall()
        ((version,),) = self._writer.execute("PRAGMA user_version").fetchall()
        if (application, version) == (_APPLICATION, _VERSION):
            return True
        if application == _APPLICATION:
            raise damaged_store_error(
                self.location, f"it has version {version} of its layout; we know version {_VERSION}"
            )
        if application or version or self._writer.execute("SELECT 1 FROM sqlite_schema").fetchall():
            raise damaged_store_error(self.location, "it is the database of another program")
        return False

    @contextmanager
    def _translated_errors(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> ComputeError:
        code = getattr(error, "sqlite_errorcode", None)
        if isinstance(error, sqlite3.DatabaseError) and code is not None and code & 0xFF in _DAMAGE:
            return damaged_store_error(self.location, str(error))
        return StoreUnavailable(
            f"the collections in {self.location} cannot be used now",
            why=str(error),
            fix="check its folder and disk, and whether another process holds a lock on it",
        )

    @contextmanager
    def write_transaction(self) -> Generator[Transaction]:
        self._file.check()
        with self._write_lock, self._translated_errors(), _transaction(self._writer, "BEGIN IMMEDIATE") as tx:
            before = self._writer.total_changes
            yield tx
            if self._writer.total_changes > before:
                count_commit(self._writer)

    @contextmanager
    def read_transaction(self) -> Generator[Transaction]:
        self._file.check()
        with self._read_lock, self._translated_errors(), _transaction(self._reader, "BEGIN") as tx:
            yield tx

    @contextmanager
    def snapshot_transaction(self) -> Generator[Transaction]:
        self._file.check()
        # The connection may outlive `close`, and keeps its locks until it is closed.
        with self._file.in_use(), self._translated_errors():
            connection = self._idle.pop() if self._idle else self._open()
            try:
                with _transaction(connection, "BEGIN") as tx:
                    yield tx
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            if self._is_closed:
                self._close_idle()

    def _version(self) -> int:
        """Return a number that changes whenever another connection commits."""
        self._file.check()
        with self._read_lock, self._translated_errors():
            return self._reader.execute("PRAGMA data_version").fetchone()[0]

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (version := self._version()) == self._seen:
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(self._pause, left))
            self._pause = min(_LONGEST, self._pause * 1.05)
        self._seen, self._pause = version, _SHORTEST
        return True

    def check(self, *, thorough: bool) -> None:
        with self._read_lock, self._translated_errors():
            found = damage_in(self._reader, thorough=thorough)
        if found is not None:
            raise damaged_store_error(self.location, found)

    def tidy(self) -> None:
        with self._write_lock, self._translated_errors():
            cut_log(self._writer, self.location)

    def erase_deleted(self) -> None:
        """Write the file anew without the pages of deleted rows, and empty its log."""
        with self._write_lock, self._translated_errors():
            with _transaction(self._writer, "BEGIN IMMEDIATE"):
                count_commit(self._writer)
            self._writer.execute("PRAGMA secure_delete = ON")
            self._writer.execute("VACUUM")
            ((busy, _, _),) = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            raise StoreUnavailable(
                f"the log of {self.location} cannot be emptied",
                why="Somebody is reading the collections, and the log holds what was deleted.",
                fix="try again, or stop the replicas first",
            )

    def close(self) -> None:
        self._is_closed = True
        for connection in (self._writer, self._reader):
            with suppress(sqlite3.Error):
                connection.close()
        self._close_idle()
        self._file.close()

    def _close_idle(self) -> None:
        with suppress(IndexError):  # another thread may take the last one
            while True:
                with suppress(sqlite3.Error):
                    self._idle.pop().close()


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Generator[Transaction]:
    connection.execute(begin)
    try:
        yield _SqliteTransaction(connection)
        connection.execute("COMMIT")
    except BaseException:
        # Of a reader that is given up, the collector may have closed the connection first.
        with suppress(sqlite3.ProgrammingError):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


class _SqliteTransaction(Transaction):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, *values: Any) -> list[Any]:
        return self._connection.execute(sql.replace("$", "?"), values).fetchall()

    def insert(self, updates: Iterable[Stored]) -> None:
        self._connection.executemany("INSERT INTO headrace_updates VALUES (?, ?, ?, ?, ?)", updates)

    def updates_with_hashes(self, hashes: Collection[int]) -> Iterable[tuple[int, bytes]]:
        for hash in hashes:
            yield from self.run("SELECT weight, row FROM headrace_updates WHERE hash = $1", hash)

    def remove(self, places: Sequence[int]) -> None:
        self._connection.executemany("DELETE FROM headrace_updates WHERE place = ?", [(p,) for p in places])

    def set_weights(self, weights: Sequence[tuple[int, int]]) -> None:
        self._connection.executemany("UPDATE headrace_updates SET weight = ? WHERE place = ?", weights)
