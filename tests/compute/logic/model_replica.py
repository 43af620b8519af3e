"""A replica as simple as can be: what a replica can say after a sequence of commands, at every time at once.

Its rows are symbols. What an index holds at a time is its plan and what its inputs hold then; what a
collection holds is its name and the time. So two replicas that say the same were built from the same, and one
that reads something that stopped, or that starts too late, or has forgotten too much, says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    Command,
    CopyToExport,
    CreateDataflow,
    Dataflow,
    Id,
    IndexTarget,
    Parameters,
    Peek,
    Schedule,
    SubscribeExport,
    UpdateConfiguration,
)
from headrace.compute.reconciliation import ReconciliationPlan, reconcile

GONE = "cannot be read any more"
STOPPED = "reads what has stopped"
MISSING = "was built from what could not be read"
NOT_COMPUTED = "is beyond what is computed"


@dataclass(eq=False, slots=True)
class _Built:
    """A dataflow that was built, and what it reads, as it stood then.

    since: of each export; END: dropped. connection: during which it was built.
    """

    dataflow: Dataflow
    inputs: list[Id | tuple[_Built, Id]]
    connection: int
    sound: bool
    since: dict[Id, Frontier]

    def holds(self, export: Id, time: int) -> Any:
        """What an export would hold at a time if nothing were forgotten."""
        if self.since[export] == END:
            return STOPPED
        if not self.sound:
            return MISSING
        inputs = [_held(i, time) for i in self.inputs]
        if NOT_COMPUTED in inputs or not self.dataflow.until.has_passed(time):
            return NOT_COMPUTED
        return (self.dataflow.plan.body, export, *inputs)

    def read(self, export: Id, time: int) -> Any:
        return GONE if self.since[export].has_passed(time) else self.holds(export, time)


def _held(input: Id | tuple[_Built, Id], time: int) -> Any:
    return (input, time) if isinstance(input, str) else input[0].holds(input[1], time)


@dataclass(slots=True)
class Said:
    """All that can be learned from a replica. exports: by id what it holds at each time."""

    parameters: Parameters
    exports: Mapping[Id, tuple[Any, ...]]
    peeks: Mapping[bytes, Any]
    delivered: Mapping[Id, Any]
    scheduled: frozenset[Id]
    writing: frozenset[Id]

    def serves_for(self, other: Said) -> bool:
        """Whether one who expects the other notices nothing: it may have begun earlier, and computed
        further."""
        return (
            self.parameters == other.parameters
            and self.peeks.keys() == other.peeks.keys()
            and _serves(self.peeks.values(), (other.peeks[uuid] for uuid in self.peeks))
            and self.delivered == other.delivered
            and self.scheduled >= other.scheduled
            and self.writing >= other.writing
            and self.exports.keys() == other.exports.keys()
            and all(_serves(self.exports[id], held) for id, held in other.exports.items())
        )


def _serves(held: Iterable[Any], expected: Iterable[Any]) -> bool:
    return all(b in (a, NOT_COMPUTED) for a, b in zip(held, expected, strict=True))


@dataclass(slots=True)
class ModelReplica:
    """last: the greatest time that is looked at."""

    last: int
    parameters: Parameters = field(default_factory=Parameters)
    _built: list[_Built] = field(default_factory=list[_Built])
    _peeks: dict[bytes, Any] = field(default_factory=dict[bytes, Any])
    _scheduled: set[Id] = field(default_factory=set[Id])
    _writing: set[Id] = field(default_factory=set[Id])
    _connection: int = 0

    def apply(self, commands: Iterable[Command]) -> ModelReplica:
        """Do as told; gives itself."""
        for command in commands:
            self._apply(command)
        return self

    def reconnect(self, installed: list[Command], asked: list[Command]) -> ReconciliationPlan:
        """Another connection, with what it has been told until now and what it is told anew."""
        found = reconcile(installed, asked)
        self._connection += 1
        self._peeks.clear()
        self.parameters = Parameters()
        self.apply(found.first).apply(found.then)
        return found

    def said(self) -> Said:
        alive = [(b, e) for b in self._built for e in b.dataflow.exports if b.since[e.id] != END]
        ids = {e.id for _, e in alive}
        transient = [(b, e) for b, e in alive if isinstance(e, SubscribeExport | CopyToExport)]
        return Said(
            self.parameters,
            {e.id: tuple(b.read(e.id, t) for t in range(self.last + 1)) for b, e in alive},
            dict(self._peeks),
            {e.id: (b.connection == self._connection, b.since[e.id]) for b, e in transient},
            frozenset(self._scheduled & ids),
            frozenset(self._writing & ids),
        )

    def _apply(self, command: Command) -> None:
        match command:
            case CreateDataflow(dataflow):
                self._build(dataflow)
            case Schedule(id):
                self._scheduled.add(id)
            case AllowWrites(id):
                self._writing.add(id)
            case AllowCompaction(id, frontier):
                self._compact(id, frontier)
            case UpdateConfiguration(parameters):
                self.parameters = self.parameters.overridden_by(parameters)
            case Peek(uuid, IndexTarget(id), time):
                built = self._exporting(id)
                self._peeks[uuid] = GONE if built is None else built.read(id, time)
            case CancelPeek(uuid):
                self._peeks.pop(uuid, None)
            case _:
                pass

    def _build(self, dataflow: Dataflow) -> None:
        read = [(self._exporting(i.id), i.id) for i in dataflow.indexes]
        indexes = [(built, id) for built, id in read if built is not None]
        sound = len(indexes) == len(read) and all(b.since[id] <= dataflow.as_of for b, id in indexes)
        inputs = [*(i.id for i in dataflow.collections), *indexes]
        since = dict.fromkeys((e.id for e in dataflow.exports), dataflow.as_of)
        self._built.append(_Built(dataflow, inputs, self._connection, sound, since))

    def _compact(self, id: Id, frontier: Frontier) -> None:
        built = self._exporting(id)
        if built is None:
            return
        built.since[id] = max(built.since[id], frontier)
        if frontier == END:
            self._scheduled.discard(id)
            self._writing.discard(id)

    def _exporting(self, id: Id) -> _Built | None:
        return next((b for b in self._built if b.since.get(id, END) != END), None)
