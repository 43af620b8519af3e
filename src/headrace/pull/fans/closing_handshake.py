"""`closing_handshake`: end a connection only after both sides have reported done."""

from __future__ import annotations

from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.compose import require_one_kind
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Duplex, Sink, Source, TransformerPart
from headrace.pull.protocol import AnswerTo, End, Read


def closing_handshake(duplex: Duplex, message: Any = "GOODBYE") -> Duplex:
    """Add a closing handshake to a duplex, for connections that close as a whole when one direction ends.

    When its source is done, `message` is sent as a last value. Done follows once the other side's message has
    arrived, which is not passed to the sink. Both sides must use the same message, which must not occur as a
    value. (The original calls it goodbye.)

    If the incoming stream ends, fails or is aborted first, the source does not wait.
    Errors and aborts are passed on immediately.

    >>> from headrace.pull import collect, pull, values
    >>> here, there = (closing_handshake(Duplex(values(text), collect())) for text in ("abc", "z"))
    >>> pull(here, there, here).run()
    ['z']
    """
    require_one_kind(Duplex, "closing_handshake", [duplex])
    owner = object()
    location = SourceLocation.of_caller()

    def open_sending(module: Module, edge: Edge) -> Read:
        return _sending(edge, module.shared(owner, _PeerDone), message)

    def open_receiving(module: Module, edge: Edge) -> Read:
        return _receiving(edge, module.shared(owner, _PeerDone), message)

    sending = TransformerPart("closing_handshake", location, open_sending, linear=True)
    receiving = TransformerPart("closing_handshake", location, open_receiving, linear=True)
    source, sink = duplex.source, duplex.sink
    return Duplex(
        Source(source.part, (*source.then, sending), source.beside),
        Sink(sink.part, (receiving, *sink.before), sink.beside, sink.behind),
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


def _sending(edge: Edge, peer: _PeerDone, message: Any) -> Read:
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


def _receiving(edge: Edge, peer: _PeerDone, message: Any) -> Read:
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
