"""Dataflow-thread modules as values: sources, transformers and sinks.

Nothing runs before `Pipeline.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import SourceLocation
from headrace.pull.dataflow.edge import Edge, Requests
from headrace.pull.dataflow.module_threads import ModuleContext, ResultListener
from headrace.pull.dataflow.variable import Variable

if TYPE_CHECKING:
    from headrace.pull.module_context import Module as CallbackModule
    from headrace.pull.modules import Sink as CallbackSink
    from headrace.pull.pipeline_run import Run

Running = Coroutine[Variable[Any], Any, Any]
"""Coroutine of a dataflow thread."""

Step = Callable[["Run", Edge], Edge]
"""Function that opens a module on an edge in a run, and returns the output edge."""


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """Source module, optionally followed by transformers. open: opens it in a run."""

    name: str
    location: SourceLocation
    open: Callable[[Run], Edge]
    then: tuple[Step, ...] = ()

    @classmethod
    def of(cls, name: str, thread: Callable[[ModuleContext, Requests], Running], *, width: int = 0) -> Source:
        """Create a source from a thread function, which reads `requests` and binds their answers.

        width: number of requests it works on at once; 0 if it answers immediately, or through sources that it
               reads as soon as it is opened.
        """
        location = SourceLocation.of_caller()

        def open(run: Run) -> Edge:
            module = ModuleContext(run, name, location)
            edge = Edge(module, depth=width)
            module.begin(thread, module, edge.requests)
            edge.deepen(max((each.depth for each in module.reading), default=0))
            return edge

        return cls(name, location, open)

    def open_in(self, run: Run) -> Edge:
        """Open the modules in a run, and return the edge to read from."""
        return open_steps(run, self.open(run), self.then)


@dataclass(frozen=True, eq=False, slots=True)
class Transformer:
    """Transformer module, or several in sequence. width: their combined width."""

    name: str
    location: SourceLocation
    then: tuple[Step, ...]
    width: int = 0

    @classmethod
    def of(
        cls, name: str, thread: Callable[[ModuleContext, Requests, Edge], Running], *, width: int = 0
    ) -> Transformer:
        """Create a transformer from a thread function, which reads `requests` and uses the edge above."""
        location = SourceLocation.of_caller()

        def open(run: Run, upstream: Edge) -> Edge:
            module = ModuleContext(run, name, location)
            module.connect(upstream)
            edge = Edge(module, depth=width + upstream.depth)
            module.begin(thread, module, edge.requests, upstream)
            return edge

        return cls(name, location, (open,), width)


@dataclass(frozen=True, eq=False, slots=True)
class Sink:
    """Sink module, optionally preceded by transformers.

    open:    opens it on an edge.
    width:   of the transformers.
    bridged: the callback-form sink it was converted from, if any.
    """

    name: str
    location: SourceLocation
    open: Callable[[Run, Edge, ResultListener | None], CallbackModule]
    before: tuple[Step, ...] = ()
    width: int = 0
    bridged: CallbackSink | None = None

    @classmethod
    def of(cls, name: str, thread: Callable[[ModuleContext, Edge], Running]) -> Sink:
        """Create a sink from a thread function.

        The thread ends with `module.done(result)` or `module.fail(error, partial)`.
        """
        location = SourceLocation.of_caller()

        def open(run: Run, upstream: Edge, on_result: ResultListener | None) -> ModuleContext:
            module = ModuleContext(run, name, location)
            module.connect(upstream)
            if on_result is None:
                run.add_sink(module)
            else:
                module.on_result = on_result
            run.runtime.enter(module.begin, thread, module, upstream)
            return module

        return cls(name, location, open)

    def open_in(self, run: Run, edge: Edge, on_result: ResultListener | None = None) -> CallbackModule:
        """Open the modules in a run, reading from an edge, and return the sink's own.

        on_result: receiver of its result; by default the run.
        """
        return self.open(run, open_steps(run, edge, self.before), on_result)


AnyModule = Source | Transformer | Sink


def open_steps(run: Run, edge: Edge, steps: tuple[Step, ...]) -> Edge:
    for step in steps:
        edge = step(run, edge)
    return edge
