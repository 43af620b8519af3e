"""A duplex that is connected later."""

from __future__ import annotations

from penstock.errors import SourceLocation
from penstock.pull.deferred.later import Later
from penstock.pull.deferred.sink import DeferredSink
from penstock.pull.deferred.source import DeferredSource
from penstock.pull.pieces import Duplex


class DeferredDuplex(Duplex):
    """A duplex, and the handle to say later which; see `defer`."""

    __slots__ = ("_later",)
    _later: Later[Duplex]

    def __init__(self, location: SourceLocation, width: int) -> None:
        super().__init__(DeferredSource(location, width), DeferredSink(location), "defer", location)
        object.__setattr__(self, "_later", Later(Duplex, location))

    def resolve(self, duplex: Duplex) -> None:
        """This is the duplex."""
        self._later.resolve(duplex)
        self._halves[0].resolve(duplex.source)
        self._halves[1].resolve(duplex.sink)

    def abort(self, error: Exception | None = None) -> None:
        """There will be no duplex: its source and its sink are aborted."""
        for half in self._halves:
            half.abort(error)

    @property
    def _halves(self) -> tuple[DeferredSource, DeferredSink]:
        assert isinstance(self.source, DeferredSource)
        assert isinstance(self.sink, DeferredSink)
        return self.source, self.sink
