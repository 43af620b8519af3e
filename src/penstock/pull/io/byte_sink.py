"""Sink module whose bytes go into an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from penstock.pull.edge import Edge
from penstock.pull.io.octets import Octets, octets
from penstock.pull.module import Module
from penstock.pull.protocol import End
from penstock.pull.sinks.reading import Working

if TYPE_CHECKING:
    from asyncio import StreamWriter


class ByteWriter(Protocol):
    """Where bytes go: one half of a connection, or all there is of one."""

    async def open(self) -> bool:
        """Returns when it can be written to; False where nothing is wanted."""
        ...

    def write(self, data: Octets) -> Coroutine[Any, Any, None] | None:
        """Write; what is to be awaited before more is written, if anything is."""

    async def finish(self) -> None:
        """There is no more. Returns when all was handed over, and that is closed which closes with it.

        May be cancelled; `stop` is called then.
        """

    async def gone(self) -> None:
        """Returns when the other side wants no more, raises when it is lost; else neither."""

    def stop(self, cause: End) -> None:
        """Write no more: the stream is not whole, for this reason. Not called after `finish` has returned."""

    async def closed(self) -> None:
        """Returns when that is closed which closes with it, after `finish` or `stop`."""

    def cancel(self) -> None:
        """No one waits any more: let go what is still open. Always called, also after `finish`."""


def handed_over(
    writer: StreamWriter, data: Octets, flush: Callable[[], Coroutine[Any, Any, None]]
) -> Coroutine[Any, Any, None] | None:
    """Give bytes to a stream; where they are not all on their way, `flush()` is to be awaited."""
    transport = writer.transport
    if not transport.is_closing():
        writer.write(data)
        if not transport.get_write_buffer_size():
            return None
    return flush()


def writing(make: Callable[[Module], ByteWriter]) -> Callable[[Module, Edge], None]:
    """What opens the module in a run. The result is how many bytes were written.

    It asks when it can be written to, and again when what it was given is on its way. Where the
    other side is lost it fails upstream; where that wants no more, it aborts it.
    """

    def open(module: Module, edge: Edge) -> None:
        _Writing(module, edge, make(module)).start()

    return open


class _Writing:
    def __init__(self, module: Module, edge: Edge, outlet: ByteWriter) -> None:
        self._module = module
        self._edge = edge
        self._outlet = outlet
        self._working = Working(edge, self._write, self._over)
        self._written = 0
        self._finishing = False

    def start(self) -> None:
        self._module.hold(self._outlet)
        self._module.closing(self._close)
        self._module.spawn(self._outlet.open(), self._opened)

    def _opened(self, error: Exception | None, wanted: bool) -> None:
        if error is not None:
            self._fail(error)
            return
        if not wanted:
            self._module.done(0)
            return
        self._module.spawn(self._outlet.gone(), self._gone)
        self._working.start()

    def _write(self, value: Any, finished: Callable[[], None]) -> None:
        def flushed(error: Exception | None, _result: None) -> None:
            if error is not None:
                self._fail(error)
            else:
                finished()

        try:
            data = octets(self._module, value)
            flushing = self._outlet.write(data) if data else None
        except Exception as error:
            self._fail(error)
            return
        self._written += len(data)
        if flushing is None:
            finished()
        else:
            self._module.spawn(flushing, flushed)

    def _over(self, end: End) -> None:
        if end is True:
            self._finishing = True
            self._module.spawn(self._outlet.finish(), self._finished)
        else:
            self._fail(end)

    def _finished(self, error: Exception | None, _result: None) -> None:
        if error is not None:
            self._fail(error)
        else:
            self._module.done(self._written)

    def _gone(self, error: Exception | None, _result: None) -> None:
        if self._finishing:
            return  # `finish` knows more
        if error is not None:
            self._fail(error)
        else:
            self._working.stop()
            self._edge(True, lambda end, _value=None, /: self._over(end or True))

    def _fail(self, error: Exception) -> None:
        self._working.stop()
        self._outlet.stop(error)
        self._module.fail(error, self._written)

    def _close(self, _error: Exception | None, closed: Callable[..., object]) -> None:
        # Not as a task of the module: those are cancelled when it has failed.
        self._module.run.runtime.spawn(self._outlet.closed(), lambda error, _result: closed(error))
