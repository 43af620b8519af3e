"""process: another program as a duplex of bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

from penstock.errors import BadOption, SourceLocation
from penstock.pull.io.byte_sink import writing
from penstock.pull.io.byte_source import reading
from penstock.pull.io.connection import SinkHalf, SourceHalf
from penstock.pull.module import Module
from penstock.pull.options import positive, whole
from penstock.pull.pieces import Duplex, Sink, Source

if TYPE_CHECKING:
    from penstock.pull.io.child import Child


CHUNK = 65536
"""Bytes that are read at once where nothing is said."""

GRACE = 5.0
"""Seconds between asking a process to end and killing it, where nothing is said."""


def process(
    args: Sequence[str | PathLike[str]],
    *,
    codes: Collection[int] = (0,),
    cwd: str | PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    grace: float = GRACE,
    chunk: int = CHUNK,
) -> Duplex:
    r"""A program that runs beside: a sink of its standard input, a source of its standard output.

    Both are of bytes. Each run starts it once, when its source is first asked or its sink begins, without
    a shell. Both ways go at the pace of the slower side, as for `connect`. A half that is not used is
    connected with nothing.

    The source ends, and the result of the sink (how many bytes were written) is told, when the program has
    ended. A sink that is done closes the standard input; a program that closes it itself wants no more, and
    what the sink reads from is aborted. An exit code that is not one of `codes`, or a signal, fails both
    with `ProcessFailed`, which has the last 4 kB of the standard error.

    A source that is aborted, and a sink that fails or is stopped, ask the program to end (SIGTERM), kill it
    after `grace` seconds, and confirm when it has ended.

    >>> import sys
    >>> from penstock.pull import concat, pull, values
    >>> double = "import sys; print(2 * int(sys.stdin.read()))"
    >>> pull(values([b"21"]), process([sys.executable, "-c", double]), concat(b"")).run()
    b'42\n'
    """
    positive("process", "grace", grace)
    whole("process", "chunk", chunk, least=1)
    location = SourceLocation.of_caller()
    if isinstance(args, str | bytes) or not args:
        raise BadOption(
            f"process() cannot start {args!r}",
            where=[location],
            why="No shell divides a command into its words.",
            fix="give them one by one: process(['sort', '-n'])",
        )
    words = [fspath(word) for word in args]
    owner = object()

    def child(module: Module) -> Child:
        from penstock.pull.io.child import Child

        def make() -> Child:
            where, names = None if cwd is None else fspath(cwd), None if env is None else dict(env)
            return Child(words, location, codes=codes, grace=grace, chunk=chunk, cwd=where, env=names)

        return module.shared(owner, make)

    source = Source.of("process", reading(lambda module: SourceHalf(child(module), chunk)), linear=True)
    sink = Sink.of("process", writing(lambda module: SinkHalf(child(module))))
    return Duplex(source, sink, "process", location)
