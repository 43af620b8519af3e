"""defer: a source, transformer, sink or duplex that is connected later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from penstock.errors import AlreadyUsed, NotComposable, SourceLocation, WrongThread
from penstock.pull.compose import describe
from penstock.pull.edge import Edge
from penstock.pull.handles import Registry
from penstock.pull.module import Module
from penstock.pull.pieces import (
    Duplex,
    Piece,
    Sink,
    SinkPart,
    Source,
    SourcePart,
    Transformer,
    TransformerPart,
    open_through,
)
from penstock.pull.protocol import AnswerTo, BatchRead, End, Read
from penstock.pull.run import Run
from penstock.pull.runtime import Cancellable
from penstock.pull.sources.iterables import empty
from penstock.pull.sources.iterables import error as failed
from penstock.pull.transformers.take import take

P = TypeVar("P", Source, Transformer, Sink, Duplex)


class Later(Generic[P]):
    """A piece of one kind, to be told once. Runs are connected then, later ones at their start."""

    def __init__(self, kind: type[P], location: SourceLocation) -> None:
        self._kind = kind
        self._location = location
        self._piece: P | None = None
        self._waiting: Registry[_Waiting[P]] = Registry()

    def when(self, module: Module, connect: Callable[[P], object]) -> None:
        """Have `connect(piece)` called for a module: now if the piece is known, else when it is."""
        if self._piece is not None:
            connect(self._piece)
        else:
            waiting = _Waiting(threading.get_ident(), module, connect)
            waiting.entry = self._waiting.add(module, waiting)

    def resolve(self, piece: P) -> None:
        """Say what the piece is. Raises `NotComposable` for another kind, `AlreadyUsed` the second time,
        `WrongThread` where a run that waits works in another thread."""
        self._check(piece)
        self._piece = piece
        for each in self._waiting:
            each.entry.cancel()
            each.module.enter(each.connect, piece)

    def _check(self, piece: P) -> None:
        where = [SourceLocation.of_caller(), self._location]
        kind = self._kind.__name__
        if not isinstance(piece, self._kind):  # pyright: ignore[reportUnnecessaryIsInstance]
            found = describe(piece) if isinstance(piece, Piece) else f"a value of type {type(piece).__name__}"
            raise NotComposable(
                f"defer({kind}) cannot become {found}",
                where=where,
                why=f"It stands in its pipelines as a {kind.lower()}.",
                fix=f"resolve it with a {kind.lower()}",
            )
        if self._piece is not None:
            raise AlreadyUsed(
                f"defer({kind}) is resolved or aborted a second time",
                where=where,
                why="Pipelines may be connected with the first piece already.",
                fix="make a defer() for each piece",
            )
        if any(each.thread != threading.get_ident() for each in self._waiting):
            raise WrongThread(
                f"defer({kind}) is resolved in a thread other than that of its pipeline",
                where=where,
                why="Two threads would work on the pipeline at once.",
                fix="loop.call_soon_threadsafe(handle.resolve, piece), with the loop of the pipeline",
            )


@dataclass(eq=False)
class _Waiting(Generic[P]):
    """A module that waits to be connected."""

    thread: int
    module: Module
    connect: Callable[[P], object]
    entry: Cancellable = field(init=False)


class Requests:
    """Wait for an edge, and are made of it then, in order; later ones at once.

    An abort waits as well: to confirm it is to say that what will be connected has closed.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[End | None, AnswerTo, int]] = []
        self._edge: Edge | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if self._edge is None:
            self._waiting.append((abort, answer, most))
        elif abort is None:
            self._edge.batch(most, answer)
        else:
            self._edge(abort, answer)

    def connect(self, edge: Edge) -> None:
        self._edge = edge
        waiting, self._waiting = self._waiting, []
        for abort, answer, most in waiting:
            self.read(abort, answer, most)


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


class DeferredSink(Sink):
    """A sink, and the handle to say later which; see `defer`."""

    __slots__ = ("_later",)
    _later: Later[Sink]

    def __init__(self, location: SourceLocation) -> None:
        later = Later(Sink, location)

        def open(module: Module, edge: Edge) -> None:
            later.when(module, lambda piece: _become(module, edge, piece))

        super().__init__(SinkPart("defer", location, open))
        object.__setattr__(self, "_later", later)

    def resolve(self, sink: Sink) -> None:
        """This is the sink; its result is that of the pipeline."""
        self._later.resolve(sink)

    def abort(self, error: Exception | None = None) -> None:
        """There will be no sink: the stream is aborted (the result is None), or failed with `error`."""

        def open(module: Module, _edge: Edge) -> None:
            if error is None:
                module.done()
            else:
                module.fail(error)

        self.resolve(Sink.of("defer", open))


def _become(module: Module, edge: Edge, sink: Sink) -> None:
    """The waiting module is that of the sink from now on, under its name."""
    for pipeline in sink.beside:
        pipeline.open_in(module.run)
    module.inputs.pop(edge, None)
    end = open_through(module.run, edge, sink.before)
    module.connect(end)
    module.name, module.location = sink.part.name, sink.part.location
    sink.part.open(module, end)
    if sink.behind is not None:
        last = sink.behind.open_in(module.run)[-1]

        def hand_over(run: Run) -> None:
            if last in run.results:
                run.results[module] = run.results[last]

        module.run.when_finished(hand_over)


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
