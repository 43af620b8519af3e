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

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from headrace.compute.errors import ProtocolViolation
from headrace.compute.frontier import END, LAST_TIME, START, Frontier
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CollectionExport,
    Command,
    CopyToExport,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Export,
    Id,
    IndexExport,
    IndexTarget,
    InitializationComplete,
    Peek,
    Schedule,
    SubscribeExport,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    CopyToResponse,
    Dropped,
    DroppedAt,
    EncodedUpdates,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    RowCount,
    Status,
    SubscribeResponse,
    Update,
)

# Methods return the reason why a message is not allowed, or None.


Kind = Literal["write", "input", "output"]
_KINDS: tuple[Kind, ...] = ("write", "input", "output")


@dataclass(slots=True)
class ExportProtocolState:
    """Responses still owed for an export. since: last compaction. ended: whether all have been sent."""

    export: Export
    as_of: Frontier
    since: Frontier = field(init=False)
    scheduled: bool = False
    dropped: bool = False
    ended: bool = False

    def __post_init__(self) -> None:
        self.since = self.as_of

    def schedule(self) -> str | None:
        if self.scheduled:
            return "It is scheduled already."
        self.scheduled = True
        return None

    def compact(self, frontier: Frontier) -> str | None:
        if frontier < self.since:
            return f"It is compacted to {self.since} already, and {frontier} is before that."
        self.since = frontier
        self.dropped = frontier == END
        return None


@dataclass(slots=True)
class FrontiersState(ExportProtocolState):
    """Reported frontiers of an index or collection export. The last one of each kind is END."""

    reported: dict[Kind, Frontier] = field(default_factory=dict[Kind, Frontier])

    def report(self, response: Frontiers) -> str | None:
        found: list[Frontier | None] = [getattr(response, kind) for kind in _KINDS]
        now: dict[Kind, Frontier] = {
            kind: frontier for kind, frontier in zip(_KINDS, found) if frontier is not None
        }
        if not now:
            return "It reports no frontier."
        for kind, frontier in now.items():
            before = self.reported.get(kind)
            if before is None and frontier < self.as_of:
                return f"The first {kind} frontier {frontier} is before the as-of {self.as_of}."
            if before is not None and frontier <= before:
                return f"The {kind} frontier {frontier} is not after {before}, which was reported before."
        after = self.reported | now
        if "write" in after and "output" in after and after["write"] < after["output"]:
            return "The output frontier is after the write frontier."
        self.reported = after
        self.ended = all(self.reported.get(kind) == END for kind in _KINDS)
        return None


@dataclass(slots=True)
class SubscriptionState(ExportProtocolState):
    """Sent batches of a subscription, up to `upper`. failed: whether one had a problem."""

    upper: Frontier = START
    failed: bool = False

    def see(self, event: BatchResponse | DroppedAt) -> str | None:
        if self.ended:
            return "The subscription has ended."
        if isinstance(event, DroppedAt):
            if not self.dropped:
                return "It was not dropped."
            if event.frontier != self.upper:
                return f"Its last batch ended at {self.upper} and not at {event.frontier}."
            self.ended = True
            return None
        return self._batch(event)

    def _batch(self, batch: BatchResponse) -> str | None:
        if batch.lower != self.upper:
            return f"The batch begins at {batch.lower} and not at {self.upper}, where the last one ended."
        if batch.upper <= batch.lower:
            return f"The batch from {batch.lower} to {batch.upper} has no times."
        if batch.upper <= self.as_of:
            return f"The batch ends at {batch.upper}, and no batch may end by the as-of {self.as_of}."
        if isinstance(batch.updates, Problem):
            self.failed = True
        elif self.failed and batch.updates:
            return "An earlier batch had a problem, so no later one has updates."
        elif any(not self._allows(batch, time) for time in _times(batch.updates)):
            return f"It has updates outside {batch.lower} to {batch.upper}, or before the as-of {self.as_of}."
        self.upper = batch.upper
        self.ended = batch.upper == END
        return None

    def _allows(self, batch: BatchResponse, time: int) -> bool:
        assert isinstance(self.export, SubscribeExport)
        first = self.as_of.has_passed(time) or (not self.export.snapshot and time == self.as_of.time)
        return not first and not batch.lower.has_passed(time) and batch.upper.has_passed(time)


def _times(updates: tuple[Update, ...] | EncodedUpdates) -> Iterable[int]:
    return (updates.time,) if isinstance(updates, EncodedUpdates) else (time for _, time, _ in updates)


