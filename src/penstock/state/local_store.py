"""Local stores in LMDB: the working copy of a shard, and the scratch file of a run.

All workers of a host share the working copy of a shard, which is mapped into their memory. A tick reads the
state as of the last commit. While it writes the file of its changes, it also puts them into the copy, along
with the previous values. So the next tick finds its state in place, and an uncommitted tick is undone by
whoever opens the copy next. A copy at an older version is brought up to date from the files of the chain. It
is discarded and rebuilt if the chain does not contain its version, if the machine has been restarted since,
if LMDB cannot read it, or if a value does not match its checksum.

The scratch file holds state that is larger than memory. It belongs to one process, is never synced, and
disappears with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from hashlib import blake2b
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb  # pyright: ignore[reportMissingTypeStubs]
from xxhash import xxh3_64_digest as _seal

from penstock.full_disk import allocate, full_disk_error
from penstock.state.chain import Chain, Version
from penstock.state.codec import decode, key_encoder, value_encoder
from penstock.state.lazy_slots import LazySlot, Thaw
from penstock.state.sorted_files import Entry, read_entries

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_lmdb: Any = lmdb
_LARGEST = 1 << 38
"""Address space reserved per store, in bytes. The file is only as large as its content.

A process has 128 TB, and a loop keeps all of its shards open at once.
"""
_READERS = 512
_LOCK_BYTES = 1 << 16
"""Size of the table of readers, which is mapped into memory: LMDB needs 64 bytes for each, and a header."""
_OPEN_STORES = 64
"""Number of stores that a process keeps open between ticks."""


# --- keys and values of both ------------------------------------------------------------------

# LMDB takes keys of 511 bytes, of which two are the slot's number. A longer key is stored as its beginning
# and its hash, which together are longer than any that is stored whole, and stands in front of its value.
_SLOT, _BEGINNING, _HASH, _SEAL = 2, 440, 32, 8
_LONGEST_WHOLE = _BEGINNING + _HASH - 1


def _prefix(slot: int) -> bytes:
    return slot.to_bytes(_SLOT, "big")


def _stored_key(key: bytes) -> bytes:
    if len(key) <= _LONGEST_WHOLE:
        return key
    return key[:_BEGINNING] + blake2b(key, digest_size=_HASH).digest()


def _sealed(key: bytes, value: bytes) -> bytes:
    seal = _seal(key + value)
    if len(key) <= _LONGEST_WHOLE:
        return value + seal
    return len(key).to_bytes(4, "big") + key + value + seal


def _unsealed(key: bytes, stored: bytes) -> bytes:
    if len(key) > _LONGEST_WHOLE:
        kept, stored = _taken_apart(stored)
        if kept != key:
            raise AlteredCopy
    value = stored[:-_SEAL]
    if _seal(key + value) != stored[-_SEAL:]:
        raise AlteredCopy
    return value


def _taken_apart(stored: bytes) -> tuple[bytes, bytes]:
    """Split a stored value with an embedded long key into the key and the sealed value."""
    end = 4 + int.from_bytes(stored[:4], "big")
    return stored[4:end], stored[end:]


# --- working copies -----------------------------------------------------------------------------


class WorkingCopy:
    """A shard's state in the file `path`, advanced to the version of `chain` and pinned there until `close`.

    Raises `CheckpointDamaged` if a required file of the chain is damaged.
    """

    def __init__(self, path: Path, checkpoint: Path, chain: Chain) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._checkpoint, self._chain = path, checkpoint, chain
        self._connect()

    def _connect(self) -> None:
        self._store = _store(self._path)
        try:
            self._transaction = self._store.at_version(self._checkpoint, self._chain)
        except _lmdb.DiskError as error:
            raise full_disk_error(self._path) from error
        except (_lmdb.Error, AlteredCopy):
            # It is only a copy.
            _throw_away(self._path)
            self._store = _store(self._path)
            self._transaction = self._store.at_version(self._checkpoint, self._chain)
        self._slots = self._store.slots(self._transaction)
        self._prefixes = {name: _prefix(number) for name, number in self._slots.items()}
        self._get = self._transaction.get

    def advance(self, chain: Chain) -> None:
        """Advance to the version of another chain."""
        self.close()
        self._chain = chain
        self._connect()

    def rebuild(self) -> None:
        """Discard the copy and rebuild it from its chain's files."""
        self._transaction.abort()
        _throw_away(self._path)
        self._connect()

    def load(self, slot: str, key: bytes) -> bytes | None:
        """Read the value of a key; None if absent."""
        prefix = self._prefixes.get(slot)
        if prefix is None:
            return None
        try:
            stored = self._get(prefix + (key if len(key) <= _LONGEST_WHOLE else _stored_key(key)))
            return None if stored is None else _unsealed(key, stored)
        except (_lmdb.Error, AlteredCopy):
            self.rebuild()
            return self.load(slot, key)

    def entries(self) -> Iterator[Entry]:
        """Iterate over all entries in order. Raises `AlteredCopy` at one that does not match its checksum."""
        try:
            for name, number in sorted(self._slots.items()):
                for key, stored in _in_order(self._transaction, number):
                    yield name, key, _unsealed(key, stored)
        except _lmdb.Error as error:
            raise AlteredCopy from error

    def put(self, changes: Iterable[Entry], version: Version) -> None:
        """Write a tick's changes to the copy as `version`, which may or may not be committed later.

        The changes are skipped if the copy is no longer at the chain's version.
        """
        try:
            self._store.put(changes, self._chain, version)
        except _lmdb.DiskError as error:
            raise full_disk_error(self._path) from error
        except _lmdb.Error:
            self.rebuild()

    def close(self) -> None:
        """Release the store. May be called again, and after an `advance` that failed."""
        transaction = self.__dict__.pop("_transaction", None)
        if transaction is not None:
            transaction.abort()
        # A cell's code refers to its copy in a cycle. The store must not wait until that is collected.
        self.__dict__.pop("_store", None)
        self.__dict__.pop("_get", None)


