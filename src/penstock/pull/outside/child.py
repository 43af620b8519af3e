"""Child: a running process, whose standard input and output are the halves of a duplex."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Literal

from penstock.errors import AlreadyUsed, ProcessFailed, SourceLocation
from penstock.pull.outside.link import loss
from penstock.pull.outside.octets import Octets
from penstock.pull.outside.writing import handed_over
from penstock.pull.protocol import End

Half = Literal["source", "sink"]

TAIL = 4096
"""Bytes of what a process said last on its standard error that an error repeats."""

STRAGGLING = 1.0
"""Seconds that its standard error may stay open after it has ended: processes of its own may hold it."""


class _Protocol(SubprocessStreamProtocol):
    """Says when the process has ended, also while somebody has its pipes and has not read them."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=limit, loop=loop)
        self.exit_code: asyncio.Future[int] = loop.create_future()
        self._to_process: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._to_process = transport
        super().connection_made(transport)

    def process_exited(self) -> None:
        super().process_exited()
        assert self._to_process is not None
        code = self._to_process.get_returncode()
        if not self.exit_code.done():
            self.exit_code.set_result(-1 if code is None else code)


class Child:
    """One process. It is started when a half needs it, and ended by the first half that is stopped.

    codes: exit codes that are no failure. grace: seconds between asking it to end and killing it.
    """

    def __init__(
        self,
        args: Sequence[str],
        location: SourceLocation,
        *,
        codes: Collection[int],
        grace: float,
        chunk: int,
        cwd: str | None,
        env: dict[str, str] | None,
    ) -> None:
        self.failure: Exception | None = None
        """What the process failed with, or what it was stopped with."""
        self.stopped = False
        self._args = args
        self._location = location
        self._codes = codes
        self._grace = grace
        self._chunk = chunk
        self._cwd = cwd
        self._env = env
        self._taken: set[Half] = set()
        self._open: set[Half] = set()
        self._process: Process | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._starting: asyncio.Task[Process] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._exit: asyncio.Task[None] | None = None
        self._input_lost: asyncio.Task[Exception | None] | None = None
        self._tail = b""

    def take(self, half: Half) -> None:
        """A module stands for this half: the process is given a pipe for it, and nothing for the other.

        Raises `AlreadyUsed` the second time.
        """
        if half in self._taken:
            raise AlreadyUsed(
                f"the {half} of process {self._args[0]!r} is used a second time in a run",
                where=[self._location],
                why="A run starts the program once, and it is one stream of bytes each way.",
                fix="call process() for each place, within the function that makes the streams",
            )
        self._taken.add(half)
        self._open.add(half)

    # -- started --------------------------------------------------------------------------------

    async def process(self) -> Process | None:
        """The process, started if it is not; None where it was stopped before. Raises `ProcessFailed`."""
        if self._starting is None:
            if self.stopped:
                return self._never_started()
            self._starting = asyncio.create_task(self._start())
        await asyncio.wait({self._starting})
        return self._never_started() if self._starting.cancelled() else self._starting.result()

    def _never_started(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _start(self) -> Process:
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: _Protocol(self._chunk, loop),
                *self._args,
                stdin=PIPE if "sink" in self._taken else DEVNULL,
                stdout=PIPE if "source" in self._taken else DEVNULL,
                stderr=PIPE,
                cwd=self._cwd,
                env=self._env,
            )
        except (OSError, ValueError) as error:
            self.failure = self._failed("cannot be started", f"{type(error).__name__}: {error}")
            raise self.failure from error
        self._transport = transport
        self._process = Process(transport, protocol, loop)
        if self._process.stdin is not None:
            self._process.stdin.transport.set_write_buffer_limits(0)
            self._input_lost = asyncio.create_task(loss(self._process.stdin))
        self._exit = asyncio.create_task(self._until_exit(self._process, protocol))
        return self._process

    async def _until_exit(self, process: Process, protocol: _Protocol) -> None:
        tail = asyncio.create_task(self._listen(process))
        code = await protocol.exit_code
        await asyncio.wait({tail}, timeout=STRAGGLING)
        tail.cancel()
        if code not in self._codes and not self.stopped and self.failure is None:
            how = f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"
            said = self._tail.decode(errors="replace").strip()
            self.failure = self._failed(how, f"It said last:\n{said}" if said else "It said nothing.", code)

    async def _listen(self, process: Process) -> None:
        assert process.stderr is not None
        while said := await process.stderr.read(TAIL):
            self._tail = (self._tail + said)[-TAIL:]

    def _failed(self, how: str, why: str, code: int | None = None) -> ProcessFailed:
        return ProcessFailed(
            f"process {self._args[0]!r} {how}",
            where=[self._location],
            why=why,
            fix="run it by hand to see; codes=... says which exit codes are no failure",
            args_of=tuple(self._args),
            exit_code=code,
            stderr=self._tail.decode(errors="replace"),
        )

    # -- ended ----------------------------------------------------------------------------------

    async def left(self, half: Half) -> None:
        """This half has ended as it should. Returns when the process has; raises what that failed with."""
        self._open.discard(half)
        await self.ended()
        if self.failure is not None:
            raise self.failure

    def stop(self, cause: End) -> None:
        """End it: it is asked to, and killed when it has not done so in time."""
        if self.failure is None and isinstance(cause, Exception):
            self.failure = cause
        if self.stopped:
            return
        self.stopped = True
        self._open.clear()
        if self._starting is not None:
            self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        assert self._starting is not None
        await asyncio.wait({self._starting})
        if self._process is None or self._exit is None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        await asyncio.wait({self._exit}, timeout=self._grace)
        if not self._exit.done():
            self.kill()

    def kill(self) -> None:
        """Kill it now."""
        if self._transport is not None:
            with suppress(ProcessLookupError):
                self._transport.kill()

    async def ended(self) -> None:
        """Returns when the process has ended, or never began, and lets its pipes go when nobody uses them."""
        if self._starting is not None:
            await asyncio.wait({self._starting})
            if not self._starting.cancelled():
                self._starting.exception()  # the halves were told, or nobody waits for it
        for task in (self._ending, self._exit):
            if task is not None:
                await asyncio.wait({task})
        if not self._open:
            self.release()

    async def input_lost(self) -> None:
        """Returns when the process has closed its standard input, or was never given one."""
        if self._input_lost is not None:
            await asyncio.wait({self._input_lost})

    def release(self) -> None:
        """Close the pipes, and kill the process if it still runs."""
        if self._transport is not None:
            self._transport.close()


