"""Requests pending at an edge, observers of an edge, and errors for invalid messages."""

from __future__ import annotations

from typing import Any, Protocol

from headrace.errors import SourceLocation
from headrace.pull.errors import ProtocolBroken, WrongValue
from headrace.pull.protocol import AnswerTo, End


class PendingRequest:
    """Request at an edge, pending or answered.

    most: limit on the values of its answer; None for an ask answered by a bare value.
    """

    __slots__ = ("abort", "answer", "held", "index", "most", "state")

    def __init__(self, abort: End | None, answer: AnswerTo | None, most: int | None, index: int) -> None:
        self.abort: End | None = abort
        self.answer = answer
        self.most = most
        self.index = index
        self.state = OPEN
        self.held: Any = None
        """Answer (end and value) that arrived before those to earlier requests."""


OPEN, SETTLED, HELD, FLUSHED = range(4)
# Not answered; answered by the module upstream; answered early and held; answered by the edge at the end.


class EdgeObserver(Protocol):
    """Observer of the events at one end of an edge."""

    def request(self, call: PendingRequest) -> None: ...

    def answer(self, call: PendingRequest, end: End | None, value: Any) -> None: ...

    def remove_last_answer(self, call: PendingRequest) -> None:
        """Called when the module answers a request that the edge already answered for it."""

    def broken(self, rule: str, call: PendingRequest) -> Exception | None:
        """Called when the module upstream breaks a rule; a returned exception fails that module."""


class NamedModule(Protocol):
    """Identity of a module in errors: its name, and the user's source line that created it."""

    name: str
    location: SourceLocation


def not_an_answer(
    module: NamedModule, what: str, fix: str = "answer(None, value), answer(True) or answer(error)"
) -> ProtocolBroken:
    """Build the error for an invalid answer of a module."""
    return ProtocolBroken(
        f"{module.name!r} answered {what}",
        where=[module.location],
        why="A request is answered by a value, by done or by an error.",
        fix=fix,
        module=module.name,
        rule="B1",
    )


def not_a_request(module: NamedModule | None, what: object, fix: str) -> WrongValue:
    """Build the error for an invalid request of a module."""
    return WrongValue(
        f"{'a module' if module is None else repr(module.name)} made the request {what!r}",
        where=[SourceLocation.of_caller() if module is None else module.location],
        why="A request asks for a value, aborts the stream, or fails it with an exception.",
        fix=fix,
    )
