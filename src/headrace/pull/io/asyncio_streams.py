"""`from_stream`, `to_stream`: read and write asyncio streams opened by the caller."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import check_integer
from headrace.pull.io.byte_source import opens_byte_source
from headrace.pull.io.connection import Connection, Half, Streams, close_abruptly
from headrace.pull.io.halves import SourceHalf, open_writing
from headrace.pull.io.octets import CHUNK
from headrace.pull.modules import Sink, Source
from headrace.pull.protocol import End


def from_stream(reader: asyncio.StreamReader, *, chunk: int = CHUNK) -> Source:
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
    return Source.of("from_stream", read, linear=True)


def to_stream(writer: asyncio.StreamWriter, *, close: bool = True) -> Sink:
    """Write bytes to an asyncio stream; the result is the number of bytes.

    The sink asks for the next value when the stream's buffer is below its limit. At the end it flushes and
    closes the stream. If it fails or is stopped, it resets the connection, so that the other side doesn't
    mistake a part for the whole. A broken stream fails upstream with `ConnectionLost`.

    close: False leaves the stream open for its owner in all cases; then only writing detects a broken one.
    """
    location = SourceLocation.of_caller()
    stream = (None, writer)
    write = open_writing(lambda _module: _GivenStream("to_stream", location, stream, close=close))
    return Sink.of("to_stream", write)


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
