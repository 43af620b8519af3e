"""Local stores in SQLite: the working copy of a shard, and the scratch file of a run.

All workers of a host share the working copy of a shard. It holds committed versions only, so it stays
right whatever becomes of a tick: a tick reads through it and writes a file, and the tick after the commit
applies that file. A copy is thrown away and rebuilt if its chain does not know its version, if the machine
has been restarted since, if SQLite cannot read it, or if a value does not match its checksum.

The scratch file holds state that is larger than memory. It belongs to one process, is never synced, and
disappears with the process.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from penstock.state.chain import Chain, Version
from penstock.state.codec import decode, key_encoder, value_encoder
from penstock.state.slots import LoadedSlot, Thaw
from penstock.state.sorted_files import Entry, read_entries

if TYPE_CHECKING:
    from collections.abc import Iterator

# --- the table of both: values by slot and key, as bytes ------------------------------------

_CREATE = "CREATE TABLE entry (slot INTEGER, key BLOB, value BLOB, PRIMARY KEY (slot, key)) WITHOUT ROWID"
_WRITE = "INSERT OR REPLACE INTO entry VALUES (?, ?, ?)"
_REMOVE = "DELETE FROM entry WHERE slot = ? AND key = ?"
_READ = "SELECT value FROM entry WHERE slot = ? AND key = ?"


def _read_entry(connection: sqlite3.Connection, slot: int, key: bytes) -> bytes | None:
    row = connection.execute(_READ, (slot, key)).fetchone()
    return None if row is None else row[0]


def _put_entry(connection: sqlite3.Connection, slot: int, key: bytes, value: bytes | None) -> None:
    if value is None:
        connection.execute(_REMOVE, (slot, key))
    else:
        connection.execute(_WRITE, (slot, key, value))


# --- working copies ---------------------------------------------------------------------------


class WorkingCopy:
    """A shard's state in file `path`, brought to the version of `chain` and held there until `close`.

    Raises `CheckpointDamaged` if a file of the chain that it needs is not whole.
    """

    def __init__(self, path: Path, checkpoint: Path, chain: Chain) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._checkpoint, self._chain = path, checkpoint, chain
        self._connect()

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
        """Throw the copy away and build it from the files of its chain."""
        self._connection.close()
        _remove(self._path)
        self._connect()

    def load(self, slot: str, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
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
        return _unsealed(key, _read_entry(self._connection, number, key))

    def entries(self) -> Iterator[Entry]:
        """Yield all entries in order. Raises `AlteredCopy` at one that does not match its checksum."""
        # They become the state itself, not a copy: so SQLite checks its pages first.
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
    """A value of a working copy is not the one that was written."""


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
    """Raise `sqlite3.DatabaseError` for a truncated file, which SQLite may take for an empty table."""
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
    connection.execute(_CREATE)
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
        _put_entry(connection, number, key, None if value is None else _sealed(key, value))


def _version(connection: sqlite3.Connection) -> Version | None:
    tick, attempt = connection.execute("SELECT tick, attempt FROM version").fetchone()
    return None if tick is None else Version(tick, attempt)


def _mark_of(connection: sqlite3.Connection) -> str | None:
    """Boot of the machine and file name under which the copy was begun."""
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


# --- scratch files ------------------------------------------------------------------------------


class SpillFile:
    """A scratch file for the values of any number of slots, among the system's temporary files."""

    def __init__(self) -> None:
        # Without a name SQLite makes a file that nobody else sees and that goes with the connection.
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=OFF")
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.execute(_CREATE)
        self.close = weakref.finalize(self, self._connection.close)
        self._slots = 0
        self.encode_key = key_encoder()
        self.encode = value_encoder()

    def add_slot(self) -> int:
        """Return a number for one more slot."""
        self._slots += 1
        return self._slots

    def read(self, slot: int, key: bytes) -> bytes | None:
        return _read_entry(self._connection, slot, key)

    def write(self, slot: int, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Replace values; None removes one."""
        self._connection.execute("BEGIN")
        for key, value in entries:
            _put_entry(self._connection, slot, key, value)
        self._connection.execute("COMMIT")


class SpilledSlot(LoadedSlot):
    """A slot that keeps about `hot_entries` values in memory between ticks, and the rest in a scratch file.

    Everything touched within a tick stays in memory, so a value may be changed in place; `settle` at the
    end of the tick writes out the values that were loaded longest ago.
    """

    __slots__ = ("_file", "_slot", "_thaw", "hot_entries")

    def __init__(self, file: SpillFile, values: dict[Any, Any], thaw: Thaw, hot_entries: int) -> None:
        self._slot = file.add_slot()
        super().__init__(f"{self._slot} in the scratch file", values)
        self._file = file
        self._thaw = thaw
        self.hot_entries = hot_entries

    @property
    def entries_in_memory(self) -> int:
        return len(self._live)

    def bytes_in_memory(self, estimate: Callable[[dict[Any, Any]], int]) -> int:
        """Estimate the size of the entries that are in memory."""
        return estimate(self._live)

    def settle(self) -> None:
        """At the end of a tick, write out the older half of the values in memory if over the limit."""
        hot = self._live
        if len(hot) <= self.hot_entries:
            return
        leaving = list(islice(hot, len(hot) - self.hot_entries // 2))
        encode_key, encode = self._file.encode_key, self._file.encode
        self._file.write(
            self._slot,
            ((encode_key(key), None if (v := hot[key]) is None else encode(v)) for key in leaving),
        )
        for key in leaving:
            del hot[key]

    def _fetch(self, key: Any) -> Any:
        data = self._file.read(self._slot, self._file.encode_key(key))
        value = None if data is None else self._thaw(decode(data))
        self._live[key] = value
        return value
