"""When what may be said: the stages and dependencies of one connection, for both of its sides.

Each side hands in what it sends and what it receives, in order. What may not be said raises
`ProtocolViolation` and ends the connection. Because messages cross each other, each side judges by what it
has seen itself: a replica by the commands it has received, a controller by the commands it has sent, which
are those and perhaps more. What the protocol leaves open is let pass: a `CancelPeek` for a peek that is
answered, rows for a peek that is cancelled, frontiers of what is dropped.

What is dropped is forgotten once nothing more may be said of it, so the memory of a connection is that of
what is alive.
"""

from __future__ import annotations

from enum import Enum

from penstock.compute.errors import ProtocolViolation
from penstock.compute.protocol.commands import (
    CancelPeek,
    Command,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    Peek,
    UpdateConfiguration,
)
from penstock.compute.protocol.export_state import Exports
from penstock.compute.protocol.responses import Canceled, PeekResponse, Response, Status

MOST_ANSWERED = 100_000
"""Peeks that are answered and may still be cancelled; beyond it the oldest are forgotten."""


class Peeks:
    """Peeks that wait for their answer, and those whose `CancelPeek` may still come."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, bool] = {}  # by uuid, whether it was cancelled
        self._answered: dict[bytes, None] = {}  # in order
        self._forgotten = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._answered)

    def ask(self, uuid: bytes) -> str | None:
        if uuid in self._waiting or uuid in self._answered:
            return "Its uuid is that of an earlier peek."
        self._waiting[uuid] = False
        return None

    def cancel(self, uuid: bytes) -> str | None:
        if uuid in self._answered:
            del self._answered[uuid]
        elif self._waiting.get(uuid) is False:
            self._waiting[uuid] = True
        elif uuid in self._waiting:
            return "The peek is cancelled already."
        elif not self._forgotten:
            return "There was no such peek."
        return None

    def answer(self, response: PeekResponse) -> str | None:
        cancelled = self._waiting.get(response.uuid)
        if cancelled is None:
            return "The peek is answered already, or was not asked."
        if isinstance(response.answer, Canceled) and not cancelled:
            return "Nobody has cancelled the peek."
        del self._waiting[response.uuid]
        if not cancelled:
            self._answered[response.uuid] = None
            if len(self._answered) > MOST_ANSWERED:
                del self._answered[next(iter(self._answered))]
                self._forgotten = True
        return None


class Stage(Enum):
    """How far a connection has come."""

    CREATION = "creation"
    INITIALIZATION = "initialization"
    COMPUTATION = "computation"


class _Stages:
    """What both sides have in common: one order of commands, and the responses that follow from them."""

    def __init__(self) -> None:
        self.stage = Stage.CREATION
        self._begun = False
        self._peeks = Peeks()
        self._exports = Exports()

    @property
    def remembered(self) -> int:
        """How many exports and peeks are kept in mind."""
        return len(self._exports) + len(self._peeks)

    def _command(self, command: Command) -> None:
        if self.stage is Stage.CREATION:
            self._create(command)
            return
        match command:
            case Peek():
                why = self._exports.peek(command) or self._peeks.ask(command.uuid)
            case CancelPeek(uuid):
                why = self._peeks.cancel(uuid)
            case CreateTimely() | CreateInstance():
                why = "It is said once, in the creation stage."
            case InitializationComplete():
                why = "It is said once." if self.stage is Stage.COMPUTATION else None
                self.stage = Stage.COMPUTATION
            case UpdateConfiguration():
                why = None
            case _:
                why = self._exports.command(command)
        self._refuse(command, why)

    def _create(self, command: Command) -> None:
        expected = CreateInstance if self._begun else CreateTimely
        why = None if isinstance(command, expected) else f"{expected.__name__} comes first."
        self._refuse(command, why)
        if self._begun:
            self.stage = Stage.INITIALIZATION
        self._begun = True

    def _response(self, response: Response) -> None:
        if self.stage is Stage.CREATION:
            why = "A replica says nothing in the creation stage."
        elif isinstance(response, PeekResponse):
            why = self._peeks.answer(response)
        elif isinstance(response, Status):
            why = None
        else:
            why = self._exports.response(response)
        self._refuse(response, why)

    def _refuse(self, message: Command | Response, why: str | None) -> None:
        if why is None:
            return
        name = type(message).__name__
        about = getattr(message, "id", None)
        raise ProtocolViolation(
            f"{name}{'' if about is None else f' of {about}'} may not be said at this point",
            why=why,
            fix="this is a mistake of the side that said it; the other side has done nothing of it",
            stage=self.stage.value,
            message=name,
        )


class ControllerStages(_Stages):
    """A connection as its controller sees it."""

    def sent(self, command: Command) -> None:
        """Before a command is sent. Raises `ProtocolViolation`."""
        self._command(command)

    def received(self, response: Response) -> None:
        """Before a response is looked at. Raises `ProtocolViolation`."""
        self._response(response)


class ReplicaStages(_Stages):
    """A connection as its replica sees it."""

    def received(self, command: Command) -> None:
        """Before a command is looked at. Raises `ProtocolViolation`."""
        self._command(command)

    def sent(self, response: Response) -> None:
        """Before a response is sent. Raises `ProtocolViolation`."""
        self._response(response)
