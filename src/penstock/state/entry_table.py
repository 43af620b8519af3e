"""The table of a SQLite file that holds values by slot and key, as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

CREATE = "CREATE TABLE entry (slot INTEGER, key BLOB, value BLOB, PRIMARY KEY (slot, key)) WITHOUT ROWID"
_WRITE = "INSERT OR REPLACE INTO entry VALUES (?, ?, ?)"
_REMOVE = "DELETE FROM entry WHERE slot = ? AND key = ?"
_READ = "SELECT value FROM entry WHERE slot = ? AND key = ?"


def read(connection: sqlite3.Connection, slot: int, key: bytes) -> bytes | None:
    """The value of a key, None where there is none."""
    row = connection.execute(_READ, (slot, key)).fetchone()
    return None if row is None else row[0]


def put(connection: sqlite3.Connection, slot: int, key: bytes, value: bytes | None) -> None:
    """Put a value in place of what was there; None removes it."""
    if value is None:
        connection.execute(_REMOVE, (slot, key))
    else:
        connection.execute(_WRITE, (slot, key, value))
