"""Halves of a connection: the source that reads it, and the sink that writes it."""

from __future__ import annotations

from asyncio import StreamWriter
from collections.abc import Callable
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.edge import Edge
from headrace.pull.io.byte_source import opens_byte_source
from headrace.pull.io.connection import Connection, Streams
from headrace.pull.io.octets import check_octets
from headrace.pull.module_context import Module
from headrace.pull.modules import Duplex, Sink, SinkPart, Source, SourcePart
from headrace.pull.protocol import End
from headrace.pull.sinks.read_loops import WorkerLoop


def duplex(name: str, location: SourceLocation, connection: Callable[[Module], Connection]) -> Duplex:
    """Create a duplex of the two halves of a connection, which `connection(module)` returns in a run."""
    read = opens_byte_source(lambda module: SourceHalf(connection(module)))
    source = Source(SourcePart(name, location, read, linear=True))
    return Duplex(source, Sink(SinkPart(name, location, open_writing(connection))), name, location)


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


def open_writing(connection: Callable[[Module], Connection]) -> Callable[[Module, Edge], None]:
    """Open the sink in a run. Its result is the number of bytes written.

    The sink asks once the connection is open, and again each time the system has taken the last value. If the
    other side is lost, it fails upstream; if the other side wants no more, it aborts upstream.
    """

    def open(module: Module, edge: Edge) -> None:
        _SinkHalf(module, edge, connection(module)).start()

    return open


class _SinkHalf:
    _writer: StreamWriter

    def __init__(self, module: Module, edge: Edge, connection: Connection) -> None:
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
