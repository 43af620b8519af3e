"""defer: a piece that is connected later."""

from __future__ import annotations

from typing import Any, overload

from penstock.errors import NotComposable, SourceLocation
from penstock.pull.deferred.duplex import DeferredDuplex
from penstock.pull.deferred.sink import DeferredSink
from penstock.pull.deferred.source import DeferredSource
from penstock.pull.deferred.transformer import DeferredTransformer
from penstock.pull.pieces import Duplex, Sink, Source, Transformer


@overload
def defer(kind: type[Source] = Source, *, width: int = 0) -> DeferredSource: ...
@overload
def defer(kind: type[Transformer], *, width: int = 0) -> DeferredTransformer: ...
@overload
def defer(kind: type[Sink]) -> DeferredSink: ...
@overload
def defer(kind: type[Duplex], *, width: int = 0) -> DeferredDuplex: ...
def defer(kind: Any = Source, *, width: int = 0) -> Any:
    """A piece of this kind that stands in pipelines at once, and is connected by `handle.resolve(piece)`.

    kind:  `Source`, `Transformer`, `Sink` or `Duplex`.
    width: requests that it lets wait at once, where what it will be can work on several.

    Requests wait until then, in order, an abort as well. Nothing is opened before. `handle.abort(error)`
    in place of `resolve` ends both sides, without `error` as an abort does. One or the other, once;
    each run opens the piece anew, before and after. To be called in the thread of the pipeline.

    >>> from penstock.pull import Source, collect, pull, values
    >>> later = defer(Source)
    >>> run = pull(later, collect()).start()
    >>> later.resolve(values([7, 8]))
    >>> run.result()
    [7, 8]
    """
    location = SourceLocation.of_caller()
    if kind is Source:
        return DeferredSource(location, width)
    if kind is Transformer:
        return DeferredTransformer(location, width)
    if kind is Sink:
        return DeferredSink(location)
    if kind is Duplex:
        return DeferredDuplex(location, width)
    raise NotComposable(
        f"defer() of {_called(kind)}, which is no kind of piece",
        where=[location],
        fix="defer(Source), defer(Transformer), defer(Sink) or defer(Duplex)",
    )


def _called(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else f"a value of type {type(kind).__name__}"
