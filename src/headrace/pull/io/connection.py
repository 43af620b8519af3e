"""`Connection`: a socket, a process or a stream as two halves, source and sink, that end independently."""

from __future__ import annotations

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from asyncio import StreamWriter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Literal, Protocol

from headrace.errors import SourceLocation
from headrace.pull.edge import PullEdge
from headrace.pull.errors import AlreadyUsed, ConnectionLost
from headrace.pull.io.lines import CHUNK, check_octets
from headrace.pull.module_context import Module
from headrace.pull.modules import PullDuplex, PullSink, PullSource, SinkPart, SourcePart
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, End, Read
from headrace.pull.sinks import WorkerLoop

Half = Literal["source", "sink"]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Connection(ABC):
    """Socket, process or stream, opened once, when a half first needs it.

    name, called: its name, and its description in errors. location: the user's line.
    chunk: maximum number of bytes per read.
    """

    used_again: ClassVar[tuple[str, str, str]] = (
        "a second time",
        "A connection that was accepted is one stream of bytes each way.",
        "use each half in one pipeline, once; tee() gives its values to several",
    )
    """Texts of the error for taking a half twice: the occasion, the reason, and the fix."""

    def __init__(self, name: str, called: str, location: SourceLocation, chunk: int = CHUNK) -> None:
        self.name = name
        self.called = called
        self.location = location
        self.chunk = chunk
        self.failure: Exception | None = None
        """Error with which the connection broke or was stopped."""
        self.stopped = False
        """Whether one half closed the whole connection before both had ended."""
        self._taken: set[Half] = set()
        self._using: set[Half] = set()
        self._opening: asyncio.Task[Streams] | None = None
        self._loss: asyncio.Task[Exception | None] | None = None
        """Task that ends with the closing of the writer, with its error; see `_watch`."""

    def take(self, half: Half) -> None:
        """Reserve a half for a module. Raises `AlreadyUsed` the second time.

        A half that is still not taken when the other one ends counts as ended.
        """
        if half in self._taken:
            again, why, fix = self.used_again
            raise AlreadyUsed(
                f"the {half} of {self.called} is used {again}", where=[self.location], why=why, fix=fix
            )
        self._taken.add(half)
        self._using.add(half)

    async def streams(self) -> Streams | None:
        """Return the reader and the writer, opened on first use; None if stopped before.

        Raises the error of opening. Cancelling the call does not cancel the opening, for the other half's
        sake.
        """
        if self._opening is None and not self.stopped:
            self._opening = asyncio.create_task(self._open())
        await wait_settled(self._opening)
        if self._opening is not None and not self._opening.cancelled():
            return self._opening.result()
        if self.failure is not None:
            raise self.failure
        return None

    def stop(self, cause: End) -> None:
        """Close the connection immediately; with an error, reset it so that the other side notices."""
        if self.failure is None and isinstance(cause, Exception):
            self.failure = cause
        if not self.stopped:
            self.stopped = True
            self._stop(cause)

    def abandon(self) -> None:
        """Close the connection without waiting."""
        self.stop(True)

    def lost(
        self, error: Exception | None, why: str = "The other side closed it before this side had ended."
    ) -> ConnectionLost:
        """Build the error for a broken connection. why: the reason if there is no `error`."""
        return ConnectionLost(
            f"{self.called} broke",
            where=[self.location],
            why=why if error is None else f"{type(error).__name__}: {error}",
            fix="connect again if that is safe; data in transit is lost",
            name=self.name,
        )

    def _watch(self, writer: asyncio.StreamWriter) -> None:
        async def loss() -> Exception | None:
            try:
                await writer.wait_closed()
            except OSError as error:
                return error
            return None

        self._loss = asyncio.create_task(loss())

    async def _closed(self) -> None:
        """Wait until the opening and the writer are done, however they end."""
        await wait_settled(self._opening)
        await wait_settled(self._loss)

    @abstractmethod
    async def _open(self) -> Streams: ...

    @abstractmethod
    def _stop(self, cause: End) -> None: ...

    @abstractmethod
    def broken(self, error: OSError) -> Exception:
        """Return the failure to report for a read error."""

    @abstractmethod
    def refused(self, error: OSError) -> Exception | None:
        """Return the failure to report for a write error; None if the other side merely stopped reading."""

    @abstractmethod
    async def end_half(self, half: Half) -> None:
        """End a half and wait until everything that closes with it has closed. Raises if closing fails."""

    @abstractmethod
    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        """Signal the end of writing to the other side, and end the sink's half."""

    @abstractmethod
    async def gone(self) -> None:
        """Wait until the other side accepts no more input. Raises if the connection is lost."""

    @abstractmethod
    async def wait_closed(self) -> None:
        """Wait until everything that ends with the ended half is closed."""


async def wait_settled(task: asyncio.Task[object] | None) -> None:
    """Wait for a task, if any, however it ends. Its error is marked as retrieved."""
    if task is not None:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()


def close_abruptly(writer: asyncio.StreamWriter, *, failed: bool) -> None:
    """Close a stream immediately. failed: reset the connection, so that the other side sees it break."""
    connection = writer.get_extra_info("socket")
    if failed and connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class ByteReader(Protocol):
    """Asynchronous side of a source."""

    async def read(self) -> Any:
        """Read the next value; a false one (b"", None) at the end, once all its resources are closed.

        Raises the error that the stream fails with, also after closing. May be cancelled; never called
        concurrently.
        """

    async def close(self, cause: End) -> None:
        """Stop reading, and wait until all resources are closed. Not called after an end."""

    def cancel(self) -> None:
        """Release everything still open, without waiting. Always called last, even after an end."""


