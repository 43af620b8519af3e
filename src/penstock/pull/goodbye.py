"""goodbye: neither end of a line ends before both have said that they have nothing more to say."""

from __future__ import annotations

from typing import Any

from penstock.errors import SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.piece_checks import only
from penstock.pull.pieces import Duplex, Sink, Source, TransformerPart
from penstock.pull.protocol import AnswerTo, End, Read


def goodbye(duplex: Duplex, message: Any = "GOODBYE") -> Duplex:
    """The duplex, with a handshake at the end: for lines that are closed as a whole when one direction ends.

    When its source is done, `message` goes out as one more value, and done only when the message of the
    other side has come in, which the sink does not see. Both sides use it, with equal messages, that are
    no values of theirs.

    Where the incoming stream ends, fails or is aborted before, nothing will come: the source does not wait.
    Errors and aborts go their way at once.

    >>> from penstock.pull import collect, pull, values
    >>> here, there = (goodbye(Duplex(values(text), collect())) for text in ("abc", "z"))
    >>> pull(here, there, here).run()
    ['z']
    """
    only(Duplex, "goodbye", [duplex])
    owner = object()
    location = SourceLocation.of_caller()

    def open_saying(module: Module, edge: Edge) -> Read:
        return _Saying(edge, module.shared(owner, _Ears), message).read

    def open_hearing(module: Module, edge: Edge) -> Read:
        return _Hearing(edge, module.shared(owner, _Ears), message).read

    saying = TransformerPart("goodbye", location, open_saying, linear=True)
    hearing = TransformerPart("goodbye", location, open_hearing, linear=True)
    source, sink = duplex.source, duplex.sink
    return Duplex(
        Source(source.part, (*source.then, saying), source.beside),
        Sink(sink.part, (hearing, *sink.before), sink.beside, sink.behind),
        duplex.name,
        duplex.location,
    )


class _Ears:
    """Whether the other side has said goodbye, or cannot say it any more; and who waits for that."""

    def __init__(self) -> None:
        self._heard = False
        self._waiting: AnswerTo | None = None

    def wait(self, answer: AnswerTo) -> None:
        if self._heard:
            answer(True)
        else:
            self._waiting = answer

    def hear(self) -> None:
        self._heard = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting(True)


class _Saying:
    def __init__(self, edge: Edge, ears: _Ears, message: Any) -> None:
        self._edge = edge
        self._ears = ears
        self._message = message
        self._said = False

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        def got(end: End | None, value: Any = None, /) -> None:
            if end is True:
                self._said = True
                answer(None, self._message)
            else:
                answer(end, value)

        if abort is not None:
            self._edge(abort, answer)
        elif self._said:
            self._ears.wait(answer)
        else:
            self._edge(None, got)


class _Hearing:
    def __init__(self, edge: Edge, ears: _Ears, message: Any) -> None:
        self._edge = edge
        self._ears = ears
        self._message = message

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        def got(end: End | None, value: Any = None, /) -> None:
            if end is not None:
                self._ears.hear()
                answer(end)
            elif type(value) is type(self._message) and value == self._message:
                self._ears.hear()
                self._edge(None, got)
            else:
                answer(None, value)

        if abort is not None:
            self._ears.hear()
            self._edge(abort, answer)
        else:
            self._edge(None, got)
