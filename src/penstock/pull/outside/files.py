"""from_file, to_file: chunks of bytes from a file and into one."""

from __future__ import annotations

from functools import partial

from penstock.paths import local_path
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.options import whole
from penstock.pull.outside.atomic_file import Target
from penstock.pull.outside.file_reading import CHUNK, FilePath, plain, reading
from penstock.pull.outside.file_writing import writing
from penstock.pull.outside.octets import octets
from penstock.pull.pieces import Sink, Source


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
