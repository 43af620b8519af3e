"""`connect`, `listen`: TCP connections, with optional TLS; `from_stream`, `to_stream`: asyncio streams."""

from __future__ import annotations

import asyncio
import errno
import socket
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import IN_A_TASK, check_integer, synchronous_check
from headrace.pull.argument_checks import port as check_port
from headrace.pull.errors import ConnectionFailed
from headrace.pull.io.connection import (
    Connection,
    Half,
    SourceHalf,
    Streams,
    close_abruptly,
    duplex,
    open_writing,
    opens_byte_source,
)
from headrace.pull.io.lines import CHUNK
from headrace.pull.module_context import Module
from headrace.pull.modules import PullDuplex, PullSink, PullSource
from headrace.pull.protocol import End

if TYPE_CHECKING:
    from ssl import SSLContext

PENDING = 16
"""Default limit on connections waiting to be accepted."""

TLS_CLOSE_WITHIN = 5.0
"""Seconds the other side may take to confirm the end of a TLS connection."""

FULL = 1.0
"""Seconds to wait before accepting again when the process or the system is out of descriptors or memory."""


def connect(host: str, port: int, *, ssl: SSLContext | bool | None = None, chunk: int = CHUNK) -> PullDuplex:
    """Connect to a server: a source of the bytes received, in chunks, and a sink for the bytes to send.

    Each run opens one connection, when the source is first asked or the sink begins. Both directions run at
    the pace of the slower side. The source reads when asked; faster input fills a buffer (twice `chunk`, and
    at most 256 kB more) and then waits on the other side. The sink asks for the next value when the system
    has taken the last one. Its result is the number of bytes sent.

    The halves end independently: after the sink is done (a half-close), the source continues to read; after
    the source has ended, the sink continues to send. When both have ended, the connection is closed, and only
    then the later end is answered. An unused half counts as ended. Aborting the source closes the connection,
    then confirms; the sink aborts its upstream. An error on either half resets the connection, so that the
    other side sees it break.

    ssl:   True or a context for TLS, which has no half-close: a sink that is done before the source leaves
           the connection open, and the other side must know the end from the data.
    chunk: limit on the bytes of a value.

    Fails with `ConnectionFailed` if it cannot connect, and with `ConnectionLost` if the connection breaks or
    the other side closes it while the sink is sending.
    """
    check_port("connect", port)
    check_integer("connect", "chunk", chunk, least=1)
    location = SourceLocation.of_caller()
    name = address(host, port)
    owner = object()

    async def make() -> Streams:
        try:
            within = TLS_CLOSE_WITHIN if ssl else None
            return await asyncio.open_connection(
                host, port, limit=chunk, ssl=ssl or None, ssl_shutdown_timeout=within
            )
        except (OSError, UnicodeError) as error:  # UnicodeError for a name that is too long
            raise ConnectionFailed(
                f"connect() cannot reach {name}",
                where=[location],
                why=f"{type(error).__name__}: {error}",
                fix="check that a server is listening there and, with ssl, that its certificate is trusted",
                name=name,
            ) from error

    def connection(module: Module) -> SocketConnection:
        return module.shared(owner, lambda: SocketConnection(name, location, chunk, make))

    return duplex("connect", location, connection)


def listen(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    ssl: SSLContext | None = None,
    pending: int = PENDING,
    chunk: int = CHUNK,
    ready: Callable[[str, int], object] | None = None,
) -> PullSource:
    """Listen on an address of this machine: a source of connections, duplexes like those of `connect`.

    It listens from the first ask on and accepts one connection per ask; up to `pending` more wait in the
    system, which refuses others. An abort is confirmed once it no longer listens; accepted connections stay.
    Each connection can be used once (else `AlreadyUsed`), in any pipeline and at any time; it is closed when
    both halves have ended, or when it is garbage-collected unused.

    Fails with `ConnectionFailed` if it cannot listen.

    host:  by default reachable from this machine only; "" means all IPv4 addresses.
    port:  0 picks a free one. ready: `ready(host, port)` is called with the actual address once it listens.
    ssl:   a context with a certificate, for TLS; the handshake takes place when a connection is first used.
    """
    check_port("listen", port)
    check_integer("listen", "pending", pending, least=1)
    check_integer("listen", "chunk", chunk, least=1)
    location = SourceLocation.of_caller()
    if ready is not None:
        ready = synchronous_check("listen", ready, fix=IN_A_TASK).calling(ready)

    def listener(_module: Module) -> Listener:
        return Listener(host, port, ssl, pending, chunk, ready, location)

    return PullSource.of("listen", opens_byte_source(listener), linear=True)


