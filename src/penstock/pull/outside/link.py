"""Link: a connection of two halves, of which each ends by itself, and which is closed when both have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from penstock.errors import AlreadyUsed, ConnectionLost, SourceLocation
from penstock.pull.protocol import End

if TYPE_CHECKING:
    import asyncio

Half = Literal["source", "sink"]

GOODBYE = 5.0
"""Seconds that the other side may take to confirm the end of a connection with TLS."""

Streams = tuple["asyncio.StreamReader", "asyncio.StreamWriter"]


class Link:
    """What the source and the sink of a connection share.

    name:    what it is called in errors. location: the user's line.
    connect: makes the connection; called once, when a half needs it. Raises an error of ours.
    discard: called where it is stopped before it was made.

    A half that is not taken when the other one ends counts as ended.
    """

    def __init__(
        self,
        name: str,
        location: SourceLocation,
        connect: Callable[[], Awaitable[Streams]],
        discard: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self.location = location
        self.failure: Exception | None = None
        """What it was stopped with, or lost."""
        self.stopped = False
        """Whether one of the halves closed all of it, before both had ended."""
        self.discard = discard
        self._connect = connect
        self._taken: set[Half] = set()
        self._open: set[Half] = set()
        self._writer: asyncio.StreamWriter | None = None
        self._connecting: asyncio.Task[Streams] | None = None
        self._lost: asyncio.Task[Exception | None] | None = None

    def take(self, half: Half) -> None:
        """A module stands for this half from now on. Raises `AlreadyUsed` the second time."""
        if half in self._taken:
            raise AlreadyUsed(
                f"the {half} of the connection {self.name} is used a second time",
                where=[self.location],
                why="A connection that was accepted is one stream of bytes each way.",
                fix="use each half in one pipeline, once; tee() gives its values to several",
            )
        self._taken.add(half)
        self._open.add(half)

    # -- made -----------------------------------------------------------------------------------

    async def streams(self) -> Streams | None:
        """The connection, made if it is not; None where it was stopped before. Raises what it failed with.

        Cancelled, it leaves off waiting, but does not cancel the connection: the other half may wait too.
        """
        import asyncio

        if self._connecting is None:
            if self.stopped:
                return self._never_made()
            self._connecting = asyncio.create_task(self._make())
        await asyncio.wait({self._connecting})
        return self._never_made() if self._connecting.cancelled() else self._connecting.result()

    async def _make(self) -> Streams:
        import asyncio

        reader, self._writer = await self._connect()
        # What was written is with the system, or is waited for: nothing is kept in between.
        # (With a limit of 0, TLS would hold back when there is nothing to wait for.)
        self._writer.transport.set_write_buffer_limits(high=1, low=0)
        self._lost = asyncio.create_task(loss(self._writer))
        return reader, self._writer

    def _never_made(self) -> None:
        if self.failure is not None:
            raise self.failure

    # -- ended ----------------------------------------------------------------------------------

    async def left(self, half: Half) -> None:
        """This half has ended as it should. Returns when all is closed, if the other one has too."""
        self._open.discard(half)
        if not self._open:
            if self._writer is not None:
                self._writer.close()
            await self.closed()

    def stop(self, cause: End) -> None:
        """Close it at once; with an error the other side is told that the stream is not whole."""
        if self.failure is None and isinstance(cause, Exception):
            self.failure = cause
        if self.stopped:
            return
        self.stopped = True
        if self._writer is not None:
            if isinstance(cause, Exception):
                reset(self._writer)
            self._writer.transport.abort()
        elif self._connecting is not None:
            self._connecting.cancel()
        else:
            self.discard()

    async def closed(self) -> None:
        """Returns when it is closed, by whomever; at once where it is used on, or was never made."""
        if not self._open or self.stopped:
            await self._gone()

    async def gone(self) -> None:
        """Returns when we have stopped it, raises `ConnectionLost` when it broke."""
        await self._gone()
        if self.failure is not None or not self.stopped:
            raise self.broken(None if self._lost is None else self._lost.result())

    async def _gone(self) -> None:
        import asyncio

        if self._connecting is not None:
            await asyncio.wait({self._connecting})
            if not self._connecting.cancelled():
                self._connecting.exception()  # both halves were told, or nobody waits for it
        if self._lost is not None:
            await asyncio.wait({self._lost})

    def broken(self, error: Exception | None) -> Exception:
        """What it failed with, said by the half that learns of it first. Closes what is left of it."""
        if self.failure is None:
            self.failure = ConnectionLost(
                f"the connection {self.name} broke",
                where=[self.location],
                why=_reason(error, stopped=self.stopped),
                fix="connect again where that is right; what was on its way is lost",
                name=self.name,
            )
        self.stop(self.failure)
        return self.failure


def _reason(error: Exception | None, *, stopped: bool) -> str:
    if error is not None:
        return f"{type(error).__name__}: {error}"
    if stopped:
        return "The pipeline that uses its other half was stopped."
    return "The other side closed it before this one had ended."


async def loss(writer: asyncio.StreamWriter) -> Exception | None:
    """What the connection was lost with; None where it was closed."""
    try:
        await writer.wait_closed()
    except OSError as error:
        return error
    return None


def reset(writer: asyncio.StreamWriter) -> None:
    """Have the system tell the other side that the connection broke, not that it ended."""
    import socket
    import struct

    connection = writer.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
