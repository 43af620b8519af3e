"""Dataflow-thread modules as values, and their composition: `pull(source, *transformers, sink)`, `probe`.

Nothing runs before `Pipeline.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast, overload

from headrace.errors import SourceLocation
from headrace.pull import modules as callback
from headrace.pull.compose import Pipeline, Segment
from headrace.pull.dataflow.edge import DataflowEdge, Requests
from headrace.pull.dataflow.module_threads import ModuleContext, ResultListener
from headrace.pull.dataflow.variable import DataflowVariable
from headrace.pull.edge_recorder import LowerObserver, Recorder, UpperObserver
from headrace.pull.errors import NotComposable

if TYPE_CHECKING:
    from headrace.pull.module_context import Module as CallbackModule
    from headrace.pull.modules import PullSink as CallbackSink
    from headrace.pull.pipeline_run import Run


Running = Coroutine[DataflowVariable[Any], Any, Any]
"""Coroutine of a dataflow thread."""

Step = Callable[["Run", DataflowEdge], DataflowEdge]
"""Function that opens a module on an edge in a run, and returns the output edge."""


@dataclass(frozen=True, eq=False, slots=True)
class DataflowSource:
    """Source module, optionally followed by transformers. open: opens it in a run."""

    kind: ClassVar = "source"

    name: str
    location: SourceLocation
    open: Callable[[Run], DataflowEdge]
    then: tuple[Step, ...] = ()

    @classmethod
    def of(
        cls, name: str, thread: Callable[[ModuleContext, Requests], Running], *, width: int = 0
    ) -> DataflowSource:
        """Create a source from a thread function, which reads `requests` and binds their answers.

        width: number of requests it works on at once; 0 if it answers immediately, or through sources that it
               reads as soon as it is opened.
        """
        location = SourceLocation.of_caller()

        def open(run: Run) -> DataflowEdge:
            module = ModuleContext(run, name, location)
            edge = DataflowEdge(module, depth=width)
            module.begin(thread, module, edge.requests)
            edge.deepen(max((each.depth for each in module.reading), default=0))
            return edge

        return cls(name, location, open)

    def open_in(self, run: Run) -> DataflowEdge:
        """Open the modules in a run, and return the edge to read from."""
        return open_steps(run, self.open(run), self.then)


@dataclass(frozen=True, eq=False, slots=True)
class DataflowTransformer:
    """Transformer module, or several in sequence. width: their combined width."""

    kind: ClassVar = "transformer"

    name: str
    location: SourceLocation
    then: tuple[Step, ...]
    width: int = 0

    @classmethod
    def of(
        cls, name: str, thread: Callable[[ModuleContext, Requests, DataflowEdge], Running], *, width: int = 0
    ) -> DataflowTransformer:
        """Create a transformer from a thread function, which reads `requests` and uses the edge above."""
        location = SourceLocation.of_caller()

        def open(run: Run, upstream: DataflowEdge) -> DataflowEdge:
            module = ModuleContext(run, name, location)
            module.connect(upstream)
            edge = DataflowEdge(module, depth=width + upstream.depth)
            module.begin(thread, module, edge.requests, upstream)
            return edge

        return cls(name, location, (open,), width)


@dataclass(frozen=True, eq=False, slots=True)
class DataflowSink:
    """Sink module, optionally preceded by transformers.

    open:    opens it on an edge.
    width:   of the transformers.
    bridged: the callback-form sink it was converted from, if any.
    """

    kind: ClassVar = "sink"

    name: str
    location: SourceLocation
    open: Callable[[Run, DataflowEdge, ResultListener | None], CallbackModule]
    before: tuple[Step, ...] = ()
    width: int = 0
    bridged: CallbackSink | None = None

    @classmethod
    def of(cls, name: str, thread: Callable[[ModuleContext, DataflowEdge], Running]) -> DataflowSink:
        """Create a sink from a thread function.

        The thread ends with `module.done(result)` or `module.fail(error, partial)`.
        """
        location = SourceLocation.of_caller()

        def open(run: Run, upstream: DataflowEdge, on_result: ResultListener | None) -> ModuleContext:
            module = ModuleContext(run, name, location)
            module.connect(upstream)
            if on_result is None:
                run.add_sink(module)
            else:
                module.on_result = on_result
            run.runtime.enter(module.begin, thread, module, upstream)
            return module

        return cls(name, location, open)

    def open_in(
        self, run: Run, edge: DataflowEdge, on_result: ResultListener | None = None
    ) -> CallbackModule:
        """Open the modules in a run, reading from an edge; return the sink's module.

        on_result: receiver of its result; by default the run.
        """
        return self.open(run, open_steps(run, edge, self.before), on_result)


AnyModule = DataflowSource | DataflowTransformer | DataflowSink


def open_steps(run: Run, edge: DataflowEdge, steps: tuple[Step, ...]) -> DataflowEdge:
    for step in steps:
        edge = step(run, edge)
    return edge


@overload
def pull(first: DataflowSource, /, *then: DataflowTransformer) -> DataflowSource: ...
@overload
def pull(first: DataflowTransformer, /, *then: DataflowTransformer) -> DataflowTransformer: ...
@overload
def pull(*modules: AnyModule) -> Any: ...
def pull(*modules: AnyModule) -> DataflowSource | DataflowTransformer | DataflowSink | Pipeline:
    """Compose modules in the order in which values flow; see `headrace.pull.pull`.

    A complete composition is an ordinary `Pipeline`. Raises `NotComposable` for another order,
    and for modules in callback form, which `as_dataflow` converts.
    """
    location = SourceLocation.of_caller()
    if not modules:
        raise NotComposable(
            "pull() got no modules", where=[location], fix="give at least one source, transformer or sink"
        )
    made: DataflowSource | DataflowTransformer | DataflowSink | Pipeline | None = None
    for at, module in enumerate(modules, 1):
        if not isinstance(module, DataflowSource | DataflowTransformer | DataflowSink):  # pyright: ignore[reportUnnecessaryIsInstance]
            _not_a_module(module, at, location)
        if isinstance(made, DataflowSink | Pipeline):
            _misplaced(modules[at - 2], at - 1, "A sink ends a pipeline, and something follows it.", location)
        if made is not None and isinstance(module, DataflowSource):
            _misplaced(module, at, "A source begins a pipeline, and something stands before it.", location)
        made = module if made is None else _join(made, module)
    assert made is not None
    return made


def _join(
    left: DataflowSource | DataflowTransformer, right: AnyModule
) -> DataflowSource | DataflowTransformer | DataflowSink | Pipeline:
    if isinstance(right, DataflowSink):
        if isinstance(left, DataflowTransformer):
            before, width = left.then + right.before, left.width + right.width
            return DataflowSink(right.name, right.location, right.open, before, width, right.bridged)
        # A run connects sources and sinks regardless of their form.
        return Pipeline((Segment(cast("callback.PullSource", left), cast("callback.PullSink", right)),))
    assert isinstance(right, DataflowTransformer)
    if isinstance(left, DataflowSource):
        return DataflowSource(left.name, left.location, left.open, left.then + right.then)
    return DataflowTransformer(left.name, left.location, left.then + right.then, left.width + right.width)


def _misplaced(module: AnyModule, at: int, why: str, location: SourceLocation) -> NoReturn:
    raise NotComposable(
        f"the {module.kind} {module.name!r} cannot stand at position {at}",
        where=[location],
        why=why,
        fix="pull(source, transformers..., sink); a source within a stream of sources: flatten(), cat()",
        position=at,
    )


def _not_a_module(module: object, at: int, location: SourceLocation) -> NoReturn:
    if isinstance(module, callback.PullSource | callback.PullTransformer | callback.PullSink):
        what = f"position {at} of pull() is a {module.kind} of the callback form"
        fix = "as_dataflow(module) makes it a module of this form"
    else:
        what = f"position {at} of pull() is {type(module).__name__}, which is not a module"
        fix = "values([...]) makes a source of what can be iterated; DataflowSource.of a dataflow thread"
    raise NotComposable(
        what,
        where=[location],
        why="Here modules are sources, transformers and sinks of dataflow threads.",
        fix=fix,
        position=at,
    )


def probe(recorder: Recorder, *, below: bool = False) -> DataflowTransformer:
    """Record an edge: `pull(source, probe(recorder), sink)`. A probe is not a module.

    A request is recorded when upstream can read it, an answer when upstream binds it.
    below: record a request when downstream makes it, and an answer when it is bound for downstream.
    With `stop_at_once`, a module upstream that binds a value out of order, after an end or to an abort fails
    with `ProtocolBroken`; a second answer raises `AlreadyBound` even without a probe.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> recorder = Recorder()
    >>> pull(values([7]), probe(recorder), collect()).run()
    [7]
    >>> print(recorder.trace())
    D:ask1 U:ans1=value(7) D:ask2 U:ans2=done
    """

    def mark(_run: Run, edge: DataflowEdge) -> DataflowEdge:
        if below:
            edge.seen_below = LowerObserver(recorder, edge, "D", "U")
        else:
            edge.seen_above = UpperObserver(recorder, edge, "D", "U")
        return edge

    return DataflowTransformer("probe", SourceLocation.of_caller(), (mark,))


def probe_around(transformer: DataflowTransformer, recorder: Recorder) -> DataflowTransformer:
    """Record both edges of a transformer as one trace, in the order in which it observed the events."""

    def below(_run: Run, edge: DataflowEdge) -> DataflowEdge:
        edge.seen_below = LowerObserver(recorder, edge, "TI", "U")
        return edge

    def above(_run: Run, edge: DataflowEdge) -> DataflowEdge:
        edge.seen_above = UpperObserver(recorder, edge, "D", "TO")
        return edge

    return DataflowTransformer(
        transformer.name, SourceLocation.of_caller(), (below, *transformer.then, above)
    )
