"""Child: a running process, whose standard input and output are the halves of a duplex."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import cast

from penstock.errors import ProcessFailed, SourceLocation
from penstock.pull.io.connection import Connection, Half, Streams, loss
from penstock.pull.protocol import End

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


class Child(Connection):
    """One process. It is started when a half needs it, and ended by the first half that is stopped.

    A half that is not taken is connected with nothing.
    codes: exit codes that are no failure. grace: seconds between asking it to end and killing it.
    """

    used_again = (
        "a second time in a run",
        "A run starts the program once, and it is one stream of bytes each way.",
        "call process() for each place, within the function that makes the streams",
    )

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
        super().__init__(args[0], f"process {args[0]!r}", location)
        self._args = args
        self._codes = codes
        self._grace = grace
        self._chunk = chunk
        self._cwd = cwd
        self._env = env
        self._process: Process | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._ending: asyncio.Task[None] | None = None
        self._exit: asyncio.Task[None] | None = None
        self._input_lost: asyncio.Task[Exception | None] | None = None
        self._tail = b""

    # -- started --------------------------------------------------------------------------------

    async def _open(self) -> Streams:
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
        self._process = process = Process(transport, protocol, loop)
        if process.stdin is not None:
            process.stdin.transport.set_write_buffer_limits(0)
            self._input_lost = asyncio.create_task(loss(process.stdin))
        self._exit = asyncio.create_task(self._until_exit(process, protocol))
        return cast("Streams", (process.stdout, process.stdin))

    async def _until_exit(self, process: Process, protocol: _Protocol) -> None:
        tail = asyncio.create_task(self._keep_tail(process))
        code = await protocol.exit_code
        await asyncio.wait({tail}, timeout=STRAGGLING)
        tail.cancel()
        if code not in self._codes and not self.stopped and self.failure is None:
            how = f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"
            said = self._tail.decode(errors="replace").strip()
            self.failure = self._failed(how, f"It said last:\n{said}" if said else "It said nothing.", code)

    async def _keep_tail(self, process: Process) -> None:
        assert process.stderr is not None
        while said := await process.stderr.read(TAIL):
            self._tail = (self._tail + said)[-TAIL:]

    def _failed(self, how: str, why: str, code: int | None = None) -> ProcessFailed:
        return ProcessFailed(
            f"{self.called} {how}",
            where=[self.location],
            why=why,
            fix="run it by hand to see; codes=... says which exit codes are no failure",
            args_of=tuple(self._args),
            exit_code=code,
            stderr=self._tail.decode(errors="replace"),
        )

    # -- ended ----------------------------------------------------------------------------------

    def broken(self, error: OSError) -> Exception:
        return self._failed("cannot be read from", f"{type(error).__name__}: {error}")

    def refused(self, error: OSError) -> None:
        """It has closed its input and wants no more, see `gone`."""

    async def left(self, half: Half) -> None:
        self._using.discard(half)
        await self.closed()
        if self.failure is not None:
            raise self.failure

    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await self.left("sink")

    def _stop(self, cause: End) -> None:
        self._using.clear()
        if self._opening is not None:
            self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        assert self._opening is not None
        await asyncio.wait({self._opening})
        if self._process is None or self._exit is None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        await asyncio.wait({self._exit}, timeout=self._grace)
        if not self._exit.done():
            self._kill()

    def _kill(self) -> None:
        if self._transport is not None:
            with suppress(ProcessLookupError):
                self._transport.kill()

    def abandon(self) -> None:
        self._kill()
        self._release()

    async def closed(self) -> None:
        """Wait until the process has ended, or never began; let its pipes go when nobody uses them."""
        await self._opened()
        for task in (self._ending, self._exit):
            if task is not None:
                await asyncio.wait({task})
        if not self._using:
            self._release()

    async def gone(self) -> None:
        if self._input_lost is not None:
            await asyncio.wait({self._input_lost})

    def _release(self) -> None:
        """Close the pipes, and kill the process if it still runs."""
        if self._transport is not None:
            self._transport.close()
