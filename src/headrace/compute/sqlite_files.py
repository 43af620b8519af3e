"""SQLite files of the serving layer: their write-ahead log, their identity, damage, checksums of values."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from headrace.compute.errors import StoreDamaged

LOG_LIMIT = 1 << 20
"""Size in bytes that a write-ahead log may keep when its pages are in the database."""
_SEAL = 4
_ID, _COUNT = 16, 8
"""Bytes of a file's id, and of its count of commits."""
_LOOKS, _PAUSE = 3, 0.02
"""How often a file that seems to be another one is looked at again, and the seconds between."""


def limit_log(connection: sqlite3.Connection, pages: int) -> None:
    """Checkpoint the log every `pages` pages, and truncate it to LOG_LIMIT on reset."""
    connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}")


def cut_log(connection: sqlite3.Connection, location: str) -> None:
    """Truncate a log that is larger than its database, unless another connection is using it."""
    try:
        if os.path.getsize(f"{location}-wal") <= max(LOG_LIMIT, os.path.getsize(location)):
            return
    except OSError:
        return
    (busy,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {busy}")


def has_identity(connection: sqlite3.Connection) -> bool:
    """Return whether a database has the identity table that `OpenFile` reads."""
    return bool(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'headrace_file'").fetchall())


def give_identity(connection: sqlite3.Connection) -> None:
    """Give a database a new identity, distinct from its copies and from its original."""
    connection.execute("CREATE TABLE IF NOT EXISTS headrace_file (token BLOB NOT NULL)")
    connection.execute("DELETE FROM headrace_file")
    connection.execute("INSERT INTO headrace_file VALUES (?)", (os.urandom(_ID) + bytes(_COUNT),))


def count_commit(connection: sqlite3.Connection) -> None:
    """Increment the commit count, before the commit of a transaction."""
    ((token,),) = connection.execute("SELECT token FROM headrace_file").fetchall()
    counted = int.from_bytes(token[_ID:], "big") + 1
    connection.execute("UPDATE headrace_file SET token = ?", (token[:_ID] + counted.to_bytes(_COUNT, "big"),))


class OpenFile:
    """Identity of an open database file, to detect that it was replaced or overwritten.

    A row of the database has a random id and a count of commits. `check` reads it from the file itself, past
    SQLite, whose caches and log would hide for long that the file was overwritten. There the count lags
    behind, up to the last commit that was copied from the log, but it never falls.
    """

    def __init__(self, location: str, connection: sqlite3.Connection) -> None:
        self._location = location
        self._lock = threading.Lock()
        self._commits = -1
        self._id, self._page_size, self._offset = _locate(connection)
        self._name = _name_of(location)
        if self._name is None:  # a temporary database
            return
        user = object()
        self._descriptor = _share_descriptor(location, self._name, user)
        self._release = weakref.finalize(self, self._descriptor.release, user)
        self._commits = self._look()
        if self._commits < 0:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._commits = self._look()

    def check(self) -> None:
        """Raise `StoreDamaged` if the file was replaced or overwritten since it was opened."""
        if self._name is None or self._is_same():
            return
        for _ in range(_LOOKS):
            if _name_of(self._location) != self._name:
                break
            # A page may look wrong while it is written; and `VACUUM` may move the row to another one.
            time.sleep(_PAUSE)
            with suppress(sqlite3.Error, ValueError), closing(_connect_to_read(self._location)) as fresh:
                id, _, offset = _locate(fresh)
                if id == self._id:
                    self._offset = offset
            if self._is_same():
                return
        raise StoreDamaged(
            f"{self._location} was replaced while this process had it open",
            why="It was moved, overwritten or restored. This process still has parts of the earlier file, "
            "which nobody else reads.",
            fix="start this process again. Restore files only while the controller and all replicas are "
            "stopped: `headrace backup restore` sees to it",
        )

    def _is_same(self) -> bool:
        if _name_of(self._location) != self._name:
            return False
        with self._lock:
            commits = self._look()
            if commits < self._commits:
                return False
            self._commits = commits
        return True

    def _look(self) -> int:
        """Return the number of commits that the file contains without its log, or -1 if it has another id."""
        try:
            page = os.pread(self._descriptor.number, self._page_size, self._offset)
        except OSError:
            return -1
        # Earlier forms of the row may remain in the page.
        _, *after = page.split(self._id)
        return max((int.from_bytes(each[:_COUNT], "big") for each in after), default=-1)

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keep a connection's locks during a `with` block that may end after `close`."""
        if self._name is None:
            yield
            return
        user = object()
        with _descriptors_lock:
            self._descriptor.users.add(user)
        try:
            yield
        finally:
            self._descriptor.release(user)

    def close(self) -> None:
        """Close the file. Call it after the connections are closed, except those `in_use`: they would
        lose their locks."""
        if self._name is not None:
            self._release()


_Name: TypeAlias = tuple[int, int]


def _name_of(location: str) -> _Name | None:
    """Return a file's device and inode; None for a missing or temporary file."""
    try:
        found = os.stat(location)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _connect_to_read(location: str) -> sqlite3.Connection:
    """Connect to a database for reading. Does not create a missing one."""
    return sqlite3.connect(f"{Path(location).absolute().as_uri()}?mode=ro", uri=True)


def _locate(connection: sqlite3.Connection) -> tuple[bytes, int, int]:
    """Return a database's id, its page size, and the file offset of the page that contains the id.

    Raises ValueError, `sqlite3.Error` if it has none.
    """
    ((token,),) = connection.execute("SELECT token FROM headrace_file").fetchall()
    ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    ((root,),) = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'headrace_file'"
    ).fetchall()
    return token[:_ID], size, (root - 1) * size


@dataclass(frozen=True, slots=True, eq=False)
class _Descriptor:
    """Shared descriptor of a file, closed by its last user in this process.

    When a process closes any descriptor of a file, it loses all its locks on the file, also those of SQLite.
    """

    name: _Name
    number: int
    users: set[object]

    def release(self, user: object) -> None:
        with _descriptors_lock:
            self.users.discard(user)
            if not self.users and _descriptors.get(self.name) is self:
                del _descriptors[self.name]
                os.close(self.number)


_descriptors: dict[_Name, _Descriptor] = {}
_descriptors_lock = threading.RLock()
"""Lock of the descriptors and their users. The collector may release a user in the thread that holds it,
between any two steps; a number of users, read and written back, would then be wrong."""


def _share_descriptor(location: str, name: _Name, user: object) -> _Descriptor:
    with _descriptors_lock:
        while True:
            shared = _descriptors.get(name)
            if shared is None:
                shared = _descriptors[name] = _Descriptor(name, os.open(location, os.O_RDONLY), set())
            shared.users.add(user)
            if _descriptors.get(name) is shared:
                return shared
            # The collector has released its last other user, and closed it.


def damage_in(connection: sqlite3.Connection, *, thorough: bool = False) -> str | None:
    """Return the first damage that SQLite finds in the pages of a database, or None.

    It does not see wrong bytes within a value. thorough: compare indexes with their tables, too.
    """
    check = "integrity_check" if thorough else "quick_check"
    ((found,),) = connection.execute(f"PRAGMA {check}(1)").fetchall()
    return None if found == "ok" else str(found)


def seal(value: bytes) -> bytes:
    """Return a value prefixed with its checksum."""
    return zlib.crc32(value).to_bytes(_SEAL, "big") + value


def unseal(sealed: bytes) -> bytes:
    """Return the value given to `seal`. Raises ValueError if the checksum does not match."""
    value = sealed[_SEAL:]
    if zlib.crc32(value).to_bytes(_SEAL, "big") != sealed[:_SEAL]:
        raise ValueError("its bytes do not have their checksum")
    return value
