"""Atomic replacement of files and folders: write aside, sync to disk, rename or exchange."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

STAGING = "_staging"
"""Folder for unpublished files. The underscore hides it from Spark and pyarrow."""

TICK = "tick"
"""Name of the column that readers make of the names of tick folders."""


def tick_folder(tick: int) -> str:
    # No leading zeros: DuckDB would infer text.
    return f"{TICK}={tick}"


def published_ticks(path: Path) -> list[int]:
    """List the published ticks at `path`, in order."""
    names = os.listdir(path) if path.is_dir() else []
    numbers = (name.removeprefix(f"{TICK}=") for name in names if name.startswith(f"{TICK}="))
    return sorted(int(number) for number in numbers if number.isdecimal())


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


def move_folder(source: Path, target: Path, *, durable: bool) -> None:
    """Rename a finished folder to `target`, which must be missing or empty."""
    if durable:
        sync_folder(source)
    os.rename(source, target)
    if durable:
        sync_folder(target.parent)


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
