"""connect, listen: connections over TCP, with TLS on demand."""

from __future__ import annotations

import asyncio
import errno
import socket
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectionFailed, SourceLocation
from penstock.pull.io.byte_source import reading
from penstock.pull.io.connection import Connection, Half, Streams, cut_off, duplex
from penstock.pull.io.octets import CHUNK
from penstock.pull.module import Module
from penstock.pull.options import port as check_port
from penstock.pull.options import whole
from penstock.pull.pieces import Duplex, Source
from penstock.pull.protocol import End
from penstock.pull.synchronous import IN_A_TASK, synchronous

if TYPE_CHECKING:
    from ssl import SSLContext


PENDING = 16
"""Connections that may wait to be accepted, by default."""

TLS_CLOSE_WITHIN = 5.0
"""Seconds that the other side may take to confirm the end of a connection with TLS."""

FULL = 1.0
"""Seconds to wait before accepting again when the process or the system is out of descriptors or memory."""


def connect(host: str, port: int, *, ssl: SSLContext | bool | None = None, chunk: int = CHUNK) -> Duplex:
    """A connection to a server: a source of the bytes that come, in chunks, and a sink of those to be sent.

    Each run makes one connection, when its source is first asked or its sink begins. Both ways go at
    the pace of the slower side: the source reads when it is asked, and what comes faster fills the
    buffer (some times `chunk`, at most 256 kB more) and then waits at the other side; the sink asks for
    the next value when the system has taken the last one. Its result is how many bytes were sent.

    The halves end one by one: a sink that is done tells the other side so and the source reads on;
    a source that has ended leaves the sink to send on. When both have, the connection is closed, and
    the later one's end is told after that. A half that is not used counts as ended. An abort of the source
    closes the connection and is confirmed then; the sink aborts what it reads from. An error on
    either side closes it too, and the other side of the connection sees that it broke.

    ssl:   True, or a context, for TLS. That cannot end one way only: a sink that is done while the
           source is not leaves the connection open, and the other side has to know by what it was sent.
    chunk: the most bytes of a value.

    Fails with `ConnectionFailed` where it cannot be made, `ConnectionLost` where it breaks, or where the
    other side closes it while the sink sends.
    """
    check_port("connect", port)
    whole("connect", "chunk", chunk, least=1)
    location = SourceLocation.of_caller()
    name = address(host, port)
    owner = object()

    async def make() -> Streams:
        try:
            within = TLS_CLOSE_WITHIN if ssl else None
            return await asyncio.open_connection(
                host, port, limit=chunk, ssl=ssl or None, ssl_shutdown_timeout=within
            )
        except (OSError, UnicodeError) as error:  # the latter of a name that is too long
            raise ConnectionFailed(
                f"connect() cannot reach {name}",
                where=[location],
                why=f"{type(error).__name__}: {error}",
                fix="see that the server listens there, and that its certificate is known where ssl is said",
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
) -> Source:
    """The connections that come to an address of this machine, as duplexes like those of `connect`.

    It listens from the first ask on, and accepts one connection for each ask; `pending` more may wait in the
    system, which turns others away. An abort stops listening, and is confirmed then; connections that
    were answered before go on. Each of these can be used once (else `AlreadyUsed`), in any pipeline
    and at any time; it is closed when its halves have ended, or when nobody has it any more.
    Where it cannot listen, it fails with `ConnectionFailed`.

    host:  by default only programs on this machine reach it; "" is all of its addresses (of IPv4).
    port:  0 for a free one. ready: `ready(host, port)` is called when it listens, with the real ones.
    ssl:   a context with a certificate, for TLS; it is agreed on when the connection is first used.
    """
    check_port("listen", port)
    whole("listen", "pending", pending, least=1)
    whole("listen", "chunk", chunk, least=1)
    location = SourceLocation.of_caller()
    if ready is not None:
        ready = synchronous("listen", ready, fix=IN_A_TASK).calling(ready)

    def listener(_module: Module) -> Listener:
        return Listener(host, port, ssl, pending, chunk, ready, location)

    return Source.of("listen", reading(listener), linear=True)


def address(host: str, port: int) -> str:
    """As it is written in errors."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class SocketConnection(Connection):
    """A TCP connection, which is closed when both of its halves have ended.

    connect: opens it, or raises one of our errors. discard: called if it is stopped before it was opened.
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
        # What was written is with the system, or is waited for: nothing is kept in between.
        # (With a limit of 0, TLS would hold back when there is nothing to wait for.)
        self._writer.transport.set_write_buffer_limits(high=1, low=0)
        self._watch(self._writer)
        return reader, self._writer

    async def left(self, half: Half) -> None:
        if half == "source" and self.stopped:
            raise self.broken(None)  # it looks like an end and is none
        self._using.discard(half)
        if not self._using:
            if self._writer is not None:
                self._writer.close()
            await self.closed()

    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        if not self._is_closed_by_us:
            if writer.can_write_eof():
                writer.write_eof()
            await self.left("sink")

    def _stop(self, cause: End) -> None:
        if self._writer is not None:
            cut_off(self._writer, failed=isinstance(cause, Exception))
        elif self._opening is not None:
            self._opening.cancel()
        else:
            self.discard()

    async def closed(self) -> None:
        if not self._using or self.stopped:
            await self._closed()

    async def gone(self) -> None:
        await self._closed()
        if not self._is_closed_by_us:
            raise self.broken(None if self._loss is None else self._loss.result())

    @property
    def _is_closed_by_us(self) -> bool:
        """Whether the other half closed it without an error: nothing more is wanted."""
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
    """The `Reader` of `listen`: accepts a connection each time it is asked."""

    host: str
    port: int
    ssl: SSLContext | None
    pending: int
    chunk: int
    ready: Callable[[str, int], object] | None
    location: SourceLocation
    _socket: socket.socket | None = None

    async def read(self) -> Duplex:
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
                fix="give an address of this machine and a free port; 0 finds one",
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
                    fix="with ssl, the other side must use TLS too, and know the certificate",
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
    """The next connection. What is cancelled is the wait, never the taking: none gets lost."""
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
