"""The working copy of a shard: one SQLite file that all workers of a host share.

It holds committed versions only, so that whatever becomes of a tick, the copy
is right: a tick reads through it and writes a file; the tick after the commit
applies that file. A copy that is at a version its chain does not know, or that
was left by a machine that has since been restarted, is thrown away and rebuilt.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.state import entry_table
from penstock.state.chain import Chain, Version
from penstock.state.files import Entry, read_entries

if TYPE_CHECKING:
    from collections.abc import Iterator


class WorkingCopy:
    """A shard's state at one version, held fixed from `open` to `close`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._slots = dict(connection.execute("SELECT name, id FROM slot"))

    @classmethod
    def open(cls, path: Path, checkpoint: Path, chain: Chain) -> WorkingCopy:
        """The copy in file `path`, brought to the version of `chain`.

        Raises `CheckpointDamaged` where a file of the chain that is needed is not whole.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection = _at_version(path, checkpoint, chain)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
            # Torn by a crash of the machine: it is only a copy.
            _remove(path)
            connection = _at_version(path, checkpoint, chain)
        return cls(connection)

    def load(self, slot: str, key: bytes) -> bytes | None:
        """The value of a key, None where there is none."""
        number = self._slots.get(slot)
        if number is None:
            return None
        return entry_table.read(self._connection, number, key)

    def entries(self) -> Iterator[Entry]:
        """All entries, sorted."""
        rows = "SELECT key, value FROM entry WHERE slot = ? ORDER BY key"
        for name, number in sorted(self._slots.items()):
            for key, value in self._connection.execute(rows, (number,)):
                yield name, key, value

    def close(self) -> None:
        self._connection.close()


def _at_version(path: Path, checkpoint: Path, chain: Chain) -> sqlite3.Connection:
    connection = _connect(path)
    try:
        while True:
            connection.execute("BEGIN")
            if _version(connection) == chain.version:
                # The open read transaction keeps this version whatever others write.
                return connection
            connection.execute("ROLLBACK")
            _bring_forward(connection, checkpoint, chain)
    except BaseException:
        connection.close()
        raise


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    try:
        # A killed process cannot tear the file in this mode; a stopped machine could, hence `boot`.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")
        if _boot_of(connection) != _boot():
            connection.execute("BEGIN EXCLUSIVE")
            if _boot_of(connection) != _boot():
                _create(connection)
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _create(connection: sqlite3.Connection) -> None:
    for table in ("version", "slot", "entry"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute("CREATE TABLE version (tick INTEGER, attempt TEXT, boot TEXT)")
    connection.execute("CREATE TABLE slot (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
    connection.execute(entry_table.CREATE)
    connection.execute("INSERT INTO version VALUES (NULL, NULL, ?)", (_boot(),))


def _bring_forward(connection: sqlite3.Connection, checkpoint: Path, chain: Chain) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again: another worker may have been first.
        files = chain.behind(_version(connection))
        if files is None:
            connection.execute("DELETE FROM entry")
            files = tuple(link.file for link in chain.links)
        for file in files:
            _apply(connection, read_entries(checkpoint, file))
        version = chain.version
        tag = (None, None) if version is None else (version.tick, version.attempt)
        connection.execute("UPDATE version SET tick = ?, attempt = ?", tag)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _apply(connection: sqlite3.Connection, entries: Iterator[Entry]) -> None:
    numbers: dict[str, int] = dict(connection.execute("SELECT name, id FROM slot"))
    for slot, key, value in entries:
        number = numbers.get(slot)
        if number is None:
            row = connection.execute("INSERT INTO slot (name) VALUES (?) RETURNING id", (slot,)).fetchone()
            number = numbers[slot] = row[0]
        entry_table.put(connection, number, key, value)


def _version(connection: sqlite3.Connection) -> Version | None:
    tick, attempt = connection.execute("SELECT tick, attempt FROM version").fetchone()
    return None if tick is None else Version(tick, attempt)


def _boot_of(connection: sqlite3.Connection) -> str | None:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'version'").fetchone()
    return found and connection.execute("SELECT boot FROM version").fetchone()[0]


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
