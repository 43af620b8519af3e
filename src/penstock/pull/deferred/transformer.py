"""A transformer that is connected later."""

from __future__ import annotations

from penstock.errors import SourceLocation
from penstock.pull.deferred.later import Later
from penstock.pull.deferred.requests import Requests
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Transformer, TransformerPart, open_through
from penstock.pull.protocol import BatchRead, Read
from penstock.pull.transformers.take import take


class DeferredTransformer(Transformer):
    """A transformer, and the handle to say later which; see `defer`."""

    __slots__ = ("_later",)
    _later: Later[Transformer]

    def __init__(self, location: SourceLocation, width: int) -> None:
        later = Later(Transformer, location)

        def open(module: Module, edge: Edge) -> BatchRead:
            requests = Requests()
            later.when(module, lambda piece: requests.connect(_opened(module, edge, piece)))
            return requests.read

        super().__init__((TransformerPart("defer", location, open, batches=True, width=width),))
        object.__setattr__(self, "_later", later)

    def resolve(self, transformer: Transformer) -> None:
        """This is the transformer."""
        self._later.resolve(transformer)

    def abort(self, error: Exception | None = None) -> None:
        """There will be no transformer: the next request aborts upstream, or fails it with `error`."""
        self.resolve(take(0) if error is None else _failing(error))


def _opened(module: Module, edge: Edge, piece: Transformer) -> Edge:
    for pipeline in piece.beside:
        pipeline.open_in(module.run)
    module.inputs.pop(edge, None)
    end = open_through(module.run, edge, piece.then)
    module.connect(end)
    return end


def _failing(error: Exception) -> Transformer:
    def open(_module: Module, _edge: Edge) -> Read:
        raise error

    return Transformer.of("defer", open)
