"""Command history, which brings a new replica into the same state as the others.

Commands are appended. From time to time the history is *reduced*: rewritten into the shortest sequence with
the same effect, so that its length is proportional to the live state, whatever was created and dropped
before. The controller keeps one history, without the epoch and nonce of a connection, which are filled in on
sending. Each replica keeps one of the commands it has received, for reconciliation.

Law: replaying a reduced history has the same effect as replaying the whole; `reduce_commands` is idempotent.
It holds for histories that respect read holds: in the end, no index is compacted beyond the as-of of a live
dataflow that imports it, nor beyond the time of a peek that was not cancelled. A controller's `ReadHolds` see
to that. Without them, a reduction gives an importing dataflow an index that is gone, or whose as-of is later.
Source: the compute protocol of Materialize, its history (reference).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod

from headrace.compute.frontier import END, START, Frontier, meet
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Id,
    InitializationComplete,
    Parameters,
    Peek,
    Schedule,
    UpdateConfiguration,
)


class CommandHistory:
    """Command sequence that stays short through reduction.

    commands: the commands to replay, in order. Do not modify the list; each reduction replaces it.
    slack: number of commands allowed beyond twice the reduced length, for fewer reductions.
    """

    def __init__(self, commands: Iterable[Command] = (), *, slack: int = 0) -> None:
        self.commands: list[Command] = []
        self._slack = slack
        self._reduced_length = 0
        for command in commands:
            self.push(command)

    def __len__(self) -> int:
        return len(self.commands)

    def push(self, command: Command) -> None:
        """Add a command. Reduces whenever the length has doubled, so that a push takes amortized O(1)."""
        self.commands.append(command)
        if len(self.commands) > 2 * self._reduced_length + self._slack:
            self.reduce()

    def reduce(self) -> None:
        """Rewrite the history into the shortest sequence with the same effect."""
        self.commands = reduce_commands(self.commands)
        self._reduced_length = len(self.commands)

    def discard_peeks(self) -> None:
        """Discard peeks, for a replica whose next controller sends its own."""
        self.commands = [c for c in self.commands if not isinstance(c, Peek | CancelPeek)]

    def replay(self, uppers: Mapping[Id, Frontier]) -> list[Command]:
        """Return the reduced history for a new connection, with the current uppers of collections."""
        self.reduce()
        return [_with_uppers(command, uppers) for command in self.commands]


def reduce_commands(commands: Iterable[Command]) -> list[Command]:
    """Return the shortest sequence with the same effect as `commands`.

    Its order is: `CreateTimely`; `CreateInstance`; one merged `UpdateConfiguration`, if it sets anything;
    each `CreateDataflow` with an export that is not dropped, with the as-of to which all its exports are
    compacted; the `Schedule`s of their exports; each `Peek` that was not cancelled, by uuid; each
    `AllowCompaction` beyond the as-of, in the order of the exports; the `AllowWrites`;
    `InitializationComplete`.

    A second `CreateTimely` or `CreateInstance`, and an `AllowCompaction` earlier than the as-of or than a
    previous one, are bugs of the caller and raise AssertionError, since reducing them would hide the bug.
    """
    effects = _Effects()
    for command in commands:
        effects.add(command)
    return effects.commands()


@dataclass(slots=True)
class _Effects:
    """Combined effect of the commands so far."""

    timely: CreateTimely | None = None
    instance: CreateInstance | None = None
    initialized: InitializationComplete | None = None
    parameters: Parameters = field(default_factory=Parameters)
    dataflows: list[Dataflow] = field(default_factory=list[Dataflow])
    scheduled: dict[Id, Schedule] = field(default_factory=dict[Id, Schedule])
    writing: dict[Id, AllowWrites] = field(default_factory=dict[Id, AllowWrites])
    compactions: dict[Id, Frontier] = field(default_factory=dict[Id, Frontier])
    peeks: dict[bytes, Peek] = field(default_factory=dict[bytes, Peek])

    @singledispatchmethod
    def add(self, command: Command) -> None:
        raise AssertionError(f"no command: {command!r}")

    @add.register
    def _(self, command: CreateTimely) -> None:
        if self.timely is not None:
            raise AssertionError("a second CreateTimely in one history")
        self.timely = command

    @add.register
    def _(self, command: CreateInstance) -> None:
        if self.instance is not None:
            raise AssertionError("a second CreateInstance in one history")
        self.instance = command

    @add.register
    def _(self, command: InitializationComplete) -> None:
        self.initialized = command

    @add.register
    def _(self, command: UpdateConfiguration) -> None:
        self.parameters = self.parameters.overridden_by(command.parameters)

    @add.register
    def _(self, command: CreateDataflow) -> None:
        self.dataflows.append(command.dataflow)

    @add.register
    def _(self, command: Schedule) -> None:
        self.scheduled[command.id] = command

    @add.register
    def _(self, command: AllowWrites) -> None:
        self.writing[command.id] = command

    @add.register
    def _(self, command: AllowCompaction) -> None:
        _check_rises(command, self.compactions.get(command.id, START))
        self.compactions[command.id] = command.frontier

    @add.register
    def _(self, command: Peek) -> None:
        self.peeks[command.uuid] = command

    @add.register
    def _(self, command: CancelPeek) -> None:
        self.peeks.pop(command.uuid, None)

    def commands(self) -> list[Command]:
        residual = dict(self.compactions)
        retained = [d for d in (_compacted(d, residual) for d in self.dataflows) if not d.as_of.ended]
        ids = dict.fromkeys(export.id for dataflow in retained for export in dataflow.exports)
        # Not in the order of the commands, which would depend on earlier reductions.
        ordered = [id for id in ids if id in residual] + [id for id in residual if id not in ids]
        start = (self.timely, self.instance, self._configuration())
        return [
            *(command for command in start if command is not None),
            *map(CreateDataflow, retained),
            *(schedule for id, schedule in self.scheduled.items() if id in ids),
            *(self.peeks[uuid] for uuid in sorted(self.peeks)),
            *(AllowCompaction(id, residual[id]) for id in ordered),
            # Skip dropped exports of a dataflow that is kept for its other exports.
            *(w for id, w in self.writing.items() if id in ids and self.compactions.get(id) != END),
            *([self.initialized] if self.initialized else []),
        ]

    def _configuration(self) -> UpdateConfiguration | None:
        return None if self.parameters == Parameters() else UpdateConfiguration(self.parameters)


def _compacted(dataflow: Dataflow, compactions: dict[Id, Frontier]) -> Dataflow:
    """Advance a dataflow's as-of to the earliest time at which any of its exports may still be read.

    Removes the compactions that the new as-of implies.
    """
    for export in dataflow.exports:
        if export.id in compactions:
            _check_rises(AllowCompaction(export.id, compactions[export.id]), dataflow.as_of)
    as_of = meet(compactions.get(e.id, dataflow.as_of) for e in dataflow.exports)
    for export in dataflow.exports:
        if compactions.get(export.id, as_of) <= as_of:
            compactions.pop(export.id, None)
    return dataflow.at(as_of)


def _check_rises(command: AllowCompaction, before: Frontier) -> None:
    # Not an `assert`, which `python -O` would omit.
    if command.frontier < before:
        raise AssertionError(f"a compaction of {command.id} goes back: {command.frontier} after {before}")


def _with_uppers(command: Command, uppers: Mapping[Id, Frontier]) -> Command:
    if not isinstance(command, CreateDataflow):
        return command
    imports = tuple(replace(i, upper=uppers.get(i.id, i.upper)) for i in command.dataflow.collections)
    return CreateDataflow(replace(command.dataflow, collections=imports))


# A new connection starts with the reduced history of that moment, then reads the commands pushed since.
# Commands that all connections have read are discarded. A connection that stays too far behind is cut, and
# its successor starts with a reduced history, which is short. So memory is bounded by the live state plus
# `most_behind` commands, however slow a replica is.
#
# A connection reads every command after its start exactly once, in order of their numbers. A peek and its
# `CancelPeek` are both left out if the `CancelPeek` was pushed before the connection took the peek.
# Source: a replica's connection in the compute protocol of Materialize queues without bound; this does not
# (reference, improvement 4).


_SLACK = 1_000
"""Commands that the history may hold beyond the live state before it is reduced."""


def send_every_command(_command: Command) -> bool:
    return True


class CommandLog:
    """Command history of a controller, with the log of commands not yet read by all connections.

    most_behind: number of commands that a connection may be behind before it is cut.
    """

    def __init__(self, commands: Iterable[Command] = (), *, most_behind: int = 10_000) -> None:
        self.history = CommandHistory(commands, slack=_SLACK)
        self.most_behind = most_behind
        self._log: deque[Command] = deque()
        self._first = 0  # number of the first command in the log
        self._readers: list[LogCursor] = []
        self._cancelled: dict[bytes, int] = {}  # numbers of the CancelPeeks in the log, by uuid

    @property
    def end(self) -> int:
        """Number of the next command."""
        return self._first + len(self._log)

    @property
    def unread_count(self) -> int:
        """Number of commands not yet read by all connections."""
        return len(self._log)

    def push(self, command: Command) -> None:
        """Add a command for all present and future connections."""
        self.history.push(command)
        if isinstance(command, CancelPeek):
            self._cancelled[command.uuid] = self.end
        self._log.append(command)
        if len(self._log) > self.most_behind:
            for reader in [r for r in self._readers if r.unread_count > self.most_behind]:
                reader.cut = True
                reader.close()
        if not self._readers:
            self.trim()

    def open_cursor(
        self,
        wanted: Callable[[Command], bool] = send_every_command,
        uppers: Mapping[Id, Frontier] | None = None,
    ) -> LogCursor:
        """Start a connection with the current reduced history, followed by later commands.

        wanted: whether a command concerns this replica; called when it is taken. The cancellation of a peek
            follows the peek.
        uppers: current uppers of collections, put into the imports.
        """
        reader = LogCursor(self, self.history.replay(uppers or {}), wanted)
        self._readers.append(reader)
        return reader

    def command_at(self, number: int) -> Command:
        """Return the command with a number that is still in the log."""
        return self._log[number - self._first]

    def is_cancelled(self, uuid: bytes) -> bool:
        """Whether the log holds the `CancelPeek` of a peek."""
        return uuid in self._cancelled

    def remove_reader(self, reader: LogCursor) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
        self.trim()

    def trim(self) -> None:
        """Discard the commands that all readers have read."""
        read = min((r.position for r in self._readers), default=self.end)
        while self._first < read:
            command = self._log.popleft()
            if isinstance(command, CancelPeek) and self._cancelled.get(command.uuid) == self._first:
                del self._cancelled[command.uuid]
            self._first += 1


class LogCursor:
    """Position of a connection in the log.

    cut: whether it was too far behind and gets no more commands; the connection must end, and the next one
        starts over.
    position: number of the next command to read from the log.
    """

    def __init__(self, log: CommandLog, start: list[Command], wanted: Callable[[Command], bool]) -> None:
        self.cut = False
        self.position = log.end
        self._log = log
        self._start = deque(start)
        self._wanted = wanted
        self._peeks: set[bytes] = set()  # handed out, and not cancelled yet
        self._closed = False

    @property
    def unread_count(self) -> int:
        """Number of unread commands in the log."""
        return self._log.end - self.position

    @property
    def has_commands(self) -> bool:
        """Whether commands may be available."""
        return not self._closed and bool(self._start or self.unread_count)

    def take_commands(self, most: int = 100) -> list[Command]:
        """Take the next commands, at most `most`; none once the cursor is closed."""
        taken: list[Command] = []
        if not self.has_commands:
            return taken
        while len(taken) < most and self.has_commands:
            command = self._next()
            if self._is_due(command):
                taken.append(command)
        self._log.trim()
        return taken

    def close(self) -> None:
        """Close the cursor, and release the commands that only it had not read."""
        self._closed = True
        self._start.clear()
        self._log.remove_reader(self)

    def _next(self) -> Command:
        if self._start:
            return self._start.popleft()
        command = self._log.command_at(self.position)
        self.position += 1
        return command

    def _is_due(self, command: Command) -> bool:
        """Whether to hand out a command. A cancellation is due if and only if its peek was handed out."""
        match command:
            case CancelPeek(uuid):
                if uuid not in self._peeks:
                    return False
                self._peeks.remove(uuid)
                return True
            case Peek(uuid) if self._wanted(command) and not self._log.is_cancelled(uuid):
                self._peeks.add(uuid)
                return True
            case Peek():
                return False
            case _:
                return self._wanted(command)
