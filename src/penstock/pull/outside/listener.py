"""Listener: accepts connections when it is asked for them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectionFailed, SourceLocation
from penstock.pull.outside.link import GOODBYE, Link, Streams
from penstock.pull.protocol import End

if TYPE_CHECKING:
    import socket
    from ssl import SSLContext

FULL = 1.0
"""Seconds until it tries again where the process or the system has no room for another connection."""


class Listener:
    """The `Inlet` of `listen`. accepted: what to answer for a connection."""

    def __init__(
        self,
        host: str,
        port: int,
        location: SourceLocation,
        accepted: Callable[[Link], Any],
        *,
        ssl: SSLContext | None,
        pending: int,
        chunk: int,
        ready: Callable[[str, int], object] | None,
    ) -> None:
        self._host = host
        self._port = port
        self._location = location
        self._accepted = accepted
        self._ssl = ssl
        self._pending = pending
        self._chunk = chunk
        self._ready = ready
        self._socket: socket.socket | None = None

    async def read(self) -> Any:
        if self._socket is None:
            self._socket = await self._listen()
            if self._ready is not None:
                self._ready(*self._socket.getsockname()[:2])
        connection, (host, port, *_rest) = await _accept(self._socket)
        connection.setblocking(False)
        return self._accepted(self._link(connection, f"from {host}:{port}"))

    async def _listen(self) -> socket.socket:
        import asyncio
        import socket

        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host or None,
                self._port,
                family=0 if self._host else socket.AF_INET,
                type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE,
            )
            family, _type, _protocol, _name, address = found[0]
            listening = socket.create_server(address[:2], family=family, backlog=self._pending)
        except (OSError, UnicodeError) as error:
            raise ConnectionFailed(
                f"listen() cannot listen on {self._host}:{self._port}",
                where=[self._location],
                why=f"{type(error).__name__}: {error}",
                fix="give an address of this machine and a free port; 0 finds one",
                name=f"{self._host}:{self._port}",
            ) from error
        listening.setblocking(False)
        return listening

    def _link(self, connection: socket.socket, name: str) -> Link:
        async def begin() -> Streams:
            unused.detach()
            try:
                return await _streams(connection, self._ssl, self._chunk)
            except BaseException as error:
                connection.close()
                if not isinstance(error, OSError):
                    raise
                raise ConnectionFailed(
                    f"the connection {name} could not be begun",
                    where=[self._location],
                    why=f"{type(error).__name__}: {error}",
                    fix="with ssl, the other side must use TLS too, and know the certificate",
                    name=name,
                ) from error

        link = Link(name, self._location, begin)
        unused = link.discard = weakref.finalize(link, connection.close)
        return link

    async def close(self, cause: End) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Stop listening."""
        listening, self._socket = self._socket, None
        if listening is not None:
            listening.close()


async def _accept(listening: socket.socket) -> tuple[socket.socket, Any]:
    """The next connection. What is cancelled is the wait, never the taking: none gets lost."""
    import asyncio
    import errno

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
    import asyncio

    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(listening, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(listening)


async def _streams(connection: socket.socket, ssl: SSLContext | None, chunk: int) -> Streams:
    import asyncio

    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=chunk, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, connection, ssl=ssl, ssl_shutdown_timeout=GOODBYE if ssl else None
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
