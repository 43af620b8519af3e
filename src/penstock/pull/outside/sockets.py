"""connect, listen: connections over TCP, with TLS where that is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectionFailed, SourceLocation
from penstock.pull.module import Module
from penstock.pull.options import port as check_port
from penstock.pull.options import whole
from penstock.pull.outside.halves import SinkHalf, SourceHalf
from penstock.pull.outside.link import GOODBYE, Link, Streams
from penstock.pull.outside.listener import Listener
from penstock.pull.outside.reading import reading
from penstock.pull.outside.writing import writing
from penstock.pull.pieces import Duplex, Sink, SinkPart, Source, SourcePart
from penstock.pull.synchronous import IN_A_TASK, synchronous

if TYPE_CHECKING:
    from ssl import SSLContext

CHUNK = 65536
"""Bytes that are read at once where nothing is said."""

PENDING = 16
"""Connections that may wait to be accepted where nothing is said."""


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
        import asyncio

        try:
            if not ssl:
                return await asyncio.open_connection(host, port, limit=chunk)
            return await asyncio.open_connection(
                host, port, limit=chunk, ssl=ssl, ssl_shutdown_timeout=GOODBYE
            )
        except (OSError, UnicodeError) as error:  # the latter of a name that is too long
            raise ConnectionFailed(
                f"connect() cannot reach {name}",
                where=[location],
                why=f"{type(error).__name__}: {error}",
                fix="see that the server listens there, and that its certificate is known where ssl is said",
                name=name,
            ) from error

    def link(module: Module) -> Link:
        return module.shared(owner, lambda: Link(name, location, make))

    source = Source.of("connect", reading(lambda module: SourceHalf(link(module), chunk)), linear=True)
    sink = Sink.of("connect", writing(lambda module: SinkHalf(link(module))))
    return Duplex(source, sink, "connect", location)


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

    def accepted(link: Link) -> Duplex:
        def source(_module: Module) -> SourceHalf:
            return SourceHalf(link, chunk)

        def sink(_module: Module) -> SinkHalf:
            return SinkHalf(link)

        return Duplex(
            Source(SourcePart(link.name, location, reading(source), linear=True)),
            Sink(SinkPart(link.name, location, writing(sink))),
            link.name,
            location,
        )

    def listener(_module: Module) -> Any:
        return Listener(host, port, location, accepted, ssl=ssl, pending=pending, chunk=chunk, ready=ready)

    return Source.of("listen", reading(listener), linear=True)


def address(host: str, port: int) -> str:
    """As it is written in errors."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
