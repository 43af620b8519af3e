"""Connection: bytes to and from a socket, a process or a stream, as two halves that end independently."""

from __future__ import annotations

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar, Literal

from penstock.errors import AlreadyUsed, ConnectionLost, SourceLocation
from penstock.pull.io.octets import CHUNK
from penstock.pull.protocol import End

Half = Literal["source", "sink"]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Connection(ABC):
    """A socket, a process or a stream, opened once, when a half first needs it.

    name, called: its name, and how errors refer to it. location: the user's line.
    chunk: most bytes of one read.
    """

    used_again: ClassVar[tuple[str, str, str]] = (
        "a second time",
        "A connection that was accepted is one stream of bytes each way.",
        "use each half in one pipeline, once; tee() gives its values to several",
    )
    """How often, why and the fix, for the error of a half that is taken twice."""

    def __init__(self, name: str, called: str, location: SourceLocation, chunk: int = CHUNK) -> None:
        self.name = name
        self.called = called
        self.location = location
        self.chunk = chunk
        self.failure: Exception | None = None
        """The error it broke with or was stopped with."""
        self.stopped = False
        """Whether one half closed the whole connection before both had ended."""
        self._taken: set[Half] = set()
        self._using: set[Half] = set()
        self._opening: asyncio.Task[Streams] | None = None
        self._loss: asyncio.Task[Exception | None] | None = None
        """Ends when the writer is closed, with the error that closed it; see `_watch`."""

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
        """The reader and the writer, opened on first use; None if it was stopped before.

        Raises the error of the opening. Cancelling the call leaves the opening under way, for the other half.
        """
        if self._opening is None and not self.stopped:
            self._opening = asyncio.create_task(self._open())
        await settled(self._opening)
        if self._opening is not None and not self._opening.cancelled():
            return self._opening.result()
        if self.failure is not None:
            raise self.failure
        return None

    def stop(self, cause: End) -> None:
        """Close the connection at once; if the cause is an error, let the other side see that it broke."""
        if self.failure is None and isinstance(cause, Exception):
            self.failure = cause
        if not self.stopped:
            self.stopped = True
            self._stop(cause)

    def abandon(self) -> None:
        """Close the connection without anybody to wait for it."""
        self.stop(True)

    def lost(
        self, error: Exception | None, why: str = "The other side closed it before this side had ended."
    ) -> ConnectionLost:
        """Make the error of a broken connection. why: the reason if no `error` says it."""
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
        await settled(self._opening)
        await settled(self._loss)

    @abstractmethod
    async def _open(self) -> Streams: ...

    @abstractmethod
    def _stop(self, cause: End) -> None: ...

    @abstractmethod
    def broken(self, error: OSError) -> Exception:
        """The failure to report for an error of reading."""

    @abstractmethod
    def refused(self, error: OSError) -> Exception | None:
        """The failure to report for an error of writing; None if the other side just wants no more."""

    @abstractmethod
    async def left(self, half: Half) -> None:
        """End a half, and wait for everything that closes with it; raise unless that ended well."""

    @abstractmethod
    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        """Tell the other side that no more will be written, and end the sink's half."""

    @abstractmethod
    async def gone(self) -> None:
        """Wait until the other side wants no more; raise if it is lost."""

    @abstractmethod
    async def closed(self) -> None:
        """Wait until everything is closed that closes with the half that has ended."""


async def settled(task: asyncio.Task[object] | None) -> None:
    """Wait for a task, if there is one, however it ends. Its error counts as seen."""
    if task is not None:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()


def cut_off(writer: asyncio.StreamWriter, *, failed: bool) -> None:
    """Close a stream at once. failed: reset the connection, so that the other side sees it broke."""
    connection = writer.get_extra_info("socket")
    if failed and connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
