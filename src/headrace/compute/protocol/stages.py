"""Protocol state of one connection: the messages allowed at each stage, for both sides.

Each side passes in what it sends and what it receives, in order. A message that is not allowed raises
`ProtocolViolation` and ends the connection. Because messages cross each other, each side judges by what it
has seen itself: a replica by the commands it has received, a controller by those it has sent, which may be
more. Messages that the protocol leaves open are allowed: a `CancelPeek` for an answered peek,
rows for a cancelled peek, frontiers of a dropped export.

A dropped export is forgotten once no more messages about it are allowed, so that memory is bounded by live
state.
"""

from __future__ import annotations

from enum import Enum

from headrace.compute.errors import ProtocolViolation
from headrace.compute.protocol.commands import (
    CancelPeek,
    Command,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    Peek,
    UpdateConfiguration,
)
from headrace.compute.protocol.export_state import ExportStates
from headrace.compute.protocol.responses import Canceled, PeekResponse, Response, Status

MOST_ANSWERED = 100_000
"""Limit on remembered answered peeks, which may still be cancelled; the oldest are forgotten."""


class PeekStages:
    """Pending peeks, and answered ones whose `CancelPeek` may still arrive."""

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
            return "The peek was not cancelled."
        del self._waiting[response.uuid]
        if not cancelled:
            self._answered[response.uuid] = None
            if len(self._answered) > MOST_ANSWERED:
                del self._answered[next(iter(self._answered))]
                self._forgotten = True
        return None


class Stage(Enum):
    """Stage of a connection: creation, initialization or computation."""

    CREATION = "creation"
    INITIALIZATION = "initialization"
    COMPUTATION = "computation"


class _Stages:
    """State common to both sides: the order of commands, and the responses that follow from them."""

    def __init__(self) -> None:
        self.stage = Stage.CREATION
        self._begun = False
        self._peeks = PeekStages()
        self._exports = ExportStates()

    @property
    def remembered(self) -> int:
        """Number of remembered exports and peeks."""
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
                why = "It is sent once, in the creation stage."
            case InitializationComplete():
                why = "It is sent once." if self.stage is Stage.COMPUTATION else None
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
            why = "A replica sends nothing in the creation stage."
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
            f"{name}{'' if about is None else f' of {about}'} is not allowed at this point",
            why=why,
            fix="this is a bug in the sender; the receiver ignored the message",
            stage=self.stage.value,
            message=name,
        )


class ControllerStages(_Stages):
    """Protocol state on the controller's side."""

    def check_sent(self, command: Command) -> None:
        """Check a command to be sent. Raises `ProtocolViolation`."""
        self._command(command)

    def check_response(self, response: Response) -> None:
        """Check a received response. Raises `ProtocolViolation`."""
        self._response(response)


class ReplicaStages(_Stages):
    """Protocol state on the replica's side."""

    def check_command(self, command: Command) -> None:
        """Check a received command. Raises `ProtocolViolation`."""
        self._command(command)

    def check_sent(self, response: Response) -> None:
        """Check a response to be sent. Raises `ProtocolViolation`."""
        self._response(response)
