"""Files of state that are mapped and read in place. They never change: each is checked once per process."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from penstock.state.chain import Part
from penstock.state.checkpoint_files import FileRef, check_size, damaged

T = TypeVar("T")


class MappedFiles(Generic[T]):
    """Files of one kind that this process has mapped.

    folder: what file names are relative to.
    read:   makes of a file's content, and what a chain says of it, what is read of it. Raises
            `ArrowException` or `ValueError` if it is no file of this kind.
    """

    def __init__(self, folder: Path, read: Callable[[pa.Buffer, Part], T]) -> None:
        self._folder = folder
        self._read = read
        self._mapped: dict[FileRef, tuple[tuple[int, int], T]] = {}

    def keep(self, parts: Iterable[Part]) -> None:
        """Forget all files but these. Raise `CheckpointDamaged` if one of these is missing or cut off.

        One that was touched since it was mapped is mapped and checked anew when it is read.
        """
        known, self._mapped = self._mapped, {}
        for part in parts:
            stamp = _stamp(check_size(self._path(part.file.name), part.file))
            found = known.get(part.file)
            if found is not None and found[0] == stamp:
                self._mapped[part.file] = found

    def open(self, part: Part) -> T:
        """Return what a file holds. Raises `CheckpointDamaged` if it isn't the one that `part` names."""
        found = self._mapped.get(part.file)
        if found is None:
            found = self._mapped[part.file] = self._map(part)
        return found[1]

    def write(
        self, name: str, content: pa.Buffer, rows: int, upto: int, bounds: tuple[float, ...] = ()
    ) -> Part:
        """Write a new file. Call `make_durable` before a commit names it.

        rows, upto, bounds: as in `Part`.
        """
        path = self._path(name)
        try:
            _write_anew(path, content)
        except OSError as error:
            error.filename = path
            raise
        part = Part(FileRef(name, content.size, xxh3_128_hexdigest(content)), rows, upto, bounds)
        if content.size <= _SMALL:
            self._mapped[part.file] = (_stamp(os.stat(path)), self._read(content, part))
        return part

    def _map(self, part: Part) -> tuple[tuple[int, int], T]:
        path, ref = self._path(part.file.name), part.file
        stamp = _stamp(check_size(path, ref))
        try:
            # It is closed at once: as many files may be mapped as a process can have open.
            with pa.memory_map(path) as file:
                content = file.read_buffer()
        except (OSError, pa.ArrowException) as error:
            raise damaged(path, f"it cannot be read: {error}") from error
        if content.size != ref.size or xxh3_128_hexdigest(content) != ref.digest:
            raise damaged(path, "its content does not match the checksum in the commit")
        try:
            return stamp, self._read(content, part)
        except (pa.ArrowException, ValueError) as error:
            raise damaged(path, f"it is not a state file: {error}") from error

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


_SMALL = 1 << 16
"""Bytes up to which a file need not be mapped by the process that wrote it."""
_MOST_SHARDS = 1_024
"""Number of shards whose files stay mapped while nothing reads them."""

_shards: OrderedDict[tuple[str, str], MappedFiles[Any]] = OrderedDict()
_lock = threading.Lock()


def files_of_shard(folder: Path, shard: str, read: Callable[[pa.Buffer, Part], T]) -> MappedFiles[T]:
    """Return the files of a shard that this process has mapped, for whoever opens the shard next."""
    key = str(folder), shard
    with _lock:
        found = _shards.setdefault(key, MappedFiles(folder, read))
        _shards.move_to_end(key)
        while len(_shards) > _MOST_SHARDS:
            _shards.popitem(last=False)
    return found


def forget_folder(folder: Path) -> None:
    """Release the files of all shards in a folder that nothing reads any more."""
    with _lock:
        for key in [key for key in _shards if key[0] == str(folder)]:
            del _shards[key]


def _write_anew(path: str, content: pa.Buffer) -> None:
    try:
        # What an attempt left that was not committed may be mapped: its content stays.
        os.unlink(path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(memoryview(cast("Any", content)))


def _stamp(found: os.stat_result) -> tuple[int, int]:
    """Return what tells whether a file was touched."""
    return found.st_ino, found.st_mtime_ns
