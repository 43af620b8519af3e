"""Call: a request under way at an edge, and who watches."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.errors import ProtocolBroken, SourceLocation, WrongValue
from penstock.pull.protocol import AnswerTo, End


class Call:
    """A request under way. most: of values in its answer; None for a plain ask, answered by a bare value."""

    __slots__ = ("abort", "answer", "held", "index", "most", "state")

    def __init__(self, abort: End | None, answer: AnswerTo | None, most: int | None, index: int) -> None:
        self.abort: End | None = abort
        self.answer = answer
        self.most = most
        self.index = index
        self.state = OPEN
        self.held: Any = None
        """The end and the value of an answer that came before those of earlier requests."""


OPEN, SETTLED, HELD, FLUSHED = range(4)
# Of a call: not answered; answered by the module upstream; by it, but too early; by the edge at the end.


class Watch(Protocol):
    """Sees the events of an edge from one of its two ends."""

    def request(self, call: Call) -> None: ...

    def answer(self, call: Call, end: End | None, value: Any) -> None: ...

    def withdraw(self, call: Call) -> None:
        """The edge had answered this request for the module, which does so now itself."""

    def broken(self, rule: str, call: Call) -> Exception | None:
        """The module upstream broke a rule; what it returns fails that module."""


class Named(Protocol):
    """What an error tells of a module: its name, and the user's line that wrote it."""

    name: str
    location: SourceLocation


def not_an_answer(
    module: Named, what: str, fix: str = "answer(None, value), answer(True) or answer(error)"
) -> ProtocolBroken:
    """The error of a module whose answer cannot be put right."""
    return ProtocolBroken(
        f"{module.name!r} answered {what}",
        where=[module.location],
        why="A request is answered by a value, by done or by an error.",
        fix=fix,
        module=module.name,
        rule="B1",
    )


def not_a_request(module: Named | None, what: object, fix: str) -> WrongValue:
    """The error of a module that requests what is no request."""
    return WrongValue(
        f"{'a module' if module is None else repr(module.name)} made the request {what!r}",
        where=[SourceLocation.of_caller() if module is None else module.location],
        why="A request asks for a value, aborts the stream, or fails it with an exception.",
        fix=fix,
    )
