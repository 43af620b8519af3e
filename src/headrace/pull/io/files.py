"""`from_file`, `to_file`, `from_lines`, `to_lines`: read and write files as bytes or as lines of text.

A written file is an `AtomicTarget`: it appears as a whole or not at all.
"""

from __future__ import annotations

import io
import os
import stat
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from headrace.errors import UnreadableSource
from headrace.file_system import local_path
from headrace.pull.argument_checks import check_integer
from headrace.pull.compose import pull
from headrace.pull.edge import PullEdge
from headrace.pull.errors import UnwritableFile
from headrace.pull.io.lines import CHUNK, LONGEST, Octets, check_encoding, check_octets, encoder, lines
from headrace.pull.module_context import Module
from headrace.pull.modules import PullSink, PullSource
from headrace.pull.protocol import AnswerTo, End, Read
from headrace.pull.sinks import ReadLoop

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


FilePath = str | PathLike[str]


class Readable(Protocol):
    """Interface of a file open for reading."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> object: ...


def open_source(
    path: FilePath, chunk: int, open_file: Callable[[FilePath], Readable]
) -> Callable[[Module], Read]:
    """Open the source in a run. The file is opened at the first ask."""

    def open(module: Module) -> Read:
        found = _Reading(module, path, chunk, open_file)
        module.cancel_at_end(found)
        return found.read

    return open


def open_unbuffered(path: FilePath) -> Readable:
    """Open a file for reading, unbuffered."""
    return io.FileIO(path)


def open_unzipped(path: FilePath) -> Readable:
    """Open a file for reading, decompressed if its name ends in `.gz`."""
    if not str(path).endswith(".gz"):
        return open_unbuffered(path)
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
                fix="give the path of an existing, undamaged file that this user may read",
                source=name,
                path=str(self._path),
            ) from error

    def cancel(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def open_sink(
    module: Module,
    edge: PullEdge,
    target: AtomicTarget,
    bytes_of: Callable[[Any], Octets],
    *,
    per_value: bool,
) -> None:
    """Open a sink that writes `bytes_of` each value. The result counts values (`per_value`) or bytes.

    The target is committed when the stream is done, and rolled back if the sink ends in any other way.
    """
    module.cancel_at_end(target)
    written = 0

    def take(values: list[Any]) -> None:
        nonlocal written
        for value in values:
            data = bytes_of(value)
            target.write(data)
            written += 1 if per_value else len(data)

    def over(end: End) -> None:
        if edge.stopped:
            return  # stopped from outside: the file is incomplete, and closing the module rolls it back
        if end is True:
            target.commit()
            module.done(written)
        else:
            module.fail(end, written)

    ReadLoop(edge, take, over).start()


def from_file(path: FilePath, *, chunk: int = CHUNK) -> PullSource:
    """Read the bytes of a file in chunks of `chunk` bytes; the last one may be shorter.

    The file is opened at the first ask, read once per ask, and closed before the end is answered or an
    abort confirmed. Reading blocks the thread of the pipeline, so use `from_stream` or `process` for a pipe
    or a terminal. A file that cannot be opened or read fails the stream with `UnreadableSource`.

    >>> import tempfile
    >>> from headrace.pull import collect, pull, to_file, values
    >>> path = tempfile.mkdtemp() + "/letters"
    >>> pull(values([b"abc", b"d"]), to_file(path)).run()
    4
    >>> pull(from_file(path, chunk=3), collect()).run()
    [b'abc', b'd']
    """
    check_integer("from_file", "chunk", chunk, least=1)
    return PullSource.of(
        "from_file", open_source(local_path(path, "from_file"), chunk, open_unbuffered), linear=True
    )


def to_file(path: FilePath, *, append: bool = False, atomic: bool = True) -> PullSink:
    """Write bytes to a file, opened when the run begins; the result is the number of bytes.

    append: add to the existing contents instead of replacing them.
    atomic: all or nothing. The bytes go to a temporary file, whose name ends in `.tmp`; when the stream is
            done, it is synced to disk and renamed over the target. If the stream fails or is stopped, it is
            removed; with `append`, the target is truncated to its old size (others' appends are lost too).
            Without `atomic`, the file is written in place and keeps everything written.

    A file that cannot be opened or written fails upstream with `UnwritableFile`, a value other than bytes
    with `WrongValue`. If the stream fails, `Run.partial` is the number of bytes before. Devices and named
    pipes are always written in place.
    """
    file = local_path(path, "to_file")

    def open(module: Module, edge: PullEdge) -> None:
        target = AtomicTarget(module, file, append=append, atomic=atomic)
        open_sink(module, edge, target, partial(check_octets, module), per_value=False)

    return PullSink.of("to_file", open)


def from_lines(path: FilePath, encoding: str = "utf-8", *, longest: int = LONGEST) -> PullSource:
    """Read the lines of a text file, without their line endings. A file named `.gz` is decompressed.

    Equivalent to `from_file` followed by `lines`: the file is read on demand, one chunk ahead, and closed
    before the end is answered. A line of more than `longest` characters fails the stream with `LineTooLong`
    after the lines before it, undecodable bytes with `UndecodableText`, and a file that is unreadable or
    damaged with `UnreadableSource`.

    >>> import tempfile
    >>> from headrace.pull import collect, pull, take, to_lines, values
    >>> path = tempfile.mkdtemp() + "/names.gz"
    >>> pull(values(["ann", "bob", "eve"]), to_lines(path)).run()
    3
    >>> pull(from_lines(path), take(2), collect()).run()
    ['ann', 'bob']
    """
    divide = lines(encoding, longest=longest)
    file = local_path(path, "from_lines")
    return pull(PullSource.of("from_lines", open_source(file, CHUNK, open_unzipped), linear=True), divide)


def to_lines(
    path: FilePath, encoding: str = "utf-8", *, append: bool = False, atomic: bool = True
) -> PullSink:
    """Write lines of text to a file, each followed by a newline; the result is the number of lines.

    A file named `.gz` is compressed. A value that is not text, or cannot be encoded, fails the stream with
    `WrongValue`. Otherwise it works like `to_file`.
    """
    check_encoding("to_lines", encoding)
    file = local_path(path, "to_lines")

    def open(module: Module, edge: PullEdge) -> None:
        target = AtomicTarget(module, file, append=append, atomic=atomic, zipped=file.endswith(".gz"))
        open_sink(module, edge, target, encoder("to_lines", module.location, encoding, "\n"), per_value=True)

    return PullSink.of("to_lines", open)
