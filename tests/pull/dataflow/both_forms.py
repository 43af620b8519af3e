"""Pipelines described once and built in the callback form, in dataflow variables, or in both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace import pull as callback
from headrace.errors import SourceLocation
from headrace.pull import Recorder, Run, dataflow
from headrace.pull.dataflow import Abort, Ask, Done, Failed, FailIndication, Value
from headrace.pull.pipeline_runtime import Runtime
from headrace.pull.rules.checker import check
from headrace.pull.rules.trace import Answer, Request, Trace


class Wrong(Exception):
    """What modules of these pipelines fail with. Equal by their text, as traces are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wrong) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True)
class Made:
    """A module: what it is called, and how it is made in a form that is given (a package)."""

    name: str
    of: Callable[[Any], Any]

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Joined:
    """A source of several, each followed by transformers: `merge` or `cat`. All are of one form."""

    how: str
    inputs: tuple[tuple[Made | Joined, tuple[Made, ...]], ...]

    @property
    def name(self) -> str:
        return f"{self.how}{self.inputs}"

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Sends:
    """A sink that asks `asks` times, or stops the stream by one of `STOPS`."""

    what: str
    asks: int = 1


@dataclass(frozen=True)
class Waits:
    """A sink that waits until no more than so many of its requests wait for their answers."""

    left: int = 0


STOPS = ("abort", "error", "done", "errorInd")
Script = tuple[Sends | Waits, ...]


@dataclass(frozen=True)
class Recipe:
    """sink: a module, or what a sink does step by step; its result is every answer that it got."""

    source: Made | Joined
    through: tuple[Made, ...]
    sink: Made | Script

    def __repr__(self) -> str:
        return f"pull{(self.source, *self.through, self.sink)}"

    @property
    def made(self) -> tuple[Made, ...]:
        """All modules but the sink and those that join others."""
        return (*made_of(self.source), *self.through)


def made_of(source: Made | Joined) -> tuple[Made, ...]:
    if isinstance(source, Made):
        return (source,)
    return tuple(each for inner, through in source.inputs for each in (*made_of(inner), *through))


@dataclass
class Happened:
    """edges: of each edge, from the source down, what both its ends met, in one order. Then those within
    a source that joins others.
    """

    edges: list[tuple[str, ...]]
    result: Any
    error: Exception | None
    recorders: list[Recorder] = field(default_factory=list[Recorder], repr=False)

    def same_as(self, other: Happened) -> bool:
        return (self.edges, self.result, self.error) == (other.edges, other.result, other.error)

    def of_end(self, ports: tuple[str, str]) -> list[Trace]:
        """Each edge as one of its ends met it."""
        return [_end(recorder, ports) for recorder in self.recorders]


UPPER, LOWER = ("D", "TO"), ("TI", "U")


def _end(recorder: Recorder, ports: tuple[str, str]) -> Trace:
    events: list[Request | Answer] = []
    for event in recorder.events:
        if event.port not in ports:
            continue
        if isinstance(event, Request):
            events.append(Request("D", event.kind, event.index, event.message, event.most))
        else:
            events.append(Answer("U", event.index, event.kind, event.value, event.message, event.values))
    return Trace(tuple(events))


def run(
    recipe: Recipe, forms: tuple[Any, ...], *, runtime: Runtime | None = None, window: int | None = None
) -> Happened:
    """Run it, each module in the form that stands for it.

    Where the form changes there is a bridge; recorded is its lower edge, at which the module reads.
    """
    modules = (recipe.source, *recipe.through, recipe.sink)
    assert len(forms) == len(modules)
    recorders = [Recorder(stop_at_once=False) for _ in modules[1:]]
    inner: list[Recorder] = []
    above: Any = forms[0]
    piece = source_of(recipe.source, above, inner)
    for module, form, recorder in zip(modules[1:], forms[1:], recorders, strict=True):
        if form is not above:
            piece = dataflow.as_dataflow(piece) if form is dataflow else dataflow.as_callback(piece)
        above = form
        made = module.of(form) if isinstance(module, Made) else scripted(form, module)
        piece = form.pull(piece, both_ends(form, recorder), made)
    started: Run = piece.start(runtime or Runtime(), window=window)
    try:
        result, error = started.wait(), None
    except Exception as cause:
        result, error = started.partial, cause
    recorders += inner
    edges = [tuple(map(str, recorder.events)) for recorder in recorders]
    return Happened(edges, result, error, recorders)


