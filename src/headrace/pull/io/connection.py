"""`Connection`: a socket, a process or a stream as two halves, source and sink, that end independently."""

from __future__ import annotations

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar, Literal

from headrace.errors import SourceLocation
from headrace.pull.errors import AlreadyUsed, ConnectionLost
from headrace.pull.io.octets import CHUNK
from headrace.pull.protocol import End

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
        """Return the failure to report for an error of reading."""

    @abstractmethod
    def refused(self, error: OSError) -> Exception | None:
        """Return the failure to report for an error of writing; None if the other side just wants no more."""

    @abstractmethod
    async def end_half(self, half: Half) -> None:
        """End a half and wait until everything that closes with it has closed. Raises if closing fails."""

    @abstractmethod
    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        """Signal the end of writing to the other side, and end the sink's half."""

    @abstractmethod
    async def gone(self) -> None:
        """Wait until the other side wants no more input. Raises if the connection is lost."""

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
