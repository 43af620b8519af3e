"""Files of a checkpoint, which a commit names with their sizes and digests."""

from __future__ import annotations

import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from xxhash import xxh3_128

from headrace.errors import CheckpointDamaged


@dataclass(frozen=True, slots=True)
class FileRef:
    """Reference to a file in a commit. `name` is relative to the checkpoint folder."""

    name: str
    size: int
    digest: str

    def to_json(self) -> list[Any]:
        return [self.name, self.size, self.digest]

    @classmethod
    def from_json(cls, data: list[Any]) -> FileRef:
        return cls(str(data[0]), int(data[1]), str(data[2]))


def check_size(path: str | Path, ref: FileRef) -> os.stat_result:
    """Return the status of a file. Raise `CheckpointDamaged` if it is missing or has another size."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    if found.st_size != ref.size:
        raise damaged(path, f"it has {found.st_size} bytes, the commit says {ref.size}")
    return found


def check_file(path: Path, ref: FileRef) -> None:
    """Raise `CheckpointDamaged` if the file is missing, truncated or altered."""
    check_size(path, ref)
    digest = xxh3_128()
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise damaged(path, f"it cannot be read: {error}") from error
    if digest.hexdigest() != ref.digest:
        raise damaged(path, "its content does not match the checksum in the commit")


def damaged(path: str | Path, why: str) -> CheckpointDamaged:
    return CheckpointDamaged(
        f"checkpoint file {Path(path).name} is damaged",
        why=f"{path}: {why}.",
        fix="restore the checkpoint folder from a backup, or start from an empty one",
        file=str(path),
    )


def make_durable(paths: Collection[Path]) -> None:
    """Flush files and their folder entries to disk."""
    everything = {*paths, *(path.parent for path in paths)}
    if everything:
        # At once, since a disk is much quicker with ten such wishes than with one after the other.
        list(_flushing().map(sync, everything))


@cache
def _flushing() -> ThreadPoolExecutor:
    # To start its threads costs as much as a small file.
    return ThreadPoolExecutor(max_workers=16, thread_name_prefix="headrace-flush")


# A forked process has none of the threads.
os.register_at_fork(after_in_child=_flushing.cache_clear)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
