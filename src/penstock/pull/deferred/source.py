"""A source that is connected later."""

from __future__ import annotations

from penstock.errors import SourceLocation
from penstock.pull.deferred.later import Later
from penstock.pull.deferred.requests import Requests
from penstock.pull.module import Module
from penstock.pull.pieces import Source, SourcePart
from penstock.pull.protocol import BatchRead
from penstock.pull.sources.empty import empty
from penstock.pull.sources.error import error as failed


class DeferredSource(Source):
    """A source, and the handle to say later which; see `defer`."""

    __slots__ = ("_later",)
    _later: Later[Source]

    def __init__(self, location: SourceLocation, width: int) -> None:
        later = Later(Source, location)

        def open(module: Module) -> BatchRead:
            requests = Requests()
            later.when(module, lambda source: requests.connect(module.open(source)))
            return requests.read

        super().__init__(SourcePart("defer", location, open, batches=True, width=width))
        object.__setattr__(self, "_later", later)

    def resolve(self, source: Source) -> None:
        """This is the source."""
        self._later.resolve(source)

    def abort(self, error: Exception | None = None) -> None:
        """There will be no source: the stream is empty, or fails with `error`."""
        self.resolve(empty() if error is None else failed(error))
