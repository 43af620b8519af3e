"""State files: the files referenced by a commit, and the chains of batches that make up arrangements.

A file never changes. A commit names it with its size and digest, by which each process checks it once before
it maps and reads it in place.

A *chain* has the batches of the arrangements of a shard, oldest first. Every tick that changes an arrangement
adds a batch, and merges it with small ones before it. Larger ones are merged once they are several of which
the first is no larger than the others together. So n rows lie in O(log n) batches, and a row is rewritten
O(log n) times. A merge of large batches takes several ticks; until it ends, its batches are read as before.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import chain as concatenated
from pathlib import Path
from typing import Any, TypeAlias

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


@dataclass(frozen=True, slots=True)
class Part:
    """A file of rows sorted by code.

    upto:   no code of them is larger.
    bounds: per sum what the absolute values add up to, about.
    """

    file: FileRef
    rows: int
    upto: int
    bounds: tuple[float, ...] = ()

    def to_json(self) -> list[Any]:
        return [*self.file.to_json(), self.rows, self.upto, *self.bounds]

    @classmethod
    def from_json(cls, data: list[Any]) -> Part:
        return cls(FileRef.from_json(data), int(data[3]), int(data[4]), tuple(map(float, data[5:])))


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Sorted rows in files of ascending codes. Rows of one code are in one file."""

    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(part.file.size for part in self.parts)

    def files(self) -> Iterator[FileRef]:
        return (part.file for part in self.parts)


@dataclass(frozen=True, slots=True)
class UnfinishedMerge:
    """A merge in progress. upto: rows with codes up to it are already in `done`."""

    batches: tuple[StoredBatch, ...]
    upto: int
    done: StoredBatch = StoredBatch(())

    @property
    def size(self) -> int:
        """Bytes of the files being merged."""
        return sum(batch.size for batch in self.batches)

    def files(self) -> Iterator[FileRef]:
        for batch in (*self.batches, self.done):
            yield from batch.files()


Run: TypeAlias = StoredBatch | UnfinishedMerge


def parts_of(runs: Iterable[Run]) -> list[Part]:
    """Return the files to read rows from, oldest first."""
    batches = ((run,) if isinstance(run, StoredBatch) else run.batches for run in runs)
    return [part for batch in concatenated.from_iterable(batches) for part in batch.parts]


ENTRIES = ""
"""Name of the arrangement of entries (`EntryStore`), beside the names of slots."""


@dataclass(frozen=True, slots=True)
class BatchChain:
    """Arrangements of a shard, by name, each as a sequence of runs, oldest first.

    slots: names of the slots that entries know by number.
    """

    arranged: Mapping[str, tuple[Run, ...]] = field(default_factory=dict["str", tuple["Run", ...]])
    slots: tuple[str, ...] = ()

    def files(self) -> Iterator[FileRef]:
        for run in concatenated(*self.arranged.values()):
            yield from run.files()

    def to_json(self) -> dict[str, Any]:
        arranged = {name: list(map(_run_to_json, runs)) for name, runs in self.arranged.items()}
        return {"arranged": arranged, "slots": [*self.slots]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BatchChain:
        arranged = {str(name): tuple(map(_run_from_json, runs)) for name, runs in data["arranged"].items()}
        return cls(arranged, tuple(map(str, data["slots"])))


def _run_to_json(run: Run) -> list[Any]:
    if isinstance(run, StoredBatch):
        return [_to_json(run)]
    return [*map(_to_json, run.batches), _to_json(run.done), run.upto]


def _run_from_json(data: list[Any]) -> Run:
    if len(data) == 1:
        return _from_json(data[0])
    *batches, done, upto = data
    return UnfinishedMerge(tuple(map(_from_json, batches)), int(upto), _from_json(done))


def _to_json(batch: StoredBatch) -> list[Any]:
    return [part.to_json() for part in batch.parts]


def _from_json(data: list[Any]) -> StoredBatch:
    return StoredBatch(tuple(map(Part.from_json, data)))