def source_of(source: Made | Joined, form: Any, recorders: list[Recorder]) -> Any:
    """A source in a form. The edges between those that it joins are recorded, each in a new recorder."""
    if isinstance(source, Made):
        return source.of(form)
    pieces: list[Any] = []
    for inner, through in source.inputs:
        piece = source_of(inner, form, recorders)
        for module in (None, *through):
            recorders.append(Recorder(stop_at_once=False))
            made = () if module is None else (module.of(form),)
            piece = form.pull(piece, *made, both_ends(form, recorders[-1]))
        pieces.append(piece)
    return form.merge(*pieces) if source.how == "merge" else form.cat(pieces)


def both_ends(form: Any, recorder: Recorder) -> Any:
    """Records one edge as its upper end meets it (ports D and TO) and as its lower end does (TI and U)."""
    if form is callback:
        return callback.probe_around(callback.PullTransformer(()), recorder)
    return dataflow.probe_around(
        dataflow.DataflowTransformer("nothing", SourceLocation.of_caller(), ()), recorder
    )


def scripted(form: Any, script: Script) -> Any:
    """A sink that follows a script. After an indication it asks once more, to hear of the end."""
    if any(isinstance(step, Sends) and step.what in ("done", "errorInd") for step in script):
        script = (*script, Sends("ask"))
    return _scripted_callback(script) if form is callback else _scripted_dataflow(script)


def _said(kind: str, value: Any = None) -> str:
    return f"{kind}({value})" if kind != "done" else kind


def _scripted_callback(script: Script) -> callback.PullSink:
    def open(module: Any, edge: Any) -> None:
        left = deque(script)
        heard: list[str] = []
        waits = 0

        def got(end: Any, value: Any = None, /) -> None:
            nonlocal waits
            waits -= 1
            heard.append(
                _said("value", value)
                if end is None
                else _said("done")
                if end is True
                else _said("error", end)
            )
            go_on()

        def go_on() -> None:
            nonlocal waits
            while left:
                step = left[0]
                if isinstance(step, Waits):
                    if waits > step.left:
                        return
                    left.popleft()
                    continue
                left.popleft()
                waits += send(step)
            if waits == 0:
                module.done(heard)

        def send(step: Sends) -> int:
            if step.what == "ask":
                for _ in range(step.asks):
                    edge(None, got)
                return step.asks
            cause = True if step.what in ("abort", "done") else Wrong("sink")
            if step.what in ("abort", "error"):
                edge(cause, got)
                return 1
            edge(cause)
            return 0

        go_on()

    return callback.PullSink.of("scripted", open)


def _scripted_dataflow(script: Script) -> dataflow.DataflowSink:
    async def thread(module: dataflow.ModuleContext, upstream: dataflow.DataflowEdge) -> None:
        waiting: deque[dataflow.DataflowVariable[Any]] = deque()
        heard: list[str] = []

        async def down_to(left: int) -> None:
            while len(waiting) > left:
                answer = await waiting.popleft()
                match answer:
                    case Value(value):
                        heard.append(_said("value", value))
                    case Failed(error):
                        heard.append(_said("error", error))
                    case _:
                        heard.append(_said("done"))

        for step in script:
            if isinstance(step, Waits):
                await down_to(step.left)
            elif step.what == "ask":
                waiting.extend(upstream.ask() for _ in range(step.asks))
            else:
                request = _stop(step.what)
                upstream.send(request)
                if isinstance(request, Abort | dataflow.Fail):
                    waiting.append(request.answer)
        await down_to(0)
        module.done(heard)

    return dataflow.DataflowSink.of("scripted", thread)


def _stop(what: str) -> Ask | Abort | dataflow.Fail | Done | FailIndication:
    cause = Wrong("sink")
    return {
        "abort": lambda: Abort(),
        "error": lambda: dataflow.Fail(cause),
        "done": lambda: dataflow.DONE,
        "errorInd": lambda: FailIndication(cause),
    }[what]()


def violations(happened: Happened) -> list[str]:
    """What the checker finds at any end of any edge."""
    return [
        f"edge {at}: {found}"
        for ports in (UPPER, LOWER)
        for at, trace in enumerate(happened.of_end(ports))
        for found in check(trace)
    ]


def failing(text: str) -> Callable[[Any], Any]:
    """A function that raises."""

    def function(_value: Any) -> Any:
        raise Wrong(text)

    return function
