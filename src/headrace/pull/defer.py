"""`defer`: a source, transformer, sink or duplex to be connected later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from headrace.errors import SourceLocation
from headrace.pull.compose import describe
from headrace.pull.edge import PullEdge
from headrace.pull.elementwise import take
from headrace.pull.errors import AlreadyUsed, NotComposable, WrongThread
from headrace.pull.module_context import Module, Registry
from headrace.pull.modules import (
    AnyModule,
    PullDuplex,
    PullSink,
    PullSource,
    PullTransformer,
    SinkPart,
    SourcePart,
    TransformerPart,
    open_through,
)
from headrace.pull.pipeline_run import Run
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, BatchRead, End, Read
from headrace.pull.sources import empty
from headrace.pull.sources import error as failed

P = TypeVar("P", PullSource, PullTransformer, PullSink, PullDuplex)


class Deferred(Generic[P]):
    """Module to be resolved once. Resolving connects running pipelines; later runs connect at their start."""

    def __init__(self, kind: type[P], location: SourceLocation) -> None:
        self._kind = kind
        self._location = location
        self._actual: P | None = None
        self._waiting: Registry[_Waiting[P]] = Registry()

    def when(self, module: Module, connect: Callable[[P], object]) -> None:
        """Call `connect(module)` when the module is resolved, or immediately if it already is."""
        if self._actual is not None:
            connect(self._actual)
        else:
            waiting = _Waiting(threading.get_ident(), module, connect)
            waiting.entry = self._waiting.add(module, waiting)

    def resolve(self, actual: P) -> None:
        """Set the module.

        Raises `NotComposable` for another kind, `AlreadyUsed` if already resolved, `WrongThread` if a waiting
        run works in another thread.
        """
        self._check(actual)
        self._actual = actual
        for each in self._waiting:
            each.entry.cancel()
            each.module.enter(each.connect, actual)

    def _check(self, actual: P) -> None:
        where = [SourceLocation.of_caller(), self._location]
        kind = self._kind.__name__
        if not isinstance(actual, self._kind):  # pyright: ignore[reportUnnecessaryIsInstance]
            found = (
                describe(actual)
                if isinstance(actual, AnyModule)
                else f"a value of type {type(actual).__name__}"
            )
            raise NotComposable(
                f"defer({kind}) cannot become {found}",
                where=where,
                why=f"It stands in its pipelines as a {self._kind.kind}.",
                fix=f"resolve it with a {self._kind.kind}",
            )
        if self._actual is not None:
            raise AlreadyUsed(
                f"defer({kind}) is resolved or aborted a second time",
                where=where,
                why="Pipelines may be connected with the first module already.",
                fix="make a defer() for each module",
            )
        if any(each.thread != threading.get_ident() for each in self._waiting):
            raise WrongThread(
                f"defer({kind}) is resolved in a thread other than that of its pipeline",
                where=where,
                why="Two threads would work on the pipeline at once.",
                fix="loop.call_soon_threadsafe(handle.resolve, module), with the loop of the pipeline",
            )


@dataclass(eq=False)
class _Waiting(Generic[P]):
    """Running module that waits to be connected."""

    thread: int
    module: Module
    connect: Callable[[P], object]
    entry: Cancellable = field(init=False)


class HeldRequests:
    """Requests held back for an edge until it is connected, then passed on in order.

    Aborts are held back too, because confirming one means that the module to be connected has closed.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[End | None, AnswerTo, int]] = []
        self._edge: PullEdge | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if self._edge is None:
            self._waiting.append((abort, answer, most))
        elif abort is None:
            self._edge(None, answer, most)
        else:
            self._edge(abort, answer)

    def connect(self, edge: PullEdge) -> None:
        self._edge = edge
        waiting, self._waiting = self._waiting, []
        for abort, answer, most in waiting:
            self.read(abort, answer, most)


class DeferredSource(PullSource):
    """Placeholder for a source, with the handle to resolve it; see `defer`."""

    __slots__ = ("_later",)
    _later: Deferred[PullSource]

    def __init__(self, location: SourceLocation, width: int) -> None:
        later = Deferred(PullSource, location)

        def open(module: Module) -> BatchRead:
            requests = HeldRequests()
            later.when(module, lambda source: requests.connect(module.open(source)))
            return requests.read

        super().__init__(SourcePart("defer", location, open, batches=True, width=width))
        object.__setattr__(self, "_later", later)

    def resolve(self, source: PullSource) -> None:
        """Connect the source."""
        self._later.resolve(source)

    def abort(self, error: Exception | None = None) -> None:
        """Resolve to an empty stream, or to one that fails with `error`."""
        self.resolve(empty() if error is None else failed(error))


