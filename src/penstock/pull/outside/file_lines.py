"""from_lines, to_lines: lines of text from a file and into one."""

from __future__ import annotations

from penstock.paths import local_path
from penstock.pull.compose import pull
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.outside.atomic_file import Target
from penstock.pull.outside.dividing import LONGEST
from penstock.pull.outside.file_reading import CHUNK, FilePath, reading, unzipped
from penstock.pull.outside.file_writing import writing
from penstock.pull.outside.lines import check_encoding, encoder, lines
from penstock.pull.pieces import Sink, Source


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