def address(host: str, port: int) -> str:
    """Format an address for errors."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class SocketConnection(Connection):
    """TCP connection, closed when both halves have ended.

    connect: opens it, or raises one of our errors. discard: called if it is stopped before being opened.
    """

    def __init__(
        self, name: str, location: SourceLocation, chunk: int, connect: Callable[[], Awaitable[Streams]]
    ) -> None:
        super().__init__(name, f"the connection {name}", location, chunk)
        self.discard: Callable[[], object] = lambda: None
        self._connect = connect
        self._writer: asyncio.StreamWriter | None = None

    async def _open(self) -> Streams:
        reader, self._writer = await self._connect()
        # Keep nothing between the sink and the system: the sink waits until it has taken everything.
        # (With a limit of 0, TLS would pause with nothing to wait for.)
        self._writer.transport.set_write_buffer_limits(high=1, low=0)
        self._watch(self._writer)
        return reader, self._writer

    async def end_half(self, half: Half) -> None:
        if half == "source" and self.stopped:
            raise self.broken(None)  # looks like an end, but this side cut the stream off
        self._using.discard(half)
        if not self._using:
            if self._writer is not None:
                self._writer.close()
            await self.wait_closed()

    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        if not self._is_closed_by_us:
            if writer.can_write_eof():
                writer.write_eof()
            await self.end_half("sink")

    def _stop(self, cause: End) -> None:
        if self._writer is not None:
            close_abruptly(self._writer, failed=isinstance(cause, Exception))
        elif self._opening is not None:
            self._opening.cancel()
        else:
            self.discard()

    async def wait_closed(self) -> None:
        if not self._using or self.stopped:
            await self._closed()

    async def gone(self) -> None:
        await self._closed()
        if not self._is_closed_by_us:
            raise self.broken(None if self._loss is None else self._loss.result())

    @property
    def _is_closed_by_us(self) -> bool:
        """Whether our other half closed the connection without an error."""
        return self.stopped and self.failure is None

    def refused(self, error: OSError) -> Exception | None:
        return None if self._is_closed_by_us else self.broken(error)

    def broken(self, error: Exception | None) -> Exception:
        if self.failure is None:
            if error is None and self.stopped:
                self.failure = self.lost(None, "The pipeline that uses its other half was stopped.")
            else:
                self.failure = self.lost(error)
        self.stop(self.failure)
        return self.failure


@dataclass(eq=False)
class Listener:
    """Reader of `listen`, which accepts a connection each time it is asked."""

    host: str
    port: int
    ssl: SSLContext | None
    pending: int
    chunk: int
    ready: Callable[[str, int], object] | None
    location: SourceLocation
    _socket: socket.socket | None = None

    async def read(self) -> PullDuplex:
        if self._socket is None:
            self._socket = await self._listen()
            if self.ready is not None:
                self.ready(*self._socket.getsockname()[:2])
        accepted, (host, port, *_rest) = await _accept(self._socket)
        accepted.setblocking(False)
        connection = self._connection(accepted, f"from {host}:{port}")
        return duplex(connection.name, self.location, lambda _module: connection)

    async def _listen(self) -> socket.socket:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self.host or None,
                self.port,
                family=0 if self.host else socket.AF_INET,
                type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE,
            )
            family, _type, _protocol, _name, address = found[0]
            listening = socket.create_server(address[:2], family=family, backlog=self.pending)
        except (OSError, UnicodeError) as error:
            raise ConnectionFailed(
                f"listen() cannot listen on {self.host}:{self.port}",
                where=[self.location],
                why=f"{type(error).__name__}: {error}",
                fix="give an address of this machine and a free port; port 0 picks one",
                name=f"{self.host}:{self.port}",
            ) from error
        listening.setblocking(False)
        return listening

    def _connection(self, accepted: socket.socket, name: str) -> SocketConnection:
        async def begin() -> Streams:
            unused.detach()
            try:
                return await self._streams(accepted)
            except BaseException as error:
                accepted.close()
                if not isinstance(error, OSError):
                    raise
                raise ConnectionFailed(
                    f"the connection {name} could not be begun",
                    where=[self.location],
                    why=f"{type(error).__name__}: {error}",
                    fix="with ssl, the other side must use TLS too and trust the certificate",
                    name=name,
                ) from error

        connection = SocketConnection(name, self.location, self.chunk, begin)
        unused = connection.discard = weakref.finalize(connection, accepted.close)
        return connection

    async def _streams(self, accepted: socket.socket) -> Streams:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=self.chunk, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            accepted,
            ssl=self.ssl,
            ssl_shutdown_timeout=TLS_CLOSE_WITHIN if self.ssl else None,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def close(self, cause: End) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Stop listening."""
        listening, self._socket = self._socket, None
        if listening is not None:
            listening.close()