class DeferredTransformer(PullTransformer):
    """Placeholder for a transformer, with the handle to resolve it; see `defer`."""

    __slots__ = ("_later",)
    _later: Deferred[PullTransformer]

    def __init__(self, location: SourceLocation, width: int) -> None:
        later = Deferred(PullTransformer, location)

        def open(module: Module, edge: PullEdge) -> BatchRead:
            requests = HeldRequests()
            later.when(module, lambda actual: requests.connect(_opened(module, edge, actual)))
            return requests.read

        super().__init__((TransformerPart("defer", location, open, batches=True, width=width),))
        object.__setattr__(self, "_later", later)

    def resolve(self, transformer: PullTransformer) -> None:
        """Connect the transformer."""
        self._later.resolve(transformer)

    def abort(self, error: Exception | None = None) -> None:
        """Give up on a transformer: the next request aborts upstream, or fails it with `error`."""
        self.resolve(take(0) if error is None else _failing(error))


def _opened(module: Module, edge: PullEdge, actual: PullTransformer) -> PullEdge:
    for pipeline in actual.beside:
        pipeline.open_in(module.run)
    module.inputs.pop(edge, None)
    end = open_through(module.run, edge, actual.then)
    module.connect(end)
    return end


def _failing(error: Exception) -> PullTransformer:
    def open(_module: Module, _edge: PullEdge) -> Read:
        raise error

    return PullTransformer.of("defer", open)


class DeferredSink(PullSink):
    """Placeholder for a sink, with the handle to resolve it; see `defer`."""

    __slots__ = ("_later",)
    _later: Deferred[PullSink]

    def __init__(self, location: SourceLocation) -> None:
        later = Deferred(PullSink, location)

        def open(module: Module, edge: PullEdge) -> None:
            later.when(module, lambda actual: _become(module, edge, actual))

        super().__init__(SinkPart("defer", location, open))
        object.__setattr__(self, "_later", later)

    def resolve(self, sink: PullSink) -> None:
        """Connect the sink. Its result becomes the pipeline's result."""
        self._later.resolve(sink)

    def abort(self, error: Exception | None = None) -> None:
        """Give up on a sink: abort the stream (the result is None), or fail it with `error`."""

        def open(module: Module, _edge: PullEdge) -> None:
            if error is None:
                module.done()
            else:
                module.fail(error)

        self.resolve(PullSink.of("defer", open))


def _become(module: Module, edge: PullEdge, sink: PullSink) -> None:
    """Turn the waiting module into the resolved sink's module, under that sink's name."""
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


class DeferredDuplex(PullDuplex):
    """Placeholder for a duplex, with the handle to resolve it; see `defer`."""

    __slots__ = ("_later",)
    _later: Deferred[PullDuplex]

    def __init__(self, location: SourceLocation, width: int) -> None:
        super().__init__(DeferredSource(location, width), DeferredSink(location), "defer", location)
        object.__setattr__(self, "_later", Deferred(PullDuplex, location))

    def resolve(self, duplex: PullDuplex) -> None:
        """Connect the duplex."""
        self._later.resolve(duplex)
        self._halves[0].resolve(duplex.source)
        self._halves[1].resolve(duplex.sink)

    def abort(self, error: Exception | None = None) -> None:
        """Give up on a duplex: abort its source and its sink."""
        for half in self._halves:
            half.abort(error)

    @property
    def _halves(self) -> tuple[DeferredSource, DeferredSink]:
        assert isinstance(self.source, DeferredSource)
        assert isinstance(self.sink, DeferredSink)
        return self.source, self.sink


@overload
def defer(kind: type[PullSource] = PullSource, *, width: int = 0) -> DeferredSource: ...
@overload
def defer(kind: type[PullTransformer], *, width: int = 0) -> DeferredTransformer: ...
@overload
def defer(kind: type[PullSink]) -> DeferredSink: ...
@overload
def defer(kind: type[PullDuplex], *, width: int = 0) -> DeferredDuplex: ...
def defer(kind: Any = PullSource, *, width: int = 0) -> Any:
    """Create a placeholder for a module of this kind, connected later by `handle.resolve(module)`.

    kind:  `PullSource`, `PullTransformer`, `PullSink` or `PullDuplex`.
    width: requests to hold back at once, if the module will be able to work on several.

    Until then, requests wait in order, including aborts, and nothing is opened. Instead of `resolve`,
    `handle.abort(error)` ends both sides; without `error`, as an abort does. Call one of them, once, in the
    thread of the pipeline. Every run opens the module anew, whether started before or after.

    >>> from headrace.pull import PullSource, collect, pull, values
    >>> later = defer(PullSource)
    >>> run = pull(later, collect()).start()
    >>> later.resolve(values([7, 8]))
    >>> run.result()
    [7, 8]
    """
    location = SourceLocation.of_caller()
    if kind is PullSource:
        return DeferredSource(location, width)
    if kind is PullTransformer:
        return DeferredTransformer(location, width)
    if kind is PullSink:
        return DeferredSink(location)
    if kind is PullDuplex:
        return DeferredDuplex(location, width)
    raise NotComposable(
        f"defer() of {_called(kind)}, which is not a kind of module",
        where=[location],
        fix="defer(PullSource), defer(PullTransformer), defer(PullSink) or defer(PullDuplex)",
    )


def _called(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else f"a value of type {type(kind).__name__}"
