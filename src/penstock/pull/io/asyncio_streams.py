"""from_stream, to_stream: the two kinds of streams of asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SourceLocation
from penstock.pull.io.byte_sink import writing
from penstock.pull.io.byte_source import reading
from penstock.pull.io.connection import Connection, Half, SinkHalf, SourceHalf, Streams, cut_off, loss
from penstock.pull.options import whole
from penstock.pull.pieces import Sink, Source
from penstock.pull.protocol import End

if TYPE_CHECKING:
    import asyncio


CHUNK = 65536
"""Bytes that are read at once where nothing is said."""


def from_stream(reader: asyncio.StreamReader, *, chunk: int = CHUNK) -> Source:
    """The bytes that come from a stream of asyncio, at most `chunk` of them at a time, read when asked for.

    An abort cancels a read that waits, and leaves the stream as it is, with what was not read: it is
    its owner who closes it, and it may be read on. What it fails with is `ConnectionLost`. To be run in the
    event loop of the stream.
    """
    whole("from_stream", "chunk", chunk, least=1)
    location = SourceLocation.of_caller()
    return Source.of(
        "from_stream",
        reading(
            lambda _module: SourceHalf(
                _GivenStream("from_stream", location, (reader, None), close=False), chunk
            )
        ),
        linear=True,
    )


def to_stream(writer: asyncio.StreamWriter, *, close: bool = True) -> Sink:
    """Write bytes into a stream of asyncio; the result is how many.

    It asks for the next value when the buffer of the stream is below its limit. When it is done, the
    stream is closed, and all of it handed over; where it fails or is stopped, it is cut off, so that the
    other side does not take a part for the whole. A stream that breaks fails upstream with `ConnectionLost`.

    close: False leaves the stream open in all cases: its end is for its owner to say. That it broke is then
           noticed only by writing.
    """
    location = SourceLocation.of_caller()
    return Sink.of(
        "to_stream",
        writing(lambda _module: SinkHalf(_GivenStream("to_stream", location, (None, writer), close=close))),
    )


class _GivenStream(Connection):
    """A stream of somebody else's, of which one half is used. close: whether its end is ours to say."""

    def __init__(self, name: str, location: SourceLocation, streams: Any, *, close: bool) -> None:
        super().__init__(name, f"the stream of {name}()", location)
        self._streams = streams
        self._close = close
        self._lost: asyncio.Task[Exception | None] | None = None

    async def _open(self) -> Streams:
        import asyncio

        if self._close:
            self._lost = asyncio.create_task(loss(self._streams[1]))
        return self._streams

    def _stop(self, cause: End) -> None:
        if self._close:
            cut_off(self._streams[1], failed=True)

    def broken(self, error: OSError) -> Exception:
        return self.lost(error)

    refused = broken

    async def left(self, half: Half) -> None:
        pass

    async def finish_writing(self, writer: asyncio.StreamWriter) -> None:
        if self._lost is not None:
            writer.close()
            await self.closed()
            error = self._lost.result()
            if error is not None:
                raise self.lost(error)

    async def gone(self) -> None:
        import asyncio

        if self._lost is None:
            await asyncio.get_running_loop().create_future()  # not to be known
        else:
            await self.closed()
            raise self.lost(self._lost.result())

    async def closed(self) -> None:
        import asyncio

        if self._lost is not None:
            await asyncio.wait({self._lost})
