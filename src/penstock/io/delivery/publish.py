"""Atomic publication of files and folders: written aside, made durable, renamed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import quote

STAGING = "_staging"
"""Folder for unpublished files. The underscore hides it from Spark and pyarrow."""


def sync_file(path: Path) -> None:
    """Flush the bytes of a file to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Flush the names in a folder to disk, if the system lets folders be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Replace a file in one step: a reader sees the old one or the whole new one."""
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_bytes(content)
    move(aside, path, durable=durable)


def move(source: Path, target: Path, *, durable: bool) -> None:
    """Rename a finished file over `target`."""
    if durable:
        sync_file(source)
    os.replace(source, target)
    if durable:
        sync_folder(target.parent)


def move_folder(source: Path, target: Path, *, durable: bool) -> None:
    """Rename a finished folder to `target`, which does not exist or is empty."""
    if durable:
        sync_folder(source)
    os.rename(source, target)
    if durable:
        sync_folder(target.parent)


def folder_called(within: Path, name: str) -> Path:
    """A folder in `within` for a name given by users, whatever it holds: "a/b", ".."."""
    plain = quote(name, safe="")
    return within / (f"%2E{plain[1:]}" if plain.startswith(".") else plain)


def remove(path: Path) -> None:
    """Remove a folder if it exists."""
    shutil.rmtree(path, ignore_errors=True)


def remove_empty(*folders: Path) -> None:
    """Remove those of the folders that exist and are empty, in this order."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
