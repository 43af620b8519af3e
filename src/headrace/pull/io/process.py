"""`process`: another program as a duplex of its standard input and output."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fspath
from typing import Any, cast

from headrace.errors import BadOption, SourceLocation
from headrace.pull.argument_checks import check_integer, check_positive
from headrace.pull.errors import ProcessFailed
from headrace.pull.io.connection import Connection, Half, Streams, duplex, wait_settled
from headrace.pull.io.lines import CHUNK
from headrace.pull.module_context import Module
from headrace.pull.modules import PullDuplex
from headrace.pull.protocol import End

GRACE = 5.0
"""Default seconds between asking a process to end and killing it."""

TAIL = 4096
"""Bytes from the end of a process's standard error that an error includes."""

STRAGGLING = 1.0
"""Seconds to wait, after the exit, for standard error to close: descendants may still hold it."""


def process(
    args: Sequence[str | PathLike[str]],
    *,
    codes: Collection[int] = (0,),
    cwd: str | PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    grace: float = GRACE,
    chunk: int = CHUNK,
) -> PullDuplex:
    r"""Run a program as a duplex of bytes: a sink of its standard input, a source of its standard output.

    Each run starts the program once, without a shell, when the source is first asked or the sink begins.
    Both directions run at the pace of the slower side, as for `connect`. An unused half is the null device.

    The source ends, and the sink gives its result (the number of bytes written), when the program has
    exited. A sink that is done closes standard input. A program that closes it first wants no more, so
    upstream of the sink is aborted. An exit code not in `codes`, or a signal, fails both halves with
    `ProcessFailed`, which carries the last 4 kB of standard error.

    Aborting the source, or failing or stopping the sink, sends SIGTERM, then SIGKILL after `grace` seconds,
    and is confirmed when the program has exited.

    >>> import sys
    >>> from headrace.pull import concat, pull, values
    >>> double = "import sys; print(2 * int(sys.stdin.read()))"
    >>> pull(values([b"21"]), process([sys.executable, "-c", double]), concat(b"")).run()
    b'42\n'
    """
    check_positive("process", "grace", grace)
    check_integer("process", "chunk", chunk, least=1)
    location = SourceLocation.of_caller()
    if isinstance(args, str | bytes) or not args:
        raise BadOption(
            f"process() cannot start {args!r}",
            where=[location],
            why="There is no shell to split a command into words.",
            fix="give the words as a list: process(['sort', '-n'])",
        )
    words = [fspath(word) for word in args]
    options = {"cwd": None if cwd is None else fspath(cwd), "env": None if env is None else dict(env)}
    owner = object()

    def child(module: Module) -> Child:
        return module.shared(owner, lambda: Child(words, location, chunk, codes, grace, options))

    return duplex("process", location, child)


class _ExitProtocol(SubprocessStreamProtocol):
    """Protocol that sets `exited` at the exit, whereas `Process.wait` also waits for open pipes."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=limit, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class Child(Connection):
    """Running process, started when a half needs it, and ended by the first half that is stopped.

    A half that is not taken is connected to the null device.
    codes: exit codes that count as success. grace: seconds between SIGTERM and SIGKILL.
    options: `cwd` and `env` of the process.
    """

    used_again = (
        "a second time in a run",
        "A run starts the program once, and each half is a single stream of bytes.",
        "call process() once per use, within the function that makes the streams",
    )

    def __init__(
        self,
        args: Sequence[str],
        location: SourceLocation,
        chunk: int,
        codes: Collection[int],
        grace: float,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(args[0], f"process {args[0]!r}", location, chunk)
        self._args = args
        self._codes = codes
        self._grace = grace
        self._options = options
        self._transport: asyncio.SubprocessTransport | None = None
        self._ending: asyncio.Task[None] | None = None
        self._exit: asyncio.Task[None] | None = None
        self._tail = b""

    async def _open(self) -> Streams:
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: _ExitProtocol(self.chunk, loop),
                *self._args,
                stdin=PIPE if "sink" in self._taken else DEVNULL,
                stdout=PIPE if "source" in self._taken else DEVNULL,
                stderr=PIPE,
                **self._options,
            )
        except (OSError, ValueError) as error:
            self.failure = self._failed("cannot be started", f"{type(error).__name__}: {error}")
            raise self.failure from error
        self._transport = transport
        process = Process(transport, protocol, loop)
        if process.stdin is not None:
            process.stdin.transport.set_write_buffer_limits(0)
            self._watch(process.stdin)
        self._exit = asyncio.create_task(self._until_exit(process, protocol.exited))
        return cast("Streams", (process.stdout, process.stdin))

    async def _until_exit(self, process: Process, exited: asyncio.Event) -> None:
        tail = asyncio.create_task(self._keep_tail(process))
        await exited.wait()
        code = process.returncode
        assert code is not None
        await asyncio.wait({tail}, timeout=STRAGGLING)
        tail.cancel()
        if code not in self._codes and not self.stopped and self.failure is None:
            how = f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"
            said = self._tail.decode(errors="replace").strip()
            self.failure = self._failed(
                how,
                f"Its standard error ends with:\n{said}" if said else "Its standard error is empty.",
                code,
            )

    async def _keep_tail(self, process: Process) -> None:
        assert process.stderr is not None
        while said := await process.stderr.read(TAIL):
            self._tail = (self._tail + said)[-TAIL:]

    def _failed(self, how: str, why: str, code: int | None = None) -> ProcessFailed:
        return ProcessFailed(
            f"{self.called} {how}",
            where=[self.location],
            why=why,
            fix="run it by hand to reproduce this; codes=... lists exit codes that count as success",
            args_of=tuple(self._args),
            exit_code=code,
            stderr=self._tail.decode(errors="replace"),
        )

    def broken(self, error: OSError) -> Exception:
        return self._failed("cannot be read from", f"{type(error).__name__}: {error}")

    def refused(self, error: OSError) -> None:
        """Ignore the error: the program closed its input and wants no more, which `gone` reports."""

    async def end_half(self, half: Half) -> None:
        self._using.discard(half)
        await self.wait_closed()
        if self.failure is not None:
            raise self.failure

    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await self.end_half("sink")

    def _stop(self, cause: End) -> None:
        self._using.clear()
        if self._opening is not None:
            self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        await wait_settled(self._opening)
        if self._transport is None or self._exit is None:
            return
        with suppress(ProcessLookupError):
            self._transport.terminate()
        await asyncio.wait({self._exit}, timeout=self._grace)
        if not self._exit.done():
            with suppress(ProcessLookupError):
                self._transport.kill()

    def abandon(self) -> None:
        self._release()

    async def wait_closed(self) -> None:
        """Wait until the process has ended, if it ever started; release its pipes if no half uses them."""
        await wait_settled(self._opening)
        await wait_settled(self._ending)
        await wait_settled(self._exit)
        if not self._using:
            self._release()

    async def gone(self) -> None:
        await wait_settled(self._loss)

    def _release(self) -> None:
        """Close the pipes, and kill the process if it is still running."""
        if self._transport is not None:
            self._transport.close()
