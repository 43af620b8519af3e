"""Composition: `pull(source, *transformers, sink)`, every partial pipeline, and `together`.

A `Pipeline` is sources connected to sinks, as a value that can run any number of times.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import check_confirm_within, check_integer
from headrace.pull.errors import NotComposable
from headrace.pull.modules import AnyModule, PullDuplex, PullSink, PullSource, PullTransformer
from headrace.pull.pipeline_run import CONFIRM_WITHIN, Run
from headrace.pull.pipeline_runtime import Runtime, running_loop

if TYPE_CHECKING:
    from headrace.pull.module_context import Module


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """Source connected to a sink."""

    source: PullSource
    sink: PullSink


@dataclass(frozen=True, eq=False, slots=True)
class Pipeline:
    """Result of composing a source, transformers and a sink, or several such pipelines that run as one.

    results_of_all: the result is a tuple of all sinks' results instead of the last sink's.
    """

    segments: tuple[Segment, ...]
    results_of_all: bool = False

    def run(
        self, *, window: int | None = None, fuse: bool = True, confirm_within: float | None = CONFIRM_WITHIN
    ) -> Any:
        """Run the pipeline to its end in this thread, and return the result of its sink.

        window:         requests in flight; by default the depth of the pipeline.
        fuse:           run neighbouring synchronous transformers as one.
        confirm_within: seconds for a module to confirm a stop; None for unlimited.

        Raises the first failure of a module, after every end is confirmed; `EndNotConfirmed`,
        `NeverAnswered`. Modules that wait for outside events need an event loop: if one is already running,
        await the pipeline instead.
        """
        run = self._prepared(Runtime(), window, fuse, confirm_within)
        return run.wait()

    def start(
        self,
        runtime: Runtime | None = None,
        *,
        window: int | None = None,
        fuse: bool = True,
        confirm_within: float | None = CONFIRM_WITHIN,
    ) -> Run:
        """Start the pipeline, and return once it needs outside input to continue. See `run`, `Run`."""
        run = self._prepared(runtime or Runtime(running_loop()), window, fuse, confirm_within)
        try:
            run.runtime.work()
        except BaseException:
            run.stop()
            raise
        return run

    def __await__(self) -> Generator[Any, None, Any]:
        """Run the pipeline in the running event loop, and return the result of its sink."""
        return self._prepared(Runtime(running_loop()), None, True, CONFIRM_WITHIN).__await__()

    def _prepared(
        self, runtime: Runtime, window: int | None, fuse: bool, confirm_within: float | None
    ) -> Run:
        if window is not None:
            check_integer("a pipeline", "window", window, least=1)
        check_confirm_within("a pipeline", confirm_within)
        run = Run(runtime, fuse=fuse, window=window, confirm_within=confirm_within)
        runtime.prepare(self._build, run)
        return run

    def _build(self, run: Run) -> None:
        sinks = self.open_in(run)
        if self.results_of_all:
            run.wanted = sinks
        run.built()

    def open_in(self, run: Run) -> tuple[Module, ...]:
        """Open all modules in a run, and return those of the sinks."""
        return tuple(segment.sink.open_in(run, segment.source.open_in(run)) for segment in self.segments)


@overload
def pull(first: PullSource, /, *then: PullTransformer) -> PullSource: ...
@overload
def pull(first: PullTransformer, /, *then: PullTransformer) -> PullTransformer: ...
@overload
def pull(*modules: AnyModule) -> Any: ...
def pull(*modules: AnyModule) -> PullSource | PullTransformer | PullSink | PullDuplex | Pipeline:
    """Compose modules in the order in which values flow. Nothing runs yet: the result is a module itself.

    source, transformers...         a source
    transformers...                 a transformer
    transformers..., sink           a sink
    source, transformers..., sink   a `Pipeline`: call `run()`, `start()`, or await it

    A duplex acts as its sink and then its source. `pull(a, b, a)` connects two duplexes
    both ways; a duplex at one end only leaves its other half open.

    Raises `NotComposable`, naming module and position, for any other order and for anything but modules.
    """
    location = SourceLocation.of_caller()
    if not modules:
        raise NotComposable(
            "pull() got no modules", where=[location], fix="give at least one source, transformer or sink"
        )
    for at, module in enumerate(modules, 1):
        if not isinstance(module, PullSource | PullTransformer | PullSink | PullDuplex):  # pyright: ignore[reportUnnecessaryIsInstance]
            _not_a_module(module, at, location)
    for at in range(1, len(modules)):
        before, module = modules[at - 1], modules[at]
        if isinstance(before, PullSink):
            _misplaced(before, at, "A sink ends a pipeline, and something follows it.", location)
        if isinstance(module, PullSource):
            _misplaced(
                module, at + 1, "A source begins a pipeline, and something stands before it.", location
            )
    if len(modules) > 1 and isinstance(modules[0], PullDuplex) and modules[0] is modules[-1]:
        return reduce(_join, (*modules[1:-1], modules[0].sink), modules[0].source)  # type: ignore[return-value]
    return reduce(_join, modules)  # type: ignore[return-value]


def _join(left: Any, right: Any) -> Any:
    return connect_modules(right, left)


@singledispatch
def connect_modules(right: Any, left: Any) -> Any:
    """Connect `left` to `right`."""
    raise AssertionError("checked by pull")


@connect_modules.register
def _(right: PullTransformer, left: Any) -> Any:
    beside = left.beside + right.beside if not isinstance(left, PullDuplex) else right.beside
    if isinstance(left, PullSource):
        return PullSource(left.part, left.then + right.then, beside)
    if isinstance(left, PullTransformer):
        return PullTransformer(left.then + right.then, beside)
    assert isinstance(left, PullDuplex)
    return PullDuplex(connect_modules(right, left.source), left.sink, left.name, left.location)


@connect_modules.register
def _(right: PullSink, left: Any) -> Any:
    if isinstance(left, PullSource):
        return Pipeline((Segment(left, right),))
    if isinstance(left, PullTransformer):
        return PullSink(right.part, left.then + right.before, left.beside + right.beside, right.behind)
    assert isinstance(left, PullDuplex)
    along = Pipeline((Segment(left.source, right),))
    into = left.sink
    beside = into.beside if into.behind is None else (*into.beside, into.behind)
    return PullSink(into.part, into.before, beside, along)


@connect_modules.register
def _(right: PullDuplex, left: Any) -> Any:
    into = connect_modules(right.sink, left)
    if isinstance(into, Pipeline):
        return PullSource(right.source.part, right.source.then, (*right.source.beside, into))
    if isinstance(left, PullDuplex):
        along = Pipeline((Segment(left.source, right.sink),))
        source = PullSource(right.source.part, right.source.then, (*right.source.beside, along))
        return PullDuplex(source, left.sink, f"{left.name}+{right.name}", right.location)
    return PullDuplex(right.source, into, right.name, right.location)


def describe(module: object) -> str:
    """Describe a module for an error message."""
    if isinstance(module, PullSource | PullSink):
        return f"the {module.kind} {module.part.name!r}"
    if isinstance(module, PullTransformer):
        return f"the transformer {module.then[0].name if module.then else 'of nothing'!r}"
    return f"the duplex {module.name!r}" if isinstance(module, PullDuplex) else type(module).__name__


def _misplaced(module: AnyModule, at: int, why: str, location: SourceLocation) -> NoReturn:
    raise NotComposable(
        f"{describe(module)} cannot stand at position {at}",
        where=[location],
        why=why,
        fix="pull(source, transformers..., sink); a source within a stream of sources: flatten(), cat()",
        position=at,
    )


def _not_a_module(module: object, at: int, location: SourceLocation) -> NoReturn:
    if isinstance(module, Pipeline):
        why, fix = "It is complete: it has its source and its sink.", "run() it, or compose its parts"
    elif callable(module):
        why = "A function does not say which kind of module it is."
        fix = "wrap it: source(f), transformer(f) or sink(f); or map(f)"
    else:
        why = "Pieces are sources, transformers, sinks and duplexes."
        fix = "values([...]) or iterate(...) make a source of what can be iterated"
    raise NotComposable(
        f"position {at} of pull() is {type(module).__name__}, which is not a module",
        where=[location],
        why=why,
        fix=fix,
        position=at,
    )


K = TypeVar("K", PullSource, PullDuplex, Pipeline)

_WANTED: dict[type[Any], tuple[str, str]] = {
    PullSource: ("source", "values([...]) or iterate(...) make a source of what can be iterated"),
    PullDuplex: ("duplex", "PullDuplex(source, sink) makes one of its halves"),
    Pipeline: ("complete pipeline", "pull(source, transformers..., sink) makes one"),
}


def require_one_kind(kind: type[K], constructor: str, given: Iterable[object]) -> tuple[K, ...]:
    """Return the given modules if all are of one kind. Raises `NotComposable` otherwise.

    constructor: the function that it was given to.
    """
    found: list[K] = []
    for at, each in enumerate(given, 1):
        if not isinstance(each, kind):
            wanted, fix = _WANTED[kind]
            what = "a complete pipeline" if isinstance(each, Pipeline) else describe(each)
            is_module = isinstance(each, PullSource | PullTransformer | PullSink | PullDuplex | Pipeline)
            raise NotComposable(
                f"{constructor}() was given {what if is_module else type(each).__name__}, not a {wanted}",
                where=[SourceLocation.of_caller()],
                why=f"It is made of {wanted}s.",
                fix=fix,
                position=at,
            )
        found.append(each)
    return tuple(found)


def together(*pipelines: Pipeline) -> Pipeline:
    """Combine pipelines to run as one, such as the branches of `tee` and `fork` or the halves of a `pair`.

    The result is the tuple of their results. The run finishes when all have. If one fails, the others
    continue; its error is raised when all are finished, with later errors attached.

    >>> from headrace.pull import collect, pull, values
    >>> together(pull(values("ab"), collect()), pull(values([1]), collect())).run()
    (['a', 'b'], [1])
    """
    complete = require_one_kind(Pipeline, "together", pipelines)
    segments = (segment for pipeline in complete for segment in pipeline.segments)
    return Pipeline(tuple(segments), results_of_all=True)
