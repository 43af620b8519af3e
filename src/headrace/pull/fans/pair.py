"""`pair`: a connected sink and source, and duplexes made of two pairs."""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import check_integer
from headrace.pull.edge import Edge
from headrace.pull.errors import AlreadyUsed
from headrace.pull.module_context import Module
from headrace.pull.modules import Duplex, Sink, SinkPart, Source, SourcePart
from headrace.pull.protocol import AnswerTo, BatchRead, End


def pair(*, width: int = 0, name: str = "pair") -> Duplex:
    """Create a sink and a source that emits the values the sink reads, within one run.

    The sink makes no requests of its own: it passes on the requests of the source, and ends in both
    directions. An abort or error of the source goes to the stream that the sink reads, whose confirmation
    answers it; done and errors of that stream go to the source. The sink's own result is None even if the
    stream fails, since the error reaches the readers of the source.

    In a run that uses only one half, nothing flows: the source has nothing to answer (`NeverAnswered` names
    it), and the sink reads nothing.

    width: number of requests to keep in flight, if modules upstream of the sink work on several at once.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2]), pair(), collect()).run()
    [1, 2]
    """
    check_integer("pair", "width", width, least=0)
    location = SourceLocation.of_caller()
    owner = object()

    def joint(module: Module) -> _Joint:
        return module.shared(owner, lambda: _Joint(name, location))

    def open_source(module: Module) -> BatchRead:
        return joint(module).read_by(module)

    def open_sink(module: Module, edge: Edge) -> None:
        joint(module).connect(module, edge)

    return Duplex(
        Source(SourcePart(name, location, open_source, batches=True, width=width)),
        Sink(SinkPart(name, location, open_sink)),
        name,
        location,
    )


def duplex_pair(*, width: int = 0) -> tuple[Duplex, Duplex]:
    """Create two connected duplexes, like the ends of a line: each one's sink feeds the other's source.

    The two directions end independently.

    >>> from headrace.pull import collect, map, pull, together, values
    >>> near, far = duplex_pair()
    >>> echo = pull(far, map(str.upper), far)
    >>> together(echo, pull(values("ab"), near, collect())).run()
    (None, ['A', 'B'])
    """
    there, back = pair(width=width, name="duplex_pair"), pair(width=width, name="duplex_pair")
    location = SourceLocation.of_caller()
    return (
        Duplex(back.source, there.sink, "duplex_pair", location),
        Duplex(there.source, back.sink, "duplex_pair", location),
    )


class _Joint:
    """Edge that the sink reads from, once open; requests of the source wait until then."""

    def __init__(self, name: str, location: SourceLocation) -> None:
        self._name = name
        self._location = location
        self._reader: Module | None = None
        self._sink: Module | None = None
        self._edge: Edge | None = None
        self._early: deque[tuple[End | None, AnswerTo, int]] = deque()

    def read_by(self, module: Module) -> BatchRead:
        if self._reader is not None:
            self._refuse("source")
        self._reader = module
        return self.read

    def connect(self, sink: Module, edge: Edge) -> None:
        if self._sink is not None:
            self._refuse("sink")
        self._sink, self._edge = sink, edge
        while self._early:
            self.read(*self._early.popleft())

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if self._edge is None:
            self._early.append((abort, answer, most))
            return

        def answered(end: End | None, values: Any = None, /) -> None:
            answer(end, values)
            if end is not None and self._sink is not None:
                self._sink.done()

        if abort is None:
            self._edge(None, answered, most)
        else:
            self._edge(abort, answered)

    def _refuse(self, half: str) -> None:
        raise AlreadyUsed(
            f"the {half} of {self._name}() stands twice in a run",
            where=[self._location],
            why="What its sink reads comes out of its source, once.",
            fix="make a pair for each place; tee() gives the values to several",
        )
