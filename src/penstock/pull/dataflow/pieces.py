"""Pieces of this form: sources, transformers and sinks as values. Nothing runs before `Pipeline.run`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import SourceLocation
from penstock.pull.dataflow.edge import Edge, Requests
from penstock.pull.dataflow.module import Module, Told
from penstock.pull.dataflow.variable import Variable

if TYPE_CHECKING:
    from penstock.pull.module import Module as CallbackModule
    from penstock.pull.pieces import Sink as CallbackSink
    from penstock.pull.run import Run

Running = Coroutine[Variable[Any], Any, Any]
"""What a dataflow thread runs."""

Step = Callable[["Run", Edge], Edge]
"""Opens a module behind an edge in a run; gives the edge to go on with."""


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """A module that is read from; or one followed by transformers. open: opens a new one in a run."""

    name: str
    location: SourceLocation
    open: Callable[[Run], Edge]
    then: tuple[Step, ...] = ()

    @classmethod
    def of(cls, name: str, thread: Callable[[Module, Requests], Running], *, width: int = 0) -> Source:
        """A source that is a thread, which reads `requests` and binds their answers.

        width: how many requests it works on at once while others wait; 0 where it answers at once, or by
               sources that it reads as soon as it is opened.
        """
        location = SourceLocation.of_caller()

        def open(run: Run) -> Edge:
            module = Module(run, name, location)
            edge = Edge(module, depth=width)
            module.begin(thread, module, edge.requests)
            edge.deepen(max((each.depth for each in module.reading), default=0))
            return edge

        return cls(name, location, open)

    def open_in(self, run: Run) -> Edge:
        """Open new modules of it in a run; the edge to read from."""
        return open_steps(run, self.open(run), self.then)


@dataclass(frozen=True, eq=False, slots=True)
class Transformer:
    """A module that reads and is read from; or several, one after the other. width: that of all together."""

    name: str
    location: SourceLocation
    then: tuple[Step, ...]
    width: int = 0

    @classmethod
    def of(
        cls, name: str, thread: Callable[[Module, Requests, Edge], Running], *, width: int = 0
    ) -> Transformer:
        """A transformer that is a thread, which reads `requests` and writes to the edge upstream of it."""
        location = SourceLocation.of_caller()

        def open(run: Run, upstream: Edge) -> Edge:
            module = Module(run, name, location)
            module.connect(upstream)
            edge = Edge(module, depth=width + upstream.depth)
            module.begin(thread, module, edge.requests, upstream)
            return edge

        return cls(name, location, (open,), width)


@dataclass(frozen=True, eq=False, slots=True)
class Sink:
    """A module that reads; or transformers followed by one.

    open:    opens a new one behind an edge.
    width:   of the transformers.
    bridged: the sink of the callback form that it is, if it is one.
    """

    name: str
    location: SourceLocation
    open: Callable[[Run, Edge, Told | None], CallbackModule]
    before: tuple[Step, ...] = ()
    width: int = 0
    bridged: CallbackSink | None = None

    @classmethod
    def of(cls, name: str, thread: Callable[[Module, Edge], Running]) -> Sink:
        """A sink that is a thread. It ends with `module.done(result)` or `module.fail(error, partial)`."""
        location = SourceLocation.of_caller()

        def open(run: Run, upstream: Edge, told: Told | None) -> Module:
            module = Module(run, name, location)
            module.connect(upstream)
            if told is None:
                run.sink(module)
            else:
                module.told = told
            run.runtime.enter(module.begin, thread, module, upstream)
            return module

        return cls(name, location, open)

    def open_in(self, run: Run, edge: Edge, told: Told | None = None) -> CallbackModule:
        """Open new modules of it in a run, reading from an edge; its own.

        told: what hears of its result; by default that is a result of the run.
        """
        return self.open(run, open_steps(run, edge, self.before), told)


Piece = Source | Transformer | Sink


def open_steps(run: Run, edge: Edge, steps: tuple[Step, ...]) -> Edge:
    for step in steps:
        edge = step(run, edge)
    return edge
