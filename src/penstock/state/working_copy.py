"""The working copy of a shard: one SQLite file that all workers of a host share.

It holds committed versions only, so that whatever becomes of a tick, the copy
is right: a tick reads through it and writes a file; the tick after the commit
applies that file. A copy that is at a version its chain does not know, or that
was left by a machine that has since been restarted, is thrown away and rebuilt; so is one
that SQLite cannot read, or of which a value does not match its checksum.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.state import entry_table
from penstock.state.chain import Chain, Version
from penstock.state.sorted_files import Entry, read_entries

if TYPE_CHECKING:
    from collections.abc import Iterator


class WorkingCopy:
    """A shard's state at one version, held fixed from `open` to `close`."""

    def __init__(self, path: Path, checkpoint: Path, chain: Chain) -> None:
        self._path, self._checkpoint, self._chain = path, checkpoint, chain
        self._connect()

    @classmethod
    def open(cls, path: Path, checkpoint: Path, chain: Chain) -> WorkingCopy:
        """The copy in file `path`, brought to the version of `chain`.

        Raises `CheckpointDamaged` where a file of the chain that is needed is not whole.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        return cls(path, checkpoint, chain)

    def _connect(self) -> None:
        try:
            self._connection = _at_version(self._path, self._checkpoint, self._chain)
        except sqlite3.DatabaseError as error:
            if _is_busy(error):
                raise
            # Torn by a crash of the machine: it is only a copy.
            _remove(self._path)
            self._connection = _at_version(self._path, self._checkpoint, self._chain)
        self._slots = dict(self._connection.execute("SELECT name, id FROM slot"))

    def rebuild(self) -> None:
        """Make it anew of the files of its chain."""
        self._connection.close()
        _remove(self._path)
        self._connect()

    def load(self, slot: str, key: bytes) -> bytes | None:
        """The value of a key, None where there is none."""
        try:
            return self._load(slot, key)
        except (sqlite3.DatabaseError, AlteredCopy) as error:
            if _is_busy(error):
                raise
            self.rebuild()
            return self._load(slot, key)

    def _load(self, slot: str, key: bytes) -> bytes | None:
        number = self._slots.get(slot)
        if number is None:
            return None
        return _unsealed(key, entry_table.read(self._connection, number, key))

    def entries(self) -> Iterator[Entry]:
        """All entries, sorted. Raises `AlteredCopy` on the way where one does not match its checksum."""
        # They will be the state itself, and not a copy: so SQLite looks through its pages first.
        try:
            is_whole = self._connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        except sqlite3.DatabaseError:
            is_whole = False
        if not is_whole:
            self.rebuild()
        rows = "SELECT key, value FROM entry WHERE slot = ? ORDER BY key"
        for name, number in sorted(self._slots.items()):
            for key, value in self._connection.execute(rows, (number,)):
                yield name, key, _unsealed(key, value)

    def close(self) -> None:
        self._connection.close()


class AlteredCopy(Exception):
    """A value is not what was put there."""


def _sealed(key: bytes, value: bytes) -> bytes:
    return value + crc32(value, crc32(key)).to_bytes(4, "big")


def _unsealed(key: bytes, sealed: bytes | None) -> bytes | None:
    if sealed is None:
        return None
    value = sealed[:-4]
    if crc32(value, crc32(key)).to_bytes(4, "big") != sealed[-4:]:
        raise AlteredCopy
    return value


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


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
        _check_size(connection, path)
        mark = f"{_boot()} {path.name}"
        if _mark_of(connection) != mark:
            connection.execute("BEGIN EXCLUSIVE")
            if _mark_of(connection) != mark:
                _create(connection, mark)
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_size(connection: sqlite3.Connection, path: Path) -> None:
    """Raises `sqlite3.DatabaseError` for a file that is cut off, which SQLite may take for an empty table."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    page = connection.execute("PRAGMA page_size").fetchone()[0]
    log = path.with_name(f"{path.name}-wal")
    # In this order: another process may move pages from the log to the file meanwhile.
    may_be_in_log = log.exists() and log.stat().st_size > 0
    size = path.stat().st_size
    if size % page or (not may_be_in_log and size < pages * page):
        raise sqlite3.DatabaseError(f"{path} has {size} bytes, and {pages} pages of {page}")


def _create(connection: sqlite3.Connection, mark: str) -> None:
    for table in ("version", "slot", "entry"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute("CREATE TABLE version (tick INTEGER, attempt TEXT, mark TEXT)")
    connection.execute("CREATE TABLE slot (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
    connection.execute(entry_table.CREATE)
    connection.execute("INSERT INTO version VALUES (NULL, NULL, ?)", (mark,))


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
        entry_table.put(connection, number, key, None if value is None else _sealed(key, value))


def _version(connection: sqlite3.Connection) -> Version | None:
    tick, attempt = connection.execute("SELECT tick, attempt FROM version").fetchone()
    return None if tick is None else Version(tick, attempt)


def _mark_of(connection: sqlite3.Connection) -> str | None:
    """When and as what the copy was begun."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'version'").fetchone()
    return found and connection.execute("SELECT mark FROM version").fetchone()[0]


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