@dataclass(slots=True)
class CopyResponseState(ExportProtocolState):
    """Answer to a copy, owed or sent. There is exactly one."""

    def answer(self, result: RowCount | Problem | Dropped) -> str | None:
        assert isinstance(self.export, CopyToExport)
        if self.ended:
            return "The copy is answered already."
        if isinstance(result, Dropped) and not self.dropped:
            return "It was not dropped."
        self.ended = True
        return None


_UNKNOWN = "It was not created, or is dropped."


class ExportStates:
    """Protocol states of a connection's exports, each kept while messages about it are allowed."""

    def __init__(self) -> None:
        self._known: dict[Id, ExportProtocolState] = {}

    def __len__(self) -> int:
        return len(self._known)

    def command(self, command: CreateDataflow | Schedule | AllowWrites | AllowCompaction) -> str | None:
        if isinstance(command, CreateDataflow):
            return self._create(command.dataflow)
        state = self._known.get(command.id)
        if state is None or state.dropped:
            return _UNKNOWN
        match command:
            case Schedule():
                return state.schedule()
            case AllowWrites():
                return None
            case AllowCompaction(id, frontier):
                why = state.compact(frontier)
                if why is None:
                    self._forget(id, state)
                return why

    def peek(self, command: Peek) -> str | None:
        if not isinstance(command.target, IndexTarget):
            return None
        state = self._known.get(command.target.id)
        if state is None or state.dropped:
            return f"The index {command.target.id} was not created, or is dropped."
        return None if isinstance(state.export, IndexExport) else f"{command.target.id} is no index."

    def response(self, response: Frontiers | SubscribeResponse | CopyToResponse) -> str | None:
        state = self._known.get(response.id)
        if state is None:
            return "It was not created, or is dropped and its end was reported."
        match response, state:
            case Frontiers(), FrontiersState():
                why = state.report(response)
            case SubscribeResponse(), SubscriptionState():
                why = state.see(response.event)
            case CopyToResponse(), CopyResponseState():
                why = state.answer(response.result)
            case _:
                return f"It is a {type(state.export).__name__}, which has no such responses."
        if why is None:
            self._forget(response.id, state)
        return why

    def _create(self, dataflow: Dataflow) -> str | None:
        if not dataflow.exports:
            return "It exports nothing, so it could never be dropped."
        if dataflow.as_of.time in (None, LAST_TIME):
            return f"It begins at {dataflow.as_of}, and nothing comes after that."
        if len(dataflow.export_ids) != len(dataflow.exports):
            return "Two of its exports have one id."
        for export in dataflow.exports:
            if export.id in self._known:
                return f"{export.id} is created already."
        for index in dataflow.indexes:
            state = self._known.get(index.id)
            if state is None or state.dropped or not isinstance(state.export, IndexExport):
                return f"It imports the index {index.id}, which was not created, or is dropped."
        for export in dataflow.exports:
            self._known[export.id] = _initial_state(export, dataflow)
        return None

    def _forget(self, id: Id, state: ExportProtocolState) -> None:
        if state.dropped and state.ended:
            del self._known[id]


def _initial_state(export: Export, dataflow: Dataflow) -> ExportProtocolState:
    match export:
        case IndexExport() | CollectionExport():
            return FrontiersState(export, dataflow.as_of)
        case SubscribeExport():
            return SubscriptionState(export, dataflow.as_of)
        case CopyToExport():
            return CopyResponseState(export, dataflow.as_of)


MAX_ANSWERED = 100_000
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
            if len(self._answered) > MAX_ANSWERED:
                del self._answered[next(iter(self._answered))]
                self._forgotten = True
        return None


class ProtocolStage(Enum):
    """Stage of a connection: creation, initialization or computation."""

    CREATION = "creation"
    INITIALIZATION = "initialization"
    COMPUTATION = "computation"


class _Stages:
    """State common to both sides: the order of commands, and the responses that follow from them."""

    def __init__(self) -> None:
        self.stage = ProtocolStage.CREATION
        self._begun = False
        self._peeks = PeekStages()
        self._exports = ExportStates()

    @property
    def remembered(self) -> int:
        """Number of remembered exports and peeks."""
        return len(self._exports) + len(self._peeks)

    def _command(self, command: Command) -> None:
        if self.stage is ProtocolStage.CREATION:
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
                why = "It is sent once." if self.stage is ProtocolStage.COMPUTATION else None
                self.stage = ProtocolStage.COMPUTATION
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
            self.stage = ProtocolStage.INITIALIZATION
        self._begun = True

    def _response(self, response: Response) -> None:
        if self.stage is ProtocolStage.CREATION:
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
