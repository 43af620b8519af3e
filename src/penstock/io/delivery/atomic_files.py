"""Atomic file replacement: write aside, sync to disk, rename."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import quote

STAGING = "_staging"
"""Folder for unpublished files. The underscore hides it from Spark and pyarrow."""


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
