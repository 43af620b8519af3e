"""State files: sorted entries in blocks. A file is read only after a commit names it.

An entry is (slot name, encoded key, encoded value or None for a removed key);
a file holds entries in ascending order of slot and key, each pair once. Layout:
magic; blocks of length and a msgpack array; the length 0 at the end. The commit
that names a file also knows its digest, which is checked before anything is read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeAlias, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]
from xxhash import xxh3_128

from penstock.errors import CheckpointDamaged

Entry: TypeAlias = tuple[str, bytes, bytes | None]

_msgpack: Any = msgpack
_MAGIC = b"PENSTATE2\n"
_LENGTH = struct.Struct(">I")
_BLOCK_BYTES = 256 * 1024
_MOST_BLOCK_BYTES = 1 << 30


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


def write_entries(folder: Path, name: str, entries: Iterable[Entry]) -> FileRef:
    """Write the state file `name` below `folder`. Call `make_durable` before a commit names it."""
    writer = EntryWriter(folder, name)
    with writer:
        writer.extend(entries)
    return writer.ref


class EntryWriter:
    """Writer of a state file, given entries in order; `ref` is set on close."""

    ref: FileRef

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._name = name
        self._out = path.open("wb")
        self._sink = _Digesting(self._out)
        self._sink.write(_MAGIC)
        self._block: list[Entry] = []
        self._size = 0

    def add(self, entry: Entry) -> None:
        self._block.append(entry)
        self._size += len(entry[1]) + len(entry[2] or b"") + 8
        if self._size >= _BLOCK_BYTES:
            self._write_block()

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add several entries."""
        block, size = self._block, self._size
        for entry in entries:
            block.append(entry)
            size += len(entry[1]) + len(entry[2] or b"") + 8
            if size >= _BLOCK_BYTES:
                self._write_block()
                block, size = self._block, 0
        self._size = size

    def _write_block(self) -> None:
        body = cast("bytes", _msgpack.packb(self._block))
        self._sink.write(_LENGTH.pack(len(body)))
        self._sink.write(body)
        self._block, self._size = [], 0

    def __enter__(self) -> EntryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._out:
            if error is None:
                if self._block:
                    self._write_block()
                self._sink.write(_LENGTH.pack(0))
        self.ref = FileRef(self._name, self._sink.size, self._sink.digest.hexdigest())


def make_durable(paths: Collection[Path]) -> None:
    """Flush files and their folder entries to disk."""
    everything = {*paths, *(path.parent for path in paths)}
    if everything:
        # At once, since a disk is much quicker with ten such wishes than with one after the other.
        with ThreadPoolExecutor(max_workers=16) as pool:
            list(pool.map(sync, everything))


def read_entries(folder: Path, ref: FileRef) -> Iterator[Entry]:
    """Read the entries of a file named by a commit. Raises `CheckpointDamaged` naming the file.

    The whole file is checked before the first entry is returned.
    """
    path = folder / ref.name
    check_file(path, ref)
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise damaged(path, "it is not a state file")
        while length := _LENGTH.unpack(_exactly(file, _LENGTH.size, path))[0]:
            yield from _block(_exactly(file, min(length, _MOST_BLOCK_BYTES), path), path)


def check_file(path: Path, ref: FileRef) -> None:
    """Raise `CheckpointDamaged` if the file is missing, truncated or altered."""
    digest = xxh3_128()
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
            size = file.tell()
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    except OSError as error:
        raise damaged(path, f"it cannot be read: {error}") from error
    if size != ref.size:
        raise damaged(path, f"it has {size} bytes, the commit says {ref.size}")
    if digest.hexdigest() != ref.digest:
        raise damaged(path, "its content does not match the checksum in the commit")


def damaged(path: Path, why: str) -> CheckpointDamaged:
    return CheckpointDamaged(
        f"checkpoint file {path.name} is damaged",
        why=f"{path}: {why}.",
        fix="restore the checkpoint folder from a backup, or start from an empty one",
        file=str(path),
    )


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Digesting:
    """File wrapper that keeps the digest and size of what is written."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.size = 0
        self.digest = xxh3_128()

    def write(self, data: bytes) -> None:
        self.out.write(data)
        self.digest.update(data)
        self.size += len(data)


def _block(body: bytes, path: Path) -> list[Entry]:
    try:
        block = _msgpack.unpackb(body, use_list=False)
        for slot, key, value in block:
            if not (isinstance(slot, str) and isinstance(key, bytes) and isinstance(value, bytes | None)):
                raise TypeError("an entry is not a slot, a key and a value")
    except (ValueError, TypeError, _msgpack.UnpackException) as error:
        raise damaged(path, f"a block cannot be decoded: {error}") from error
    return cast("list[Entry]", block)


def _exactly(file: BinaryIO, size: int, path: Path) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise damaged(path, "it ends too early")
    return data