def opens_byte_source(make: Callable[[Module], ByteReader]) -> Callable[[Module], Read]:
    """Create the function that opens the source in a run; `make` creates its `ByteReader`.

    The source reads when asked; an abort cancels a pending read, then closes.
    """

    def open(module: Module) -> Read:
        reader = make(module)
        module.cancel_at_end(reader)
        return _Reading(module, reader).read

    return open


class _Reading:
    def __init__(self, module: Module, reader: ByteReader) -> None:
        self._module = module
        self._reader = reader
        self._step: Cancellable | None = None
        self._ends: asyncio.Event | None = None
        """Event set when the pending read is over, which `close` waits for."""

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._step = self._module.spawn(self._next(), partial(self._arrived, answer))
            return
        if self._step is not None:
            self._step.cancel()
        self._module.spawn(self._close(abort), lambda error, _result: answer(error or abort))

    async def _next(self) -> Any:
        self._ends = asyncio.Event()
        try:
            return await self._reader.read()
        finally:
            self._ends.set()

    def _arrived(self, answer: AnswerTo, error: Exception | None, value: Any) -> None:
        self._step = None
        if error is not None:
            raise error
        if value:
            answer(None, value)
        else:
            answer(True)

    async def _close(self, cause: End) -> None:
        if self._ends is not None:
            await self._ends.wait()
        await self._reader.close(cause)


def duplex(name: str, location: SourceLocation, connection: Callable[[Module], Connection]) -> PullDuplex:
    """Create a duplex of the two halves of a connection, which `connection(module)` returns in a run."""
    read = opens_byte_source(lambda module: SourceHalf(connection(module)))
    source = PullSource(SourcePart(name, location, read, linear=True))
    return PullDuplex(source, PullSink(SinkPart(name, location, open_writing(connection))), name, location)


class SourceHalf:
    """Reader for the source half of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ended = False
        connection.take("source")

    async def read(self) -> bytes:
        connection = self._connection
        streams = await connection.streams()
        try:
            data = b"" if streams is None else await streams[0].read(connection.chunk)
        except OSError as error:
            raise connection.broken(error) from error
        if not data:
            self._ended = True
            await connection.end_half("source")
        return data

    async def close(self, cause: End) -> None:
        self._ended = True
        self._connection.stop(cause)
        await self._connection.wait_closed()

    def cancel(self) -> None:
        if not self._ended:
            self._connection.abandon()


def open_writing(connection: Callable[[Module], Connection]) -> Callable[[Module, PullEdge], None]:
    """Open the sink in a run. Its result is the number of bytes written.

    The sink asks once the connection is open, and again each time the system has taken the last value. If the
    other side is lost, it fails upstream; if the other side wants no more, it aborts upstream.
    """

    def open(module: Module, edge: PullEdge) -> None:
        _SinkHalf(module, edge, connection(module)).start()

    return open


class _SinkHalf:
    _writer: StreamWriter

    def __init__(self, module: Module, edge: PullEdge, connection: Connection) -> None:
        self._module = module
        self._edge = edge
        self._connection = connection
        self._working = WorkerLoop(edge, self._write, self._over)
        self._written = 0
        self._finishing = False
        self._ended = False
        connection.take("sink")

    def start(self) -> None:
        self._module.cancel_at_end(self)
        self._module.closing(self._close)
        self._module.spawn(self._connection.streams(), self._opened)

    def _opened(self, error: Exception | None, streams: Streams | None) -> None:
        if error is not None:
            self._fail(error)
        elif streams is None:
            self._module.done(0)
        else:
            self._writer = streams[1]
            self._module.spawn(self._connection.gone(), self._gone)
            self._working.start()

    def _write(self, value: Any, finished: Callable[[], None]) -> None:
        def flushed(error: Exception | None, _result: None) -> None:
            if error is not None:
                self._fail(error)
            else:
                finished()

        try:
            data = check_octets(self._module, value)
            on_its_way = not data or self._sent(data)
        except Exception as error:
            self._fail(error)
            return
        self._written += len(data)
        if on_its_way:
            finished()
        else:
            self._module.spawn(self._flush(), flushed)

    def _sent(self, data: Any) -> bool:
        """Write a value, and return whether the system took all of it immediately, without a task."""
        transport = self._writer.transport
        if transport.is_closing():
            return False
        self._writer.write(data)
        return not transport.get_write_buffer_size()

    async def _flush(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            failure = self._connection.refused(error)
            if failure is not None:
                raise failure from error

    def _over(self, end: End) -> None:
        if end is True:
            self._finishing = True
            self._module.spawn(self._finish(), self._finished)
        else:
            self._fail(end)

    async def _finish(self) -> None:
        await self._flush()
        await self._connection.finish_writing(self._writer)
        self._ended = True

    def _finished(self, error: Exception | None, _result: None) -> None:
        if error is not None:
            self._fail(error)
        else:
            self._module.done(self._written)

    def _gone(self, error: Exception | None, _result: None) -> None:
        if self._finishing:
            return  # `_finish` knows more
        if error is not None:
            self._fail(error)
        else:
            self._working.stop()
            self._edge(True, lambda end, _value=None, /: self._over(end or True))

    def _fail(self, error: Exception) -> None:
        self._working.stop()
        self._stop(error)
        self._module.fail(error, self._written)

    def _stop(self, cause: End) -> None:
        if not self._ended:
            self._ended = True
            self._connection.stop(cause)

    def cancel(self) -> None:
        """Close the connection unless it has ended."""
        self._stop(True)

    def _close(self, _error: Exception | None, closed: Callable[..., object]) -> None:
        # Not as a task of the module: those are cancelled when it has failed.
        self._module.run.runtime.spawn(self._connection.wait_closed(), lambda error, _result: closed(error))
