"""`AtomicTarget`: a file being written, which appears as a whole or not at all."""

from __future__ import annotations

import io
import os
import stat
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from headrace.pull.errors import UnwritableFile
from headrace.pull.module_context import Module

_BESIDE = 50
"""Number of characters that a temporary file takes from the target's name, since name length is limited."""


class AtomicTarget:
    """File open for writing: `write` any number of times, then `commit` or `cancel` once.

    append: add to the existing contents.
    atomic: all or nothing. A temporary file in the same folder is renamed by `commit`; with `append`,
            `cancel` truncates the file to its old size. Without it, everything written stays.

    Anything but a regular file (a device, a named pipe) is written in place.
    The constructor and all methods but `cancel` raise `UnwritableFile`.
    """

    def __init__(
        self, module: Module, path: str | PathLike[str], *, append: bool, atomic: bool, zipped: bool = False
    ) -> None:
        self._module = module
        self._path = Path(path)
        self._aside: Path | None = None
        self._start: int | None = None
        self._file: BinaryIO | None = None
        try:
            # Replace the file that a link leads to, not the link.
            self._path = Path(os.path.realpath(path))
            self._file = self._open(append, atomic)
        except (OSError, ValueError) as error:
            raise self._unwritable("open", error) from error
        self._zip: Any = _zipping(self._file) if zipped else None
        self._out: Any = self._zip or self._file

    def _open(self, append: bool, atomic: bool) -> BinaryIO:
        regular = not self._path.exists() or stat.S_ISREG(self._path.stat().st_mode)
        if not (atomic and regular):
            return _opened(self._path, "ab" if append else "wb")
        if append:
            file = _opened(self._path, "ab")
            self._start = file.tell()
            return file
        if self._path.exists() and not os.access(self._path, os.W_OK):
            raise PermissionError(f"{self._path} is write-protected")
        self._aside = self._path.with_name(f".{self._path.name[:_BESIDE]}.{os.urandom(4).hex()}.tmp")
        file = _opened(self._aside, "xb")
        if self._path.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(self._path.stat().st_mode))
        return file

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of the bytes."""
        try:
            self._out.write(data)
        except OSError as error:
            raise self._unwritable("write", error) from error

    def commit(self) -> None:
        """Sync the complete file to disk and make it visible."""
        file = self._file
        assert file is not None
        try:
            if self._zip is not None:
                self._zip.close()
            file.flush()
            if self._aside is not None or self._start is not None:
                os.fsync(file.fileno())
            file.close()
            if self._aside is not None:
                os.replace(self._aside, self._path)
        except OSError as error:
            raise self._unwritable("write", error) from error
        self._file = None

    def cancel(self) -> None:
        """Close the file and, unless it was committed, roll it back."""
        file, self._file = self._file, None
        if file is None:
            return
        in_place = self._aside is None and self._start is None
        with suppress(OSError):
            if self._zip is not None and in_place:
                self._zip.close()
            elif self._zip is not None:
                self._zip.fileobj = None  # or it would write its trailer when garbage-collected
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            if self._aside is not None:
                self._aside.unlink()
            elif self._start is not None:
                os.truncate(self._path, self._start)

    def _unwritable(self, verb: str, error: OSError | ValueError) -> UnwritableFile:
        name = self._module.name
        return UnwritableFile(
            f"{name}() cannot {verb} {self._path}",
            where=[self._module.location],
            why=f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}",
            fix="give a path in an existing, writable folder, on a disk with free space",
            sink=name,
            path=str(self._path),
        )


def _opened(path: Path, mode: str) -> BinaryIO:
    return io.BufferedWriter(io.FileIO(path, mode))


def _zipping(file: BinaryIO) -> Any:
    import gzip

    return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
