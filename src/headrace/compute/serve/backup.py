"""Backup and restore of a controller with SQLite collections: online backup, offline restore.

Both files are copied from snapshots of one moment. A controller writes to its own file before and after it
creates or drops a collection, so while that file is locked, the collections have everything that it names.
The lock lasts as long as it takes to begin two read transactions.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.compute.collections.sqlite import SqliteCollections
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.errors import StoreUnavailable
from headrace.compute.sqlite_files import give_identity
from headrace.errors import BadInput
from headrace.file_system import make_private_file, make_private_folder

STATE, COLLECTIONS = "controller.db", "collections.db"
_PART = ".part"
_BUSY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ControllerFiles:
    """Files of a controller. collections: None if they are in a store other than SQLite."""

    state: Path
    collections: Path | None

    @classmethod
    def of(cls, folder: Path, collections: Path | None = None) -> ControllerFiles:
        """Find the files in a controller's folder. collections: file of the rows, if it is elsewhere."""
        there = folder / COLLECTIONS
        return cls(folder / STATE, collections or (there if there.exists() else None))

    def check(self) -> None:
        """Read everything. Raises `StoreDamaged` if any of it is damaged."""
        with closing(DurableCatalog.open(self.state)) as state:
            state.check()
        if self.collections is not None:
            with closing(SqliteCollections(self.collections)) as rows:
                rows.check(thorough=True)


def save(place: ControllerFiles, folder: Path) -> ControllerFiles:
    """Copy the files of a controller, which may be running, into a new folder, and check the copies.

    Raises `BadInput` if there is no state, or something in the folder; `StoreDamaged`, `StoreUnavailable`.
    """
    for file in (place.state, place.collections):
        if file is not None and not file.is_file():
            raise BadInput(
                f"there is no {file}",
                why="A backup is made of the folder that a controller has as its --state.",
                fix="name that folder; --collections names a file of rows that lies elsewhere",
                path=str(file),
            )
    _check_folder(folder)
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(
            f"{folder} is not empty",
            fix="name a new folder for each backup",
            path=str(folder),
        )
    copies = ControllerFiles(folder / STATE, None if place.collections is None else folder / COLLECTIONS)
    with ExitStack() as stack, _translated(place):
        make_private_folder(folder)
        lock = stack.enter_context(closing(_connect(place.state)))
        lock.execute("BEGIN IMMEDIATE")
        state = stack.enter_context(closing(_snapshot(place.state)))
        rows = None
        if place.collections is not None:
            rows = stack.enter_context(closing(_snapshot(place.collections)))
        lock.execute("ROLLBACK")
        if rows is not None and copies.collections is not None:
            _copy(rows, copies.collections)
        # Last: a folder without it is no backup.
        _copy(state, copies.state)
    copies.check()
    return copies


def restore(
    copies: ControllerFiles, place: ControllerFiles, *, replace: bool = False, state_only: bool = False
) -> None:
    """Replace the files of a controller with the files of a backup.

    replace: whether files that are there are overwritten.
    state_only: whether a backup without rows is restored: they are in another store, and of its moment.
    Raises `BadInput` if there is no backup or if there are files; `StoreUnavailable` while a process has them
    open; `StoreDamaged` for a damaged backup. Then nothing has changed.
    """
    if not copies.state.is_file():
        raise BadInput(
            f"there is no backup in {copies.state.parent}",
            why=f"A complete one has the file {STATE}.",
            fix="name a folder that `headrace backup save` has written",
            path=str(copies.state),
        )
    copies.check()
    if copies.collections is None and not state_only:
        raise BadInput(
            f"the backup in {copies.state.parent} has no rows",
            why=f"Its {COLLECTIONS} was lost, or the rows were in another store. A state is of no use "
            "without the rows of its moment.",
            fix="if they were in another store, restore that store's own backup and give --state-only",
            path=str(copies.state.parent / COLLECTIONS),
        )
    targets = [(copies.state, place.state)]
    if copies.collections is not None:
        assert place.collections is not None
        # Before the state: a controller refuses rows of which its state knows nothing.
        targets.insert(0, (copies.collections, place.collections))
    for _, target in targets:
        _check_folder(target.parent)
    there = [str(target) for _, target in targets if target.exists()]
    if there and not replace:
        raise BadInput(
            f"{' and '.join(there)} would be overwritten",
            fix="move what is there away, or give --replace",
            path=there[0],
        )
    parts = [Path(f"{target}{_PART}") for _, target in targets]
    with _translated(place):
        for _, target in targets:
            _check_unused(target)
        make_private_folder(place.state.parent)
        try:
            for (source, _), part in zip(targets, parts, strict=True):
                with closing(_snapshot(source)) as opened:
                    _copy(opened, part, keep=True)
            place.state.unlink(missing_ok=True)
            for (_, target), part in zip(targets, parts, strict=True):
                for end in ("-wal", "-shm"):
                    Path(f"{target}{end}").unlink(missing_ok=True)
                _rename(part, target)
        finally:
            for part in parts:
                part.unlink(missing_ok=True)


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is not a folder", fix="name a folder", path=str(folder))


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)


def _snapshot(file: Path) -> sqlite3.Connection:
    """Connect, and open a read transaction on the current contents."""
    connection = _connect(file)
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
    return connection


def _copy(source: sqlite3.Connection, file: Path, *, keep: bool = False) -> None:
    """Copy a connection's snapshot to a file. keep: write directly under the given, final name."""
    part = file if keep else Path(f"{file}{_PART}")
    part.unlink(missing_ok=True)
    make_private_file(part)
    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        source.backup(copy)
        give_identity(copy)
    if not keep:
        _rename(part, file)


def _rename(file: Path, to: Path) -> None:
    """Rename a file durably."""
    os.replace(file, to)
    folder = os.open(to.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check_unused(file: Path) -> None:
    """Raise `StoreUnavailable` if any process has a file open as a database."""
    if not file.exists():
        return
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as alone:
        alone.execute("PRAGMA locking_mode = EXCLUSIVE")
        try:
            alone.execute("BEGIN EXCLUSIVE")
            alone.execute("SELECT 1 FROM sqlite_schema").fetchall()
            alone.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            raise StoreUnavailable(
                f"a process has {file} open",
                why=f"Controllers and replicas must not run during a restore ({error}).",
                fix="stop the controller and all its replicas, then restore, then start them again",
            ) from error
        except sqlite3.DatabaseError:
            return  # no database any more, so nobody has it open as one


@contextmanager
def _translated(place: ControllerFiles) -> Generator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(
            f"the files of the controller in {place.state.parent} cannot be copied now",
            why=str(error),
            fix="check the folder and the disks, and whether another process holds a lock",
        ) from error
