"""File reading: the module that reads a file, chunk by chunk."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from os import PathLike
from typing import Protocol

from penstock.errors import UnreadableSource
from penstock.pull.module import Module
from penstock.pull.protocol import AnswerTo, End, Read

FilePath = str | PathLike[str]

CHUNK = 65536
"""Bytes that are read at once where nothing is said."""


class Readable(Protocol):
    """An open file."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> object: ...


def reading(
    path: FilePath, chunk: int, open_file: Callable[[FilePath], Readable]
) -> Callable[[Module], Read]:
    """What opens the module in a run. The file is opened at the first ask."""

    def open(module: Module) -> Read:
        found = _Reading(module, path, chunk, open_file)
        module.hold(found)
        return found.read

    return open


def plain(path: FilePath) -> Readable:
    """A file as it is."""
    return io.FileIO(path)


def unzipped(path: FilePath) -> Readable:
    """A file as it is, or what was compressed by gzip into it where it is called `.gz`."""
    if not str(path).endswith(".gz"):
        return plain(path)
    import gzip

    return gzip.GzipFile(path, "rb")


class _Reading:
    def __init__(
        self, module: Module, path: FilePath, chunk: int, open_file: Callable[[FilePath], Readable]
    ) -> None:
        self._module = module
        self._path = path
        self._chunk = chunk
        self._open_file = open_file
        self._file: Readable | None = None

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is not None:
            self.cancel()
            answer(abort)
        elif data := self._next():
            answer(None, data)
        else:
            self.cancel()
            answer(True)

    def _next(self) -> bytes:
        try:
            if self._file is None:
                self._file = self._open_file(self._path)
            return self._file.read(self._chunk)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            name = self._module.name
            raise UnreadableSource(
                f"{name}() cannot {'open' if self._file is None else 'read'} {self._path}",
                where=[self._module.location],
                why=f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}",
                fix="give the path of a file that is there, whole, and may be read",
                source=name,
                path=str(self._path),
            ) from error

    def cancel(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
