"""SQLite files of the serving layer: their write-ahead log, checks for damage, and checksums of values."""

from __future__ import annotations

import os
import sqlite3
import zlib
from contextlib import suppress

from penstock.compute.errors import StoreDamaged

LOG_LIMIT = 1 << 20
"""Size in bytes that a write-ahead log may keep when its pages are in the database."""
_SEAL = 4


def limit_log(connection: sqlite3.Connection, pages: int) -> None:
    """Copy the log into the database every `pages` pages, and truncate it to LOG_LIMIT on reset."""
    connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}")


def cut_log(connection: sqlite3.Connection, location: str) -> None:
    """Empty a log that is longer than its database, unless another connection needs it now."""
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


def identity_of(location: str) -> tuple[int, int] | None:
    """Return what tells a file from another of the same name; None for a missing or temporary one."""
    try:
        found = os.stat(location)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check_same(location: str, opened: tuple[int, int] | None) -> None:
    """Raise `StoreDamaged` if a file is no longer the one that was opened, whose changes nobody else sees."""
    if identity_of(location) != opened:
        raise StoreDamaged(
            f"{location} was replaced while this process had it open",
            why="It was moved or restored. This process still has the earlier file, which nobody else reads.",
            fix="start this process again. Restore files only while the controller and all replicas are "
            "stopped: `penstock backup restore` sees to it",
        )


def damage_in(connection: sqlite3.Connection, *, thorough: bool = False) -> str | None:
    """Return the first damage that SQLite finds in the pages of a database, or None.

    It does not see wrong bytes within a value. thorough: compare indexes with their tables, too.
    """
    check = "integrity_check" if thorough else "quick_check"
    ((found,),) = connection.execute(f"PRAGMA {check}(1)").fetchall()
    return None if found == "ok" else str(found)


def seal(value: bytes) -> bytes:
    """Return a value with its checksum in front."""
    return zlib.crc32(value).to_bytes(_SEAL, "big") + value


def unseal(sealed: bytes) -> bytes:
    """Return the value of `seal`. Raises ValueError if it does not have its checksum."""
    value = sealed[_SEAL:]
    if zlib.crc32(value).to_bytes(_SEAL, "big") != sealed[:_SEAL]:
        raise ValueError("its bytes do not have their checksum")
    return value
