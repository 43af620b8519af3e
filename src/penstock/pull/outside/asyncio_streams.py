"""from_stream, to_stream: the two kinds of streams of asyncio."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectionLost, SourceLocation
from penstock.pull.options import whole
from penstock.pull.outside.link import loss, reset
from penstock.pull.outside.octets import Octets
from penstock.pull.outside.reading import reading
from penstock.pull.outside.writing import handed_over, writing
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
    return Source.of("from_stream", reading(lambda _module: _From(reader, chunk, location)), linear=True)


def to_stream(writer: asyncio.StreamWriter, *, close: bool = True) -> Sink:
    """Write bytes into a stream of asyncio; the result is how many.

    It asks for the next value when the buffer of the stream is below its limit. When it is done, the
    stream is closed, and all of it handed over; where it fails or is stopped, it is cut off, so that the
    other side does not take a part for the whole. A stream that breaks fails upstream with `ConnectionLost`.

    close: False leaves the stream open in all cases: its end is for its owner to say. That it broke is then
           noticed only by writing.
    """
    location = SourceLocation.of_caller()
    return Sink.of("to_stream", writing(lambda _module: _To(writer, close, location)))


class _From:
    """The `Inlet` of `from_stream`."""

    def __init__(self, reader: asyncio.StreamReader, chunk: int, location: SourceLocation) -> None:
        self._reader = reader
        self._chunk = chunk
        self._location = location

    async def read(self) -> bytes:
        try:
            return await self._reader.read(self._chunk)
        except OSError as error:
            raise _broken("from_stream", self._location, error) from error

    async def close(self, cause: End) -> None:
        pass

    def cancel(self) -> None:
        pass


class _To:
    """The `ByteWriter` of `to_stream`."""

    def __init__(self, writer: asyncio.StreamWriter, close: bool, location: SourceLocation) -> None:
        self._writer = writer
        self._close = close
        self._location = location
        self._ended = False
        self._lost: asyncio.Task[Exception | None] | None = None

    async def open(self) -> bool:
        import asyncio

        if self._close:
            self._lost = asyncio.create_task(loss(self._writer))
        return True

    def write(self, data: Octets) -> Coroutine[Any, Any, None] | None:
        return handed_over(self._writer, data, self._flush)

    async def _flush(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise _broken("to_stream", self._location, error) from error

    async def finish(self) -> None:
        await self._flush()
        if self._lost is not None:
            self._writer.close()
            await self._gone()
            error = self._lost.result()
            if error is not None:
                raise _broken("to_stream", self._location, error) from error
        self._ended = True

    async def gone(self) -> None:
        import asyncio

        if self._lost is None:
            await asyncio.get_running_loop().create_future()  # not to be known
        else:
            await self._gone()
            raise _broken("to_stream", self._location, self._lost.result())

    async def _gone(self) -> None:
        import asyncio

        if self._lost is not None:
            await asyncio.wait({self._lost})

    def stop(self, cause: End) -> None:
        if not self._ended:
            self._ended = True
            if self._close:
                reset(self._writer)
                self._writer.transport.abort()

    async def closed(self) -> None:
        await self._gone()

    def cancel(self) -> None:
        self.stop(True)


def _broken(name: str, location: SourceLocation, error: Exception | None) -> ConnectionLost:
    return ConnectionLost(
        f"the stream of {name}() broke",
        where=[location],
        why=f"{type(error).__name__}: {error}"
        if error
        else "The other side closed it before this one had ended.",
        fix="connect again where that is right; what was on its way is lost",
        name=name,
    )
