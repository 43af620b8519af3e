"""Servers on this machine that behave as a test wants, and what is left open behind them."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]

PATIENCE = 30.0
"""Seconds after which a test that hangs fails."""


def certificate() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server and for its client."""
    file = Path(__file__).with_name("localhost.pem")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cafile=str(file))


class Server:
    """host, port: of the server. ended: set when a handler has returned; `error` is what it raised."""

    def __init__(self) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.ended = asyncio.Event()
        self.error: Exception | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> AsyncIterator[Server]:
    """A server that lets `handler` have each connection, and closes it then."""
    server = Server()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except OSError as error:
            server.error = error
        finally:
            server.ended.set()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async with await asyncio.start_server(handle, server.host, 0, **options) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server
        await server.ended.wait()


def reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection off."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def turns(count: int = 20) -> None:
    """Let everything else have its turn so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.001)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop. Afterwards no descriptor and no task may be left."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(PATIENCE) as patience:
                await test(*args, **kwargs)
            assert not patience.expired()
            await turns()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        gc.collect()
        before = descriptors()
        asyncio.run(main())
        gc.collect()
        assert descriptors() == before

    return run


def descriptors() -> int:
    """How many files, sockets and pipes this process has open."""
    return len(os.listdir("/proc/self/fd"))
