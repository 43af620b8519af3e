"""Halves: the two ends of a link, as sources and sinks use them."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from penstock.pull.outside.link import Link
from penstock.pull.outside.octets import Octets
from penstock.pull.outside.writing import handed_over
from penstock.pull.protocol import End

if TYPE_CHECKING:
    import asyncio


class SourceHalf:
    """The `Inlet` of a link. chunk: the most bytes of one read."""

    def __init__(self, link: Link, chunk: int) -> None:
        self._link = link
        self._chunk = chunk
        self._ended = False
        link.take("source")

    async def read(self) -> bytes:
        link = self._link
        streams = await link.streams()
        if streams is None:
            raise link.broken(None)
        try:
            data = await streams[0].read(self._chunk)
        except OSError as error:
            raise link.broken(error) from error
        if data:
            return data
        if link.stopped:
            raise link.broken(None)  # it looks like an end and is none
        self._ended = True
        await link.left("source")
        return b""

    async def close(self, cause: End) -> None:
        self._ended = True
        self._link.stop(cause)
        await self._link.closed()

    def cancel(self) -> None:
        if not self._ended:
            self._link.stop(True)


class SinkHalf:
    """The `ByteWriter` of a link."""

    _writer: asyncio.StreamWriter

    def __init__(self, link: Link) -> None:
        self._link = link
        self._ended = False
        link.take("sink")

    async def open(self) -> bool:
        streams = await self._link.streams()
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
            if not self._stopped:
                raise self._link.broken(error) from error

    @property
    def _stopped(self) -> bool:
        """Whether nothing more is wanted: the other half closed the connection, without an error."""
        return self._link.stopped and self._link.failure is None

    async def finish(self) -> None:
        await self._flush()
        if not self._stopped:
            if self._writer.can_write_eof():
                self._writer.write_eof()
            await self._link.left("sink")
        self._ended = True

    async def gone(self) -> None:
        await self._link.gone()

    def stop(self, cause: End) -> None:
        if not self._ended:
            self._ended = True
            self._link.stop(cause)

    async def closed(self) -> None:
        await self._link.closed()

    def cancel(self) -> None:
        self.stop(True)
