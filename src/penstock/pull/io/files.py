"""from_file, to_file, from_lines, to_lines: bytes and lines of text from a file and into one."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Any, Protocol

from penstock.errors import UnreadableSource
from penstock.paths import local_path
from penstock.pull.compose import pull
from penstock.pull.edge import Edge
from penstock.pull.io.atomic_file import Target
from penstock.pull.io.lines import check_encoding, encoder, lines
from penstock.pull.io.octets import CHUNK, Octets, octets
from penstock.pull.io.split import LONGEST
from penstock.pull.module import Module
from penstock.pull.options import whole
from penstock.pull.pieces import Sink, Source
from penstock.pull.protocol import AnswerTo, End, Read
from penstock.pull.sinks.reading import Asking

FilePath = str | PathLike[str]


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


def writing(
    module: Module, edge: Edge, target: Target, bytes_of: Callable[[Any], Octets], *, per_value: bool
) -> None:
    """Write `bytes_of` each value. The result is how many values, or how many bytes, there were.

    The target is committed when the stream is done, and taken back however else the sink ends.
    """
    module.hold(target)
    written = 0

    def take(values: list[Any]) -> None:
        nonlocal written
        for value in values:
            data = bytes_of(value)
            target.write(data)
            written += 1 if per_value else len(data)

    def over(end: End) -> None:
        if edge.stopped:
            return  # from outside: what was written is not the whole, and the run goes on to its end
        if end is True:
            target.commit()
            module.done(written)
        else:
            module.fail(end, written)

    Asking(edge, take, over).start()


def from_file(path: FilePath, *, chunk: int = CHUNK) -> Source:
    """The bytes of a file, `chunk` of them at a time, the last ones perhaps fewer.

    It is opened at the first ask, each ask reads once, and it is closed before the end is answered or
    an abort confirmed. It reads in the thread of the pipeline: what can keep one waiting (a pipe, a
    terminal) is for `from_stream` and `process`. A file that cannot be opened or read fails the stream
    with `UnreadableSource`.

    >>> import tempfile
    >>> from penstock.pull import collect, pull, to_file, values
    >>> path = tempfile.mkdtemp() + "/letters"
    >>> pull(values([b"abc", b"d"]), to_file(path)).run()
    4
    >>> pull(from_file(path, chunk=3), collect()).run()
    [b'abc', b'd']
    """
    whole("from_file", "chunk", chunk, least=1)
    return Source.of("from_file", reading(local_path(path, "from_file"), chunk, plain), linear=True)


def to_file(path: FilePath, *, append: bool = False, atomic: bool = True) -> Sink:
    """Write bytes into a file; the result is how many. It is opened when the run begins.

    append: write behind what is there; by default that is replaced.
    atomic: all or nothing: what is written stands aside under another name, which ends in `.tmp`, until the
            stream is done, and takes the place of the file then, on disk. Where the stream fails or is
            stopped it is removed, and with `append` cut off again (and with it what others appended).
            Without it, the file is written in place, and what was written stays.

    What cannot be opened or written fails with `UnwritableFile`, a value that is no bytes with `WrongValue`;
    upstream is failed with that. Where the stream fails, `Run.partial` is how many bytes came before.
    A device or a named pipe is always written in place.
    """

    file = local_path(path, "to_file")

    def open(module: Module, edge: Edge) -> None:
        target = Target(module, file, append=append, atomic=atomic)
        writing(module, edge, target, partial(octets, module), per_value=False)

    return Sink.of("to_file", open)


def from_lines(path: FilePath, encoding: str = "utf-8", *, longest: int = LONGEST) -> Source:
    """The lines of a text file, without their ends; of a file called `.gz`, what was compressed into it.

    It is `from_file` with `lines` behind it: read as it is asked for, some kilobytes ahead,
    and closed before an end is told. A line of more than `longest` characters fails the stream with
    `LineTooLong` after the lines before it, bytes that are no text with `UndecodableText`, a file that
    cannot be read, or is damaged, with `UnreadableSource`.

    >>> import tempfile
    >>> from penstock.pull import collect, pull, take, to_lines, values
    >>> path = tempfile.mkdtemp() + "/names.gz"
    >>> pull(values(["ann", "bob", "eve"]), to_lines(path)).run()
    3
    >>> pull(from_lines(path), take(2), collect()).run()
    ['ann', 'bob']
    """
    divide = lines(encoding, longest=longest)
    file = local_path(path, "from_lines")
    return pull(Source.of("from_lines", reading(file, CHUNK, unzipped), linear=True), divide)


def to_lines(path: FilePath, encoding: str = "utf-8", *, append: bool = False, atomic: bool = True) -> Sink:
    """Write lines of text into a file, each with its end; the result is how many. See `to_file` for the rest.

    A file called `.gz` is compressed. A value that is no text, or none of the encoding, fails the stream
    with `WrongValue`.
    """
    check_encoding("to_lines", encoding)

    file = local_path(path, "to_lines")

    def open(module: Module, edge: Edge) -> None:
        target = Target(module, file, append=append, atomic=atomic, zipped=file.endswith(".gz"))
        writing(module, edge, target, encoder("to_lines", module.location, encoding, "\n"), per_value=True)

    return Sink.of("to_lines", open)
