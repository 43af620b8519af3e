"""`pair`, `duplex_pair`: a sink connected to a source; `closing_handshake`: an end agreed by both sides."""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import check_integer
from headrace.pull.compose import require_one_kind
from headrace.pull.edge import PullEdge
from headrace.pull.errors import AlreadyUsed
from headrace.pull.module_context import Module
from headrace.pull.modules import PullDuplex, PullSink, PullSource, SinkPart, SourcePart, TransformerPart
from headrace.pull.protocol import AnswerTo, BatchRead, End, Read


def pair(*, width: int = 0, name: str = "pair") -> PullDuplex:
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

    def open_sink(module: Module, edge: PullEdge) -> None:
        joint(module).connect(module, edge)

    return PullDuplex(
        PullSource(SourcePart(name, location, open_source, batches=True, width=width)),
        PullSink(SinkPart(name, location, open_sink)),
        name,
        location,
    )


def duplex_pair(*, width: int = 0) -> tuple[PullDuplex, PullDuplex]:
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
        PullDuplex(back.source, there.sink, "duplex_pair", location),
        PullDuplex(there.source, back.sink, "duplex_pair", location),
    )


class _Joint:
    """Edge that the sink reads from, once open; requests of the source wait until then."""

    def __init__(self, name: str, location: SourceLocation) -> None:
        self._name = name
        self._location = location
        self._reader: Module | None = None
        self._sink: Module | None = None
        self._edge: PullEdge | None = None
        self._early: deque[tuple[End | None, AnswerTo, int]] = deque()

    def read_by(self, module: Module) -> BatchRead:
        if self._reader is not None:
            self._refuse("source")
        self._reader = module
        return self.read

    def connect(self, sink: Module, edge: PullEdge) -> None:
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


def closing_handshake(duplex: PullDuplex, message: Any = "GOODBYE") -> PullDuplex:
    """Add a closing handshake to a duplex, for connections that close as a whole when one direction ends.

    When its source is done, `message` is sent as a last value. Done follows once the other side's message has
    arrived, which is not passed to the sink. Both sides must use the same message, which must not occur as a
    value. (The original calls it goodbye.)

    If the incoming stream ends, fails or is aborted first, the source does not wait.
    Errors and aborts are passed on immediately.

    >>> from headrace.pull import collect, pull, values
    >>> here, there = (closing_handshake(PullDuplex(values(text), collect())) for text in ("abc", "z"))
    >>> pull(here, there, here).run()
    ['z']
    """
    require_one_kind(PullDuplex, "closing_handshake", [duplex])
    owner = object()
    location = SourceLocation.of_caller()

    def open_sending(module: Module, edge: PullEdge) -> Read:
        return _sending(edge, module.shared(owner, _PeerDone), message)

    def open_receiving(module: Module, edge: PullEdge) -> Read:
        return _receiving(edge, module.shared(owner, _PeerDone), message)

    sending = TransformerPart("closing_handshake", location, open_sending, linear=True)
    receiving = TransformerPart("closing_handshake", location, open_receiving, linear=True)
    source, sink = duplex.source, duplex.sink
    return PullDuplex(
        PullSource(source.part, (*source.then, sending), source.beside),
        PullSink(sink.part, (receiving, *sink.before), sink.beside, sink.behind),
        duplex.name,
        duplex.location,
    )


class _PeerDone:
    """Event that the peer has sent its message, or can no longer send it, with the answer awaiting it."""

    def __init__(self) -> None:
        self._done = False
        self._waiting: AnswerTo | None = None

    def wait(self, answer: AnswerTo) -> None:
        if self._done:
            answer(True)
        else:
            self._waiting = answer

    def set(self) -> None:
        self._done = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting(True)


def _sending(edge: PullEdge, peer: _PeerDone, message: Any) -> Read:
    sent = False

    def read(abort: End | None, answer: AnswerTo) -> None:
        def got(end: End | None, value: Any = None, /) -> None:
            nonlocal sent
            if end is True:
                sent = True
                answer(None, message)
            else:
                answer(end, value)

        if abort is not None:
            edge(abort, answer)
        elif sent:
            peer.wait(answer)
        else:
            edge(None, got)

    return read


def _receiving(edge: PullEdge, peer: _PeerDone, message: Any) -> Read:
    def read(abort: End | None, answer: AnswerTo) -> None:
        def got(end: End | None, value: Any = None, /) -> None:
            if end is not None:
                peer.set()
                answer(end)
            elif type(value) is type(message) and value == message:
                peer.set()
                edge(None, got)
            else:
                answer(None, value)

        if abort is not None:
            peer.set()
            edge(abort, answer)
        else:
            edge(None, got)

    return read