class AlteredCopy(Exception):
    """Checksum mismatch of a value in a working copy."""


def _in_order(transaction: Any, slot: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and stored values of a slot, ordered by whole keys."""
    prefix = _prefix(slot)
    cursor = transaction.cursor()
    if not cursor.set_range(prefix):
        return
    # Keys that begin alike may have changed places where some of them are hashed.
    alike: list[tuple[bytes, bytes]] = []
    for stored_key, value in cursor:
        if stored_key[:_SLOT] != prefix:
            break
        key = stored_key[_SLOT:]
        if alike and key[:_BEGINNING] != alike[0][0][:_BEGINNING]:
            yield from sorted(map(_whole, alike))
            alike = []
        if len(key) < _BEGINNING:
            yield key, value
        else:
            alike.append((key, value))
    yield from sorted(map(_whole, alike))


def _whole(pair: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    key, stored = pair
    return (_taken_apart(stored)[0], stored) if len(key) > _LONGEST_WHOLE else pair


class _Store:
    """A working copy's file, open in this process.

    `meta` has the slot numbers by name, and the versions of the entries: the current one, the previous one,
    and whether `undo` leads back to it. `undo` has the previous value of each key, empty if there was none.
    """

    def __init__(self, path: Path) -> None:
        self.inode = path.stat().st_ino if path.exists() else 0
        allocate(_lock_file(path), _LOCK_BYTES)
        self._environment = _lmdb.open(
            str(path),
            subdir=False,
            map_size=_LARGEST,
            max_dbs=3,
            max_readers=_READERS,
            # A killed process cannot tear the file, since the system writes its pages. A stopped machine can.
            sync=False,
            metasync=False,
            readahead=False,
        )
        self._environment.reader_check()
        _check_size(self._environment, path)
        self.inode = path.stat().st_ino
        self.pid = os.getpid()
        self.meta, self.entry, self.undo = (
            self._environment.open_db(name) for name in (b"meta", b"entry", b"undo")
        )

    def at_version(self, checkpoint: Path, chain: Chain) -> Any:
        """Open a read transaction at a chain's version, unaffected by other writers."""
        while True:
            transaction = self._environment.begin(db=self.entry)
            try:
                if self._version(transaction)[0] == chain.version:
                    return transaction
            except BaseException:
                transaction.abort()
                raise
            transaction.abort()
            self._bring_forward(checkpoint, chain)

    def slots(self, transaction: Any) -> dict[str, int]:
        found = transaction.get(b"slots", db=self.meta)
        return {} if found is None else json.loads(found)

    def put(self, changes: Iterable[Entry], chain: Chain, version: Version) -> None:
        """Write a tick's changes, as `WorkingCopy.put` specifies."""
        with self._environment.begin(self.entry, write=True) as transaction:
            if self._undone(transaction, chain) != chain.version:
                return
            transaction.drop(self.undo, delete=False)
            before = self._apply(transaction, changes)
            # To lead back from a copy that was empty, it is emptied.
            if chain.version is not None:
                cursor = transaction.cursor(db=self.undo)
                cursor.putmulti(sorted(before), append=True)
            self._note(transaction, version, chain.version, undo=True)

    def _bring_forward(self, checkpoint: Path, chain: Chain) -> None:
        with self._environment.begin(self.entry, write=True) as transaction:
            at = self._undone(transaction, chain)
            files = () if at == chain.version else chain.behind(at)
            if files is None:
                transaction.drop(self.entry, delete=False)
                files = tuple(link.file for link in chain.links)
            for file in files:
                self._apply(transaction, read_entries(checkpoint, file))
            transaction.drop(self.undo, delete=False)
            self._note(transaction, chain.version, None, undo=False)

    def _undone(self, transaction: Any, chain: Chain) -> Version | None:
        """Undo an uncommitted last version if `chain` does not contain it; return the resulting version."""
        at, before, undo = self._version(transaction)
        if not undo or at in chain.versions:
            return at
        if before is None:
            transaction.drop(self.entry, delete=False)
        else:
            for key, value in transaction.cursor(db=self.undo):
                if value:
                    transaction.put(key, value)
                else:
                    transaction.delete(key)
        # Here, and not by the callers: a task of an earlier tick stops after this.
        transaction.drop(self.undo, delete=False)
        self._note(transaction, before, None, undo=False)
        return before

    def _apply(self, transaction: Any, changes: Iterable[Entry]) -> list[tuple[bytes, bytes]]:
        """Apply changes to entries; return the previous values by stored key."""
        numbers = self.slots(transaction)
        known = len(numbers)
        before: list[tuple[bytes, bytes]] = []
        # One cursor for all, where the transaction's own methods make one for each.
        cursor = transaction.cursor()
        replace, pop, note = cursor.replace, cursor.pop, before.append
        for slot, of_slot in groupby(changes, itemgetter(0)):
            prefix = _prefix(numbers.setdefault(slot, len(numbers)))
            for _, key, value in of_slot:
                stored = prefix + _stored_key(key)
                old = pop(stored) if value is None else replace(stored, _sealed(key, value))
                note((stored, old or b""))
        if len(numbers) > known:
            transaction.put(b"slots", json.dumps(numbers).encode(), db=self.meta)
        return before

    def _version(self, transaction: Any) -> tuple[Version | None, Version | None, bool]:
        found = transaction.get(b"version", db=self.meta)
        if found is None:
            return None, None, False
        at, before, undo = json.loads(found)
        return at and Version(*at), before and Version(*before), undo

    def _note(self, transaction: Any, at: Version | None, before: Version | None, *, undo: bool) -> None:
        versions = [None if v is None else [v.tick, v.attempt] for v in (at, before)]
        transaction.put(b"version", json.dumps([*versions, undo]).encode(), db=self.meta)


def _check_size(environment: Any, path: Path) -> None:
    """Raise `lmdb.CorruptedError` for a truncated file, whose missing pages would crash the process."""
    pages = environment.info()["last_pgno"] + 1
    if path.stat().st_size < pages * environment.stat()["psize"]:
        raise _lmdb.CorruptedError(f"{path} is shorter than its {pages} pages")


# --- the stores that a process has open ----------------------------------------------------------

_open: OrderedDict[Path, _Store] = OrderedDict()
_lock = threading.Lock()


def _store(path: Path) -> _Store:
    with _lock:
        store = _open.get(path)
        if store is None or store.pid != os.getpid() or not _is_file(path, store.inode):
            with _guarded(path):
                store = _opened(path)
        _open[path] = store
        _open.move_to_end(path)
        while len(_open) > _OPEN_STORES:
            _open.popitem(last=False)
        return store


def _opened(path: Path) -> _Store:
    # A file of another boot may be torn.
    mark, begun = f"{_boot()} {path.name}".encode(), path.with_suffix(".boot")
    if not begun.exists() or begun.read_bytes() != mark:
        _remove(path)
        begun.write_bytes(mark)
    try:
        return _Store(path)
    except _lmdb.DiskError as error:
        raise full_disk_error(path) from error
    except _lmdb.Error:
        _remove(path)
        return _Store(path)


def _throw_away(path: Path) -> None:
    with _lock, _guarded(path):
        _open.pop(path, None)
        _remove(path)


def _remove(path: Path) -> None:
    for file in (path, _lock_file(path)):
        file.unlink(missing_ok=True)


def _lock_file(path: Path) -> Path:
    return path.with_name(f"{path.name}-lock")


def _is_file(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except FileNotFoundError:
        return False


@contextmanager
def _guarded(path: Path) -> Generator[None]:
    """Hold an exclusive inter-process lock for opening or removing the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".guard").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


# --- scratch files ------------------------------------------------------------------------------


class SpillFile:
    """Scratch file for the values of any number of slots, in the system's temporary folder."""

    def __init__(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True)
        self._environment = _lmdb.open(
            folder.name, map_size=_LARGEST, max_dbs=0, sync=False, metasync=False, lock=False, readahead=False
        )
        self.close = weakref.finalize(self, _close_scratch, self._environment, folder)
        self._slots = 0
        self.encode_key = key_encoder()
        self.encode = value_encoder()

    def add_slot(self) -> int:
        """Allocate a slot and return its number."""
        self._slots += 1
        return self._slots

    def read(self, slot: int, key: bytes) -> bytes | None:
        with self._environment.begin() as transaction:
            stored = transaction.get(_prefix(slot) + _stored_key(key))
        return None if stored is None else _unsealed(key, stored)

    def write(self, slot: int, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write values; None deletes one."""
        prefix = _prefix(slot)
        try:
            with self._environment.begin(write=True) as transaction:
                for key, value in entries:
                    if value is None:
                        transaction.delete(prefix + _stored_key(key))
                    else:
                        transaction.put(prefix + _stored_key(key), _sealed(key, value))
        except _lmdb.DiskError as error:
            raise full_disk_error(Path(self._environment.path())) from error


def _close_scratch(environment: Any, folder: tempfile.TemporaryDirectory[str]) -> None:
    environment.close()
    folder.cleanup()


class SpilledSlot(LazySlot):
    """A slot that keeps about `hot_entries` values in memory between ticks, and the rest in a scratch file.

    Everything touched within a tick stays in memory, so values may be mutated in place. At the end of the
    tick, `settle` writes out the values that were loaded longest ago.
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
        """Estimate the size of the entries in memory."""
        return estimate(self._live)

    def settle(self) -> None:
        """At the end of a tick, spill the older half of the values if over the limit."""
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
