"""Bridges: pieces of one form as pieces of the other, so that a pipeline may have both.

A bridge answers each request by what it gets for it and adds nothing: on both of its sides the
same happens. An indication is a request with an answer beyond it, as beyond every module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from penstock.errors import SourceLocation
from penstock.pull import edge as callback_edge
from penstock.pull import module as callback_module
from penstock.pull import pieces as callback
from penstock.pull.compose import join
from penstock.pull.dataflow.edge import Edge, Requests, tracked
from penstock.pull.dataflow.messages import Abort, Ask, Fail, Value, end_of, ending_of
from penstock.pull.dataflow.module import Module, Told
from penstock.pull.dataflow.pieces import Piece, Sink, Source, Transformer, open_steps
from penstock.pull.protocol import AnswerTo, End, Read

if TYPE_CHECKING:
    from penstock.pull.run import Run


@overload
def as_callback(piece: Source) -> callback.Source: ...
@overload
def as_callback(piece: Transformer) -> callback.Transformer: ...
@overload
def as_callback(piece: Sink) -> callback.Sink: ...
def as_callback(piece: Piece) -> callback.Source | callback.Transformer | callback.Sink:
    """A piece of dataflow threads as one of the callback form, for `penstock.pull.pull`.

    >>> from penstock.pull import collect, pull
    >>> from penstock.pull.dataflow import values
    >>> pull(as_callback(values([1, 2])), collect()).run()
    [1, 2]
    """
    if isinstance(piece, Source):
        return callback.Source.of(piece.name, lambda module: _reader(module, piece.open_in(module.run)))
    if isinstance(piece, Transformer):
        return callback.Transformer.of(piece.name, partial(_open_transformer, piece), width=piece.width)
    if piece.bridged is None:
        return callback.Sink.of(piece.name, partial(_open_sink, piece))
    if not piece.before:
        return piece.bridged
    return join(
        piece.bridged, as_callback(Transformer(piece.name, piece.location, piece.before, piece.width))
    )


@overload
def as_dataflow(piece: callback.Source) -> Source: ...
@overload
def as_dataflow(piece: callback.Transformer) -> Transformer: ...
@overload
def as_dataflow(piece: callback.Sink) -> Sink: ...
def as_dataflow(piece: callback.Source | callback.Transformer | callback.Sink) -> Piece:
    """A piece of the callback form as one of dataflow threads, for `penstock.pull.dataflow.pull`.

    >>> from penstock.pull import values
    >>> from penstock.pull.dataflow import collect, pull
    >>> pull(as_dataflow(values([1, 2])), collect()).run()
    [1, 2]
    """
    location = SourceLocation.of_caller()
    if isinstance(piece, callback.Source):
        name = piece.part.name
        return Source(name, location, lambda run: _serving(run, piece.open_in(run), name, location))
    if isinstance(piece, callback.Sink):

        def open(run: Run, upstream: Edge, _told: Told | None) -> callback_module.Module:
            return piece.open_in(run, _source_of(upstream).open_in(run))

        return Sink(piece.part.name, location, open, bridged=piece)
    name = piece.then[0].name if piece.then else "nothing"

    def step(run: Run, upstream: Edge) -> Edge:
        return _serving(run, join(piece, _source_of(upstream)).open_in(run), name, location)

    return Transformer(name, location, (step,))


# --- callback above, variables below -------------------------------------------------------


def _serving(run: Run, edge: callback_edge.Edge, name: str, location: SourceLocation) -> Edge:
    """An edge of this form whose requests are asked of an edge of the callback form."""
    module = Module(run, name, location)
    module.connect(edge)
    lower = Edge(module, depth=edge.depth)
    module.thread(_serve(lower.requests, edge))
    return lower


async def _serve(requests: Requests, edge: callback_edge.Edge) -> None:
    async for request in requests:
        edge(None if isinstance(request, Ask) else end_of(request.cause), _binding(request))


def _binding(request: Ask | Abort | Fail) -> AnswerTo:
    def answered(end: End | None, value: Any = None, /) -> None:
        request.answer.bind(Value(value) if end is None else ending_of(end))

    return answered


# --- variables above, callback below -------------------------------------------------------


def _reader(module: callback_module.Module, edge: Edge) -> Read:
    """What a module of the callback form reads from an edge of this form by."""
    module.connect(tracked(edge))
    return edge


def _source_of(edge: Edge) -> callback.Source:
    upper = edge.upper
    return callback.Source.of(upper.name, lambda module: _reader(module, edge))


def _open_transformer(piece: Transformer, module: callback_module.Module, edge: callback_edge.Edge) -> Read:
    above = _serving(module.run, edge, piece.name, module.location)
    return _reader(module, open_steps(module.run, above, piece.then))


def _open_sink(piece: Sink, module: callback_module.Module, edge: callback_edge.Edge) -> None:
    over = False
    stopped: Callable[..., object] | None = None

    def told(error: Exception | None, result: Any) -> None:
        nonlocal over
        over = True
        if stopped is not None:
            stopped(error)
        elif error is None:
            module.done(result)
        else:
            module.fail(error, result)

    def close(error: Exception | None, closed: Callable[..., object]) -> None:
        """A run that is stopped stops the sink, which may have to close something."""
        nonlocal stopped
        if over:
            closed()
            return
        stopped = closed
        if error is None:
            inner.done()
        else:
            inner.fail(error)

    inner = piece.open_in(module.run, _serving(module.run, edge, piece.name, module.location), told)
    module.closing(close)
