"""Files that appear whole or not at all: written aside, made durable, renamed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import quote

STAGING = "_staging"
"""Folder of what is not published yet. The underscore hides it from Spark and pyarrow."""


def sync_file(path: Path) -> None:
    """Have the bytes of a file on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on disk; where folders cannot be opened, the rename itself must do."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Write a file so that a reader sees the old one or the whole new one."""
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
    """A folder of its own in `within` for what users call `name`, whatever that holds: "a/b", ".."."""
    plain = quote(name, safe="")
    return within / (f"%2E{plain[1:]}" if plain.startswith(".") else plain)


def remove(path: Path) -> None:
    """Remove a folder, if it is there."""
    shutil.rmtree(path, ignore_errors=True)


def remove_empty(*folders: Path) -> None:
    """Remove those of the folders that are there and empty, in this order."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