async def _accept(listening: socket.socket) -> tuple[socket.socket, Any]:
    """Accept the next connection. Cancelling it interrupts only the wait, so no connection is lost."""
    while True:
        try:
            return listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            await _readable(listening)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            await asyncio.sleep(FULL)


async def _readable(listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(listening, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(listening)


def from_stream(reader: asyncio.StreamReader, *, chunk: int = CHUNK) -> PullSource:
    """Read bytes from an asyncio stream when asked, at most `chunk` at a time.

    An abort cancels a pending read and leaves the stream open, with all unread bytes, for its owner to
    continue reading or close. A broken stream fails with `ConnectionLost`. Run it in the stream's event loop.
    """
    check_integer("from_stream", "chunk", chunk, least=1)
    location = SourceLocation.of_caller()
    stream = (reader, None)
    read = opens_byte_source(
        lambda _module: SourceHalf(_GivenStream("from_stream", location, stream, chunk=chunk))
    )
    return PullSource.of("from_stream", read, linear=True)


def to_stream(writer: asyncio.StreamWriter, *, close: bool = True) -> PullSink:
    """Write bytes to an asyncio stream; the result is the number of bytes.

    The sink asks for the next value when the stream's buffer is below its limit. At the end it flushes and
    closes the stream. If it fails or is stopped, it resets the connection, so that the other side doesn't
    mistake a part for the whole. A broken stream fails upstream with `ConnectionLost`.

    close: False leaves the stream open for its owner in all cases; then only writing detects a broken one.
    """
    location = SourceLocation.of_caller()
    stream = (None, writer)
    write = open_writing(lambda _module: _GivenStream("to_stream", location, stream, close=close))
    return PullSink.of("to_stream", write)


class _GivenStream(Connection):
    """One half of a stream opened by the caller. close: whether to close it at the end."""

    def __init__(
        self, name: str, location: SourceLocation, streams: Any, *, chunk: int = CHUNK, close: bool = False
    ) -> None:
        super().__init__(name, f"the stream of {name}()", location, chunk)
        self._streams = streams
        self._close = close

    async def _open(self) -> Streams:
        if self._close:
            self._watch(self._streams[1])
        return self._streams

    def _stop(self, cause: End) -> None:
        if self._close:
            close_abruptly(self._streams[1], failed=True)

    def broken(self, error: OSError) -> Exception:
        return self.lost(error)

    refused = broken

    async def end_half(self, half: Half) -> None:
        """Leave the stream to its owner."""

    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        if self._loss is not None:
            writer.close()
            await self._closed()
            error = self._loss.result()
            if error is not None:
                raise self.lost(error)

    async def gone(self) -> None:
        if self._loss is None:
            await asyncio.get_running_loop().create_future()  # only writing shows that it broke
        else:
            await self._closed()
            raise self.lost(self._loss.result())

    wait_closed = Connection._closed
