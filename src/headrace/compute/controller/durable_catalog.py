"""Durable state of a controller in one SQLite file: the catalog, the assigned ids, the epoch.

Each change is one transaction, synced to disk when it returns, and refused once a later controller has
started. A controller may be killed at any point: the file has exactly the changes that were made.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from headrace.compute.controller.catalog import CollectionEntry, ControllerCatalog, ReplicaEntry, ViewEntry
from headrace.compute.errors import ComputeError, StaleEpoch, StoreDamaged, StoreUnavailable
from headrace.compute.protocol.commands import Id
from headrace.compute.sqlite_files import (
    OpenFile,
    count_commit,
    damage_in,
    give_identity,
    has_identity,
    limit_log,
    seal,
    unseal,
)
from headrace.errors import HeadraceError
from headrace.file_system import make_private_file

_APPLICATION = 0x4852434E
_VERSION = 2
_UNSEALED = 1
"""Earlier version, whose entries have no checksums. It is converted when it is opened."""
_BUSY_SECONDS = 20.0
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}
_TABLES = f"""
    CREATE TABLE numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE collections (place INTEGER PRIMARY KEY, id TEXT UNIQUE, name TEXT UNIQUE, entry BLOB);
    CREATE TABLE views (place INTEGER PRIMARY KEY, id TEXT UNIQUE, name TEXT UNIQUE, entry BLOB);
    CREATE TABLE replicas (place INTEGER PRIMARY KEY, name TEXT UNIQUE, entry BLOB);
    CREATE TABLE strays (id TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE positions (view TEXT PRIMARY KEY, time INTEGER) WITHOUT ROWID;
    INSERT INTO numbers VALUES ('epoch', 0), ('s', 0), ('u', 0), ('t', 0), ('time', 0);
    PRAGMA application_id = {_APPLICATION};
    PRAGMA user_version = {_VERSION}
"""
_POSITIONS = "CREATE TABLE IF NOT EXISTS positions (view TEXT PRIMARY KEY, time INTEGER) WITHOUT ROWID"
"""Statement that creates the table of positions where an earlier version has made the file."""
_SEAL = "seal"
"""Name of the number that is the checksum of all small tables. Entries have checksums of their own."""


class DurableCatalog:
    """Durable catalog and epoch of a controller. Used by one thread."""

    def __init__(self, connection: sqlite3.Connection, location: str) -> None:
        self.location = location
        self._connection = connection
        self._epoch = 0
        self._seen = -1
        self._file: OpenFile | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> DurableCatalog:
        """Open the state in a file, created if missing; ":memory:" for a temporary one.

        Raises `StoreDamaged` for another kind of file, `StoreUnavailable` if it cannot be opened.
        """
        location = os.fspath(path)
        if location != ":memory:":
            with suppress(OSError):  # SQLite gives the better error
                make_private_file(location)
        with _translated(location):
            connection = sqlite3.connect(location, timeout=_BUSY_SECONDS, isolation_level=None)
        return cls.open_on_connection(connection, location)

    @classmethod
    def open_on_connection(cls, connection: sqlite3.Connection, location: str) -> DurableCatalog:
        """Open the state in the database of a connection, which it takes over. Raises as `open` does."""
        with _translated(location):
            try:
                state = cls(connection, location)
                state._prepare()
            except BaseException:
                connection.close()
                raise
        return state

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        if self._file is not None:
            self._file.close()

    def start(self) -> tuple[int, ControllerCatalog]:
        """Start a new controller. Returns its epoch, which is unique and increasing, and the catalog.

        Raises `StoreDamaged` if the file was not written by this class, or has changed since.
        """
        with _translated(self.location), self._transaction():
            self._check_damage()
            epoch = self._number("epoch") + 1
            self._set_number("epoch", epoch)
            return epoch, self._catalog()

    def check(self) -> None:
        """Raise `StoreDamaged` if the file is damaged."""
        with _translated(self.location):
            self._check_damage()
            self._catalog()

    def check_epoch(self, epoch: int) -> None:
        """Raise `StaleEpoch` if a later controller has started. Fast if the file has not changed.

        Raises `StoreDamaged` if it was replaced: a later controller would not be seen in the earlier one.
        """
        assert self._file is not None
        self._file.check()
        try:
            (seen,) = self._connection.execute("PRAGMA data_version").fetchone()
            if seen != self._seen:
                self._epoch, self._seen = self._number("epoch"), seen
        except sqlite3.Error as error:
            raise _error_of(error, self.location) from error
        _check(epoch, self._epoch)

    @contextmanager
    def begin_change(self, epoch: int) -> Generator[StateChange]:
        """Make one change in a `with` block: durable at its end, rolled back by an exception.

        Raises `StaleEpoch` if a later controller has started, `StoreDamaged` if the small tables are not as
        they were written.
        """
        with _translated(self.location), self._transaction():
            _check(epoch, self._number("epoch"))
            yield StateChange(self._connection)

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA synchronous = FULL")
        limit_log(connection, 50)
        if self._version() != _VERSION or not has_identity(connection):
            connection.execute("PRAGMA journal_mode = WAL")
            with self._transaction(is_sealed=self._version() == _VERSION):
                version = self._version()
                if not has_identity(connection):
                    give_identity(connection)
                if version == _UNSEALED:
                    self._seal_entries()
                elif version is None:
                    for statement in _TABLES.split(";"):
                        connection.execute(statement)
        self._file = OpenFile(self.location, connection)

    def _version(self) -> int | None:
        """Version of the file's layout; None if it is empty. Raises `StoreDamaged` for other files."""
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if application == _APPLICATION and version in (_VERSION, _UNSEALED):
            return version
        if application == _APPLICATION:
            raise _damaged(
                self.location, f"its layout has version {version}; this program reads version {_VERSION}"
            )
        if application or version or self._connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            raise _damaged(self.location, "it is the database of another program")
        return None

    def _seal_entries(self) -> None:
        """Convert the file of an earlier version."""
        run = self._connection.execute
        run(_POSITIONS)
        for table in ("collections", "views", "replicas"):
            for place, entry in run(f"SELECT place, entry FROM {table}").fetchall():
                run(f"UPDATE {table} SET entry = ? WHERE place = ?", (seal(entry), place))
        run(f"PRAGMA user_version = {_VERSION}")

    def _check_damage(self) -> None:
        """Raise `StoreDamaged` for corrupt pages, or for small tables that do not match their checksum."""
        found = damage_in(self._connection, thorough=True)
        if found is not None:
            raise _damaged(self.location, found)
        self._check_seal()

    def _check_seal(self) -> None:
        if self._number(_SEAL) != self._checksum():
            raise _damaged(self.location, "its numbers do not have their checksum")

    def _checksum(self) -> int:
        run = self._connection.execute
        numbers = run("SELECT name, value FROM numbers WHERE name <> ? ORDER BY name", (_SEAL,)).fetchall()
        others = [run(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in ("strays", "positions")]
        return zlib.crc32(repr((numbers, *others)).encode())

    @contextmanager
    def _transaction(self, *, is_sealed: bool = True) -> Generator[None]:
        if self._file is not None:
            self._file.check()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if is_sealed:  # before the change, whose checksum would vouch for any damage
                self._check_seal()
            yield
            self._connection.execute(
                "INSERT OR REPLACE INTO numbers VALUES (?, ?)", (_SEAL, self._checksum())
            )
            count_commit(self._connection)
            self._commit()
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise
        self._seen = -1

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _number(self, name: str) -> int:
        found = self._connection.execute("SELECT value FROM numbers WHERE name = ?", (name,)).fetchone()
        if found is None or not isinstance(found[0], int):
            raise _damaged(self.location, f"its number {name!r} is missing")
        return found[0]

    def _set_number(self, name: str, value: int) -> None:
        self._connection.execute("UPDATE numbers SET value = ? WHERE name = ?", (value, name))

    def _catalog(self) -> ControllerCatalog:
        catalog = ControllerCatalog(last_time=self._number("time"), given=self._number("s"))
        try:
            for entry in self._entries("collections"):
                catalog.add(CollectionEntry.from_bytes(entry))
            for entry in self._entries("views"):
                catalog.add(ViewEntry.from_bytes(entry))
            for entry in self._entries("replicas"):
                replica = ReplicaEntry.from_bytes(entry)
                catalog.replicas[replica.name] = replica
        except (ValueError, TypeError, HeadraceError) as error:
            raise _damaged(self.location, f"an entry cannot be read: {error}") from error
        catalog.strays.update(id for (id,) in self._connection.execute("SELECT id FROM strays"))
        catalog.positions.update(self._connection.execute("SELECT view, time FROM positions").fetchall())
        return catalog

    def _entries(self, table: str) -> list[Any]:
        found = self._connection.execute(f"SELECT entry FROM {table} ORDER BY place")
        return [unseal(entry) for (entry,) in found]


class StateChange:
    """Operations of one change. Valid within `DurableCatalog.begin_change`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute

    def assign_ids(self, kind: str, count: int = 1) -> list[Id]:
        """Assign unused ids: "s" for collections, "u" for exports of views, "t" for transient exports."""
        ((last,),) = self._run(
            "UPDATE numbers SET value = value + ? WHERE name = ? RETURNING value", (count, kind)
        ).fetchall()
        return [f"{kind}{number}" for number in range(last - count + 1, last + 1)]

    def record_used_times(self, time: int) -> None:
        """Record that times up to this one are used."""
        self._run("UPDATE numbers SET value = max(value, ?) WHERE name = 'time'", (time,))

    def add_stray(self, id: Id) -> None:
        """Record a collection that may be in the store without being in the catalog."""
        self._run("INSERT OR IGNORE INTO strays VALUES (?)", (id,))

    def remove_stray(self, id: Id) -> None:
        """Remove a stray that is now in the catalog, or no longer in the store."""
        self._run("DELETE FROM strays WHERE id = ?", (id,))

    def add_collection(self, entry: CollectionEntry) -> None:
        self._run(
            "INSERT INTO collections (id, name, entry) VALUES (?, ?, ?)",
            (entry.id, entry.name, seal(entry.to_bytes())),
        )

    def remove_collection(self, id: Id) -> None:
        self._run("DELETE FROM collections WHERE id = ?", (id,))

    def add_view(self, entry: ViewEntry) -> None:
        self._run(
            "INSERT INTO views (id, name, entry) VALUES (?, ?, ?)",
            (entry.id, entry.name, seal(entry.to_bytes())),
        )

    def remove_view(self, id: Id) -> None:
        self._run("DELETE FROM views WHERE id = ?", (id,))
        self.record_position(id, None)

    def record_position(self, view: Id, time: int | None) -> None:
        """Record the time from which a later controller lets a view's readers resume; None removes it."""
        if time is None:
            self._run("DELETE FROM positions WHERE view = ?", (view,))
        else:
            self._run("INSERT OR REPLACE INTO positions VALUES (?, ?)", (view, time))

    def add_replica(self, entry: ReplicaEntry) -> None:
        self._run(
            "INSERT INTO replicas (name, entry) VALUES (?, ?)",
            (entry.name, seal(entry.to_bytes())),
        )

    def remove_replica(self, name: str) -> None:
        self._run("DELETE FROM replicas WHERE name = ?", (name,))


def _check(epoch: int, current: int) -> None:
    if epoch != current:
        raise StaleEpoch(
            "another controller has started on the same state",
            why=f"This one has epoch {epoch}, the later one {current}.",
            fix="stop this controller; clients find the other one at its address",
            epoch=epoch,
            current=current,
        )


def _damaged(location: str, why: str) -> StoreDamaged:
    return StoreDamaged(
        f"{location} is not a usable controller state",
        why=why,
        fix="give another file, or restore this one from a backup",
    )


@contextmanager
def _translated(location: str) -> Generator[None]:
    """Convert SQLite errors in the body to errors of the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise _error_of(error, location) from error


def _error_of(error: sqlite3.Error, location: str) -> ComputeError:
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, sqlite3.DatabaseError) and code is not None and code & 0xFF in _DAMAGE:
        return _damaged(location, str(error))
    return StoreUnavailable(
        f"the state of the controller in {location} cannot be used now",
        why=str(error),
        fix="check its folder and disk, and whether another process holds a lock on it",
    )


_AT_ONCE = 1_000


class TransientIds:
    """Generator of ids "t1", "t2", ... for transient exports, unique even across crashes."""

    def __init__(self, state: DurableCatalog, epoch: int) -> None:
        self._state = state
        self._epoch = epoch
        self._left: deque[Id] = deque()

    def next(self) -> Id:
        """Assign a new id. Raises `StaleEpoch`, `StoreUnavailable`."""
        if not self._left:
            with self._state.begin_change(self._epoch) as change:
                self._left.extend(change.assign_ids("t", _AT_ONCE))
        return self._left.popleft()