class Output:
    """The `Inlet` of a child: its standard output."""

    def __init__(self, child: Child, chunk: int) -> None:
        self._child = child
        self._chunk = chunk
        self._ended = False
        child.take("source")

    async def read(self) -> bytes:
        child = self._child
        process = await child.process()
        if process is not None:
            assert process.stdout is not None
            data = await process.stdout.read(self._chunk)
            if data:
                return data
        self._ended = True
        await child.left("source")
        return b""

    async def close(self, cause: End) -> None:
        self._ended = True
        self._child.stop(cause)
        await self._child.ended()

    def cancel(self) -> None:
        if not self._ended:
            self._child.kill()
            self._child.release()


class Input:
    """The `ByteWriter` of a child: its standard input."""

    _writer: asyncio.StreamWriter

    def __init__(self, child: Child) -> None:
        self._child = child
        self._ended = False
        child.take("sink")

    async def open(self) -> bool:
        process = await self._child.process()
        if process is None:
            return False
        assert process.stdin is not None
        self._writer = process.stdin
        return True

    def write(self, data: Octets) -> Coroutine[Any, Any, None] | None:
        return handed_over(self._writer, data, self._flush)

    async def _flush(self) -> None:
        with suppress(OSError):  # it has closed its input: it wants no more, see `gone`
            await self._writer.drain()

    async def finish(self) -> None:
        await self._flush()
        self._writer.close()
        await self._child.left("sink")
        self._ended = True

    async def gone(self) -> None:
        await self._child.input_lost()

    def stop(self, cause: End) -> None:
        if not self._ended:
            self._ended = True
            self._child.stop(cause)

    async def closed(self) -> None:
        await self._child.ended()

    def cancel(self) -> None:
        self.stop(True)
