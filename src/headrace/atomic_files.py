"""Atomic replacement of files and folders: write aside, sync to disk, rename or exchange; and folder locks.

A lock is on the folder itself, so it needs no file. The system releases it when the process ends. It is
advisory, and without effect where the system has no such locks; a folder is not replaced there.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote


def sync_file(path: Path) -> None:
    """Sync a file's contents to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Sync a folder's entries to disk, on systems that allow opening folders."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Replace a file atomically: readers see either the old file or the complete new one."""
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_bytes(content)
    move(aside, path, durable=durable)


def move(source: Path, target: Path, *, durable: bool) -> None:
    """Rename a finished file to `target`, replacing it."""
    if durable:
        sync_file(source)
    os.replace(source, target)
    if durable:
        sync_folder(target.parent)


def stage_beside(folder: Path) -> Path:
    """Return the hidden path beside `folder` at which to write it. An earlier attempt there is removed."""
    staged = folder.with_name(f".{folder.name}.tmp")
    remove_folder(staged)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return staged


def publish_folder(staged: Path, folder: Path, *, durable: bool = True) -> None:
    """Rename a finished folder to `folder`, in place of what a failed attempt has left there."""
    remove_folder(folder)
    if durable:
        sync_folder(staged)
    os.rename(staged, folder)
    if durable:
        sync_folder(folder.parent)


_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def exchange_folders(one: Path, other: Path) -> None:
    """Exchange two folders in one atomic step.

    Raises `OSError` if the system or the file system cannot. Only Linux offers it, and NFS, for example, does
    not.
    """
    # Not at the top, because only a compaction needs it.
    import ctypes

    library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    rename = getattr(library, "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one), None, str(other))
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))


def take_over(old: Path, new: Path) -> None:
    """Give a file a second name, or copy it on a file system without hard links."""
    try:
        os.link(old, new, follow_symlinks=False)
    except OSError:
        shutil.copy2(old, new, follow_symlinks=False)


def take_over_folder(old: Path, new: Path, *, without: frozenset[str] = frozenset()) -> None:
    """Fill the existing folder `new` with second names of the files in `old`.

    without: names of entries to leave out.
    """
    for entry in os.scandir(old):
        if entry.name in without:
            continue
        if entry.is_dir(follow_symlinks=False):
            (new / entry.name).mkdir()
            take_over_folder(Path(entry), new / entry.name)
        else:
            take_over(Path(entry), new / entry.name)
    was = old.stat()
    with suppress(PermissionError):
        os.chown(new, was.st_uid, was.st_gid)
    shutil.copystat(old, new)


def subfolder_for(within: Path, name: str) -> Path:
    """Return the subfolder of `within` for a user-given name, escaped so that "a/b" or ".." stay inside."""
    plain = quote(name, safe="")
    return within / (f"%2E{plain[1:]}" if plain.startswith(".") else plain)


def remove_folder(path: Path) -> None:
    """Remove a folder and its contents if it exists."""
    shutil.rmtree(path, ignore_errors=True)


def remove_empty(*folders: Path) -> None:
    """Remove each of the folders, in order, that exists and is empty."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


# The lock is on the folder itself, so it needs no file. The system releases it when the process ends. It is
# advisory, and without effect where the system has no such locks; a folder is not replaced there.


class FolderLock:
    """A held lock on the folder `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @classmethod
    def take(cls, path: Path, *, exclusive: bool = False) -> FolderLock | None:
        """Lock an existing folder. Returns None if another process holds the lock."""
        lock = cls(path)
        return lock if lock._acquire(exclusive=exclusive, wait=False) else None

    def _acquire(self, *, exclusive: bool, wait: bool) -> bool:
        try:
            import fcntl
        except ImportError:  # on Windows
            return not exclusive
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        while True:
            handle = os.open(self.path, os.O_RDONLY)
            try:
                fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
            except OSError as error:
                os.close(handle)
                # Anything else than "held by another": a file system without such locks.
                return not exclusive and not isinstance(error, BlockingIOError)
            self.release()
            self._handle = handle
            if os.path.samestat(os.fstat(handle), os.stat(self.path)):
                return True
            # The folder was replaced since it was opened: lock the new one.

    @contextmanager
    def upgraded(self) -> Iterator[bool]:
        """Make a shared lock exclusive, if no one else holds it, and share it again afterwards."""
        import fcntl

        assert self._handle is not None, "check_replaceable() comes first"
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The attempt gave up the share, and another process may have begun to replace the folder.
            self._acquire(exclusive=False, wait=True)
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_SH)

    def check_replaceable(self, beside: Path) -> None:
        """Raise `OSError` if `replace` cannot work with a folder like `beside`, which is empty."""
        if self._handle is None:
            raise OSError("folders cannot be locked there")
        if os.path.ismount(self.path):
            raise OSError("it is where a file system is mounted")
        one, other = beside / "one", beside / "other"
        one.mkdir()
        other.mkdir()
        exchange_folders(one, other)

    def replace(self, new: Path) -> None:
        """Exchange the exclusively locked folder atomically with `new`, and hold the lock on the new one."""
        import fcntl

        handle = os.open(new, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            exchange_folders(new, self.path)
        except BaseException:
            os.close(handle)
            raise
        self.release()
        self._handle = handle

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
