"""AtomicFile: a file that is being written, and is there as a whole or not at all."""

from __future__ import annotations

import io
import os
import stat
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from penstock.errors import UnwritableFile
from penstock.pull.module import Module

_BESIDE = 50
"""Characters of the name of a file that its name beside repeats: the system bounds how long names are."""


class Target:
    """Opened when it is made. Then `write`, and `commit` or `cancel` once.

    append: what is written follows what is there.
    atomic: all or nothing. It is written beside the file and renamed by `commit`, or, where it follows
            what is there, is cut off again by `cancel`. Otherwise what was written stays.

    What is no regular file (a device, a named pipe) can only be written in place.
    All but `cancel` raise `UnwritableFile`.
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
            # The file that a link leads to is replaced, and not the link.
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
            raise PermissionError(f"{self._path} is not to be written")
        self._aside = self._path.with_name(f".{self._path.name[:_BESIDE]}.{os.urandom(4).hex()}.tmp")
        file = _opened(self._aside, "xb")
        if self._path.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(self._path.stat().st_mode))
        return file

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of it."""
        try:
            self._out.write(data)
        except OSError as error:
            raise self._unwritable("write", error) from error

    def commit(self) -> None:
        """It is whole: have it last, and be seen."""
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
        """Close it and, unless it was committed, take it back."""
        file, self._file = self._file, None
        if file is None:
            return
        in_place = self._aside is None and self._start is None
        with suppress(OSError):
            if self._zip is not None and in_place:
                self._zip.close()
            elif self._zip is not None:
                self._zip.fileobj = None  # or it would write its last bytes when it is collected
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
            fix="give a path in a folder that is there and may be written, on a disk with room",
            sink=name,
            path=str(self._path),
        )


def _opened(path: Path, mode: str) -> BinaryIO:
    return io.BufferedWriter(io.FileIO(path, mode))


def _zipping(file: BinaryIO) -> Any:
    import gzip

    return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
