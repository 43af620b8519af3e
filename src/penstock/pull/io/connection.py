"""Connection: bytes each way with something outside, shared by two halves of which each ends by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.errors import AlreadyUsed, ConnectionLost, SourceLocation
from penstock.pull.io.byte_sink import handed_over
from penstock.pull.io.octets import Octets
from penstock.pull.protocol import End

if TYPE_CHECKING:
    import asyncio

Half = Literal["source", "sink"]

Streams = tuple["asyncio.StreamReader", "asyncio.StreamWriter"]


class Connection(ABC):
    """A socket, a process or a stream, opened once, when a half first needs it.

    name, called: its name, and what errors call it. location: the user's line.
    """

    used_again: ClassVar[tuple[str, str, str]] = (
        "a second time",
        "A connection that was accepted is one stream of bytes each way.",
        "use each half in one pipeline, once; tee() gives its values to several",
    )
    """The words of the error for a half that is taken twice."""

    def __init__(self, name: str, called: str, location: SourceLocation) -> None:
        self.name = name
        self.called = called
        self.location = location
        self.failure: Exception | None = None
        """The error that it broke with or was stopped with."""
        self.stopped = False
        """Whether one of the halves closed all of it, before both had ended."""
        self._taken: set[Half] = set()
        self._using: set[Half] = set()
        self._opening: asyncio.Task[Streams] | None = None

    def take(self, half: Half) -> None:
        """Reserve a half for a module. Raise `AlreadyUsed` the second time.

        A half that is not taken when the other one ends counts as ended.
        """
        if half in self._taken:
            again, why, fix = self.used_again
            raise AlreadyUsed(
                f"the {half} of {self.called} is used {again}", where=[self.location], why=why, fix=fix
            )
        self._taken.add(half)
        self._using.add(half)

    async def streams(self) -> Streams | None:
        """The reader and the writer, opened if they are not; None where it was stopped before.

        Raises the error of the opening. Cancelled, it stops waiting and lets the opening go on: the other
        half may wait for it too.
        """
        import asyncio

        if self._opening is None:
            if self.stopped:
                return self._never_opened()
            self._opening = asyncio.create_task(self._open())
        await asyncio.wait({self._opening})
        return self._never_opened() if self._opening.cancelled() else self._opening.result()

    def _never_opened(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _opened(self) -> None:
        """Wait for an opening that is under way, however it ends."""
        import asyncio

        if self._opening is not None:
            await asyncio.wait({self._opening})
            if not self._opening.cancelled():
                self._opening.exception()  # both halves were told, or nobody waits for it

    def stop(self, cause: End) -> None:
        """Close it at once; an error tells the other side that the stream is not whole."""
        if self.failure is None and isinstance(cause, Exception):
            self.failure = cause
        if not self.stopped:
            self.stopped = True
            self._stop(cause)

    def abandon(self) -> None:
        """Let go of it: nobody waits for its end."""
        self.stop(True)

    def lost(
        self, error: Exception | None, why: str = "The other side closed it before this one had ended."
    ) -> ConnectionLost:
        """The error of a connection that broke. why: the reason where there is no error."""
        return ConnectionLost(
            f"{self.called} broke",
            where=[self.location],
            why=why if error is None else f"{type(error).__name__}: {error}",
            fix="connect again where that is right; what was on its way is lost",
            name=self.name,
        )

    @abstractmethod
    async def _open(self) -> Streams: ...

    @abstractmethod
    def _stop(self, cause: End) -> None: ...

    @abstractmethod
    def broken(self, error: OSError) -> Exception:
        """The failure to report for an error of reading."""

    @abstractmethod
    def refused(self, error: OSError) -> Exception | None:
        """The failure to report for an error of writing; None where nothing more is wanted."""

    @abstractmethod
    async def left(self, half: Half) -> None:
        """End a half. Returns when all is closed that closes with it; raises where that is not a good end."""

    @abstractmethod
    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        """Tell the other side that no more will be written, and end the sink's half."""

    @abstractmethod
    async def gone(self) -> None:
        """Wait until the other side wants no more; raise where it is lost."""

    @abstractmethod
    async def closed(self) -> None:
        """Wait until all is closed that closes with the half that has ended."""


class SourceHalf:
    """The `ByteReader` of a connection. chunk: the most bytes of one read."""

    def __init__(self, connection: Connection, chunk: int) -> None:
        self._connection = connection
        self._chunk = chunk
        self._ended = False
        connection.take("source")

    async def read(self) -> bytes:
        connection = self._connection
        streams = await connection.streams()
        try:
            data = b"" if streams is None else await streams[0].read(self._chunk)
        except OSError as error:
            raise connection.broken(error) from error
        if not data:
            self._ended = True
            await connection.left("source")
        return data

    async def close(self, cause: End) -> None:
        self._ended = True
        self._connection.stop(cause)
        await self._connection.closed()

    def cancel(self) -> None:
        if not self._ended:
            self._connection.abandon()


class SinkHalf:
    """The `ByteWriter` of a connection."""

    _writer: asyncio.StreamWriter

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ended = False
        self.gone = connection.gone
        self.closed = connection.closed
        connection.take("sink")

    async def open(self) -> bool:
        streams = await self._connection.streams()
        if streams is None:
            return False
        self._writer = streams[1]
        return True

    def write(self, data: Octets) -> Coroutine[Any, Any, None] | None:
        return handed_over(self._writer, data, self._flush)

    async def _flush(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            failure = self._connection.refused(error)
            if failure is not None:
                raise failure from error

    async def finish(self) -> None:
        await self._flush()
        await self._connection.finish_writing(self._writer)
        self._ended = True

    def stop(self, cause: End) -> None:
        if not self._ended:
            self._ended = True
            self._connection.stop(cause)

    def cancel(self) -> None:
        self.stop(True)


async def loss(writer: asyncio.StreamWriter) -> Exception | None:
    """Wait until a stream is closed; the error that it was lost with, if any."""
    try:
        await writer.wait_closed()
    except OSError as error:
        return error
    return None


def cut_off(writer: asyncio.StreamWriter, *, failed: bool) -> None:
    """Close a stream at once. failed: have the other side see that it broke, not that it ended."""
    import socket
    import struct

    connection = writer.get_extra_info("socket")
    if failed and connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
