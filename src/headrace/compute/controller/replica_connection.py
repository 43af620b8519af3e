"""Replica of a controller: its crashes, and its connection, which sends commands and takes responses."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from headrace.compute.controller.catalog import ReplicaEntry
from headrace.compute.controller.instance import Instance, Kept, Tracking
from headrace.compute.controller.pending import PendingReads
from headrace.compute.controller.status import ControllerSettings, ReplicaState
from headrace.compute.errors import ComputeError
from headrace.compute.frontier import END, Frontier
from headrace.compute.hydration import SequentialHydration
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateTimely,
    Dataflow,
    Epoch,
    Export,
    Id,
    InitializationComplete,
    Parameters,
    Peek,
    Schedule,
    SubscribeExport,
    TimelyConfig,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import (
    BROKEN,
    CopyToResponse,
    DroppedAt,
    Frontiers,
    PeekResponse,
    Response,
    Status,
    SubscribeResponse,
)

Answer: TypeAlias = PeekResponse | SubscribeResponse | CopyToResponse


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """Parts of a controller shared by all its connections, and its callbacks for connection events.

    deliver: takes the answer of a replica to a read.
    lost:    called when a connection has ended by itself.
    """

    instance: Instance
    pending: PendingReads
    clock: Callable[[], int]
    note: Callable[[str | None, str], None]
    deliver: Callable[[str, Answer], None]
    lost: Callable[[ReplicaConnection, ComputeError | None], None]


@dataclass(frozen=True, slots=True)
class HistoryOverrides:
    """Per-connection values that override those in the commands of the shared history."""

    replica: str
    timely: TimelyConfig
    epoch: Epoch
    nonce: bytes
    overrides: Parameters


class ReplicaConnection:
    """Connection to a replica, driven by a transport.

    The transport sends what `take_commands` returns, passes responses to `handle_response`, and calls
    `record_stream_end` at the end of the stream.

    wake: called when there may be commands to take, or the connection is over; set by the transport.
    gave_up: whether the replica was so far behind with some exports that their inputs are no longer kept.
    broken: exports that the replica cannot continue, though another could; for people.
    heard: ms of the clock at the last response, or at connecting.
    """

    def __init__(self, specifics: HistoryOverrides, context: ConnectionContext, kept: Kept) -> None:
        self.wake: Callable[[], None] = _nothing
        self.heard = context.clock()
        self._context = context
        self._instance = instance = context.instance
        self.tracking = Tracking(instance.holds, kept, self._note)
        self.status: dict[Id | None, Status] = {}
        self.says: dict[str, float] = {}
        self.broken: frozenset[Id] = frozenset()
        self.initialized = self.gave_up = False
        self._specifics = specifics
        self._reader = instance.log.open_cursor(self._is_for_this_replica, instance.uppers)
        self._hydration = SequentialHydration()
        self._ready: deque[Command] = deque()
        self._closed = False

    @property
    def replica(self) -> str:
        """Name of the replica."""
        return self._specifics.replica

    @property
    def epoch(self) -> Epoch:
        return self._specifics.epoch

    @property
    def nonce(self) -> bytes:
        return self._specifics.nonce

    @property
    def is_over(self) -> bool:
        """Whether the transport must end the stream and call `failed(None)`.

        True if the connection was superseded, is too far behind, or its replica was dropped.
        """
        return self._closed or self._reader.cut or self.gave_up

    @property
    def fell_behind(self) -> bool:
        """Whether the replica was too slow in reading commands."""
        return self._reader.cut

    def take_commands(self, most: int = 100) -> list[Command]:
        """Take the next commands to send, in order; none if the connection is over."""
        taken: list[Command] = []
        if self.is_over:
            return taken
        while len(taken) < most and (self._ready or self._fill(most - len(taken))):
            while self._ready and len(taken) < most:
                taken.append(self._ready.popleft())
        return taken

    def handle_response(self, response: Response) -> None:
        """Handle a response of the replica. Ignored after `close`."""
        if self._closed:
            return
        self.heard = self._context.clock()
        match response:
            case Frontiers():
                self._absorb_frontiers(response)
            case PeekResponse():
                self._context.deliver(self.replica, response)
            case SubscribeResponse(id, event):
                if self._expects_answer(id, isinstance(event, DroppedAt) or event.upper == END):
                    self._context.deliver(self.replica, response)
            case CopyToResponse(id):
                if self._expects_answer(id, True):
                    self._context.deliver(self.replica, response)
            case Status(None, text, values) if text == BROKEN:
                self.broken = frozenset(id for id, _ in values)
            case Status(None, _, values):
                self.says.update(values)
            case Status(id):
                if id in self.tracking.exports:
                    self.status[id] = response

    def give_up(self) -> None:
        """End the connection because some inputs are no longer kept. The replica rebuilds on the next one."""
        self.gave_up = True
        self.wake()

    def record_stream_end(self, error: ComputeError | None) -> None:
        """Report the end of the stream. A second call does nothing."""
        if not self._closed:
            self.close()
            self._context.lost(self, error)

    def close(self) -> None:
        """Close the connection; no more commands are taken, and no responses handled."""
        self._closed = True
        self._reader.close()
        self._ready.clear()
        self.wake()

    def _fill(self, most: int) -> bool:
        """Prepare up to `most` commands of the history for sending. Returns whether there were any."""
        commands = self._reader.take_commands(most)
        for command in commands:
            # Fast path: most commands are peeks and cancellations.
            if isinstance(command, Peek | CancelPeek):
                self._ready.append(command)
                continue
            for specialised in self._specialised(command):
                for sent in self._hydration.commands_for(specialised):
                    self._send(sent)
        return bool(commands)

    def _send(self, command: Command) -> None:
        if isinstance(command, Schedule):
            self.tracking.record_scheduled(command.id)
        self._ready.append(command)

    def _specialised(self, command: Command) -> list[Command]:
        """Return the commands to send to this replica for a command of the history."""
        known = self.tracking.exports
        match command:
            case CreateTimely():
                s = self._specifics
                return [CreateTimely(s.timely, s.epoch, s.nonce)]
            case UpdateConfiguration(parameters):
                return [UpdateConfiguration(parameters.overridden_by(self._specifics.overrides))]
            case CreateDataflow(dataflow):
                return self._create(dataflow)
            case Schedule(id) | AllowWrites(id):
                return [command] if id in known else []
            case AllowCompaction(id, frontier):
                return [command] if self.tracking.record_compaction(id, frontier) else []
            case InitializationComplete():
                self.initialized = True
                self.tracking.finish_initialization()
                return [command]
            case _:
                return [command]

    def _is_for_this_replica(self, command: Command) -> bool:
        """Whether a command is for all replicas, or for this one only."""
        match command:
            case Peek(uuid):
                pending = self._context.pending.peeks.get(uuid)
                return pending is None or pending.accepts(self.replica)
            case CreateDataflow(dataflow):
                known = (self._instance.running.get(export.id) for export in dataflow.exports)
                return next((e.target for e in known if e is not None), None) in (None, self.replica)
            case _:
                return True

    def _create(self, dataflow: Dataflow) -> list[Command]:
        # The command may be old by now, and the inputs are only held from the sinces of the exports on.
        since = self._instance.since(dataflow)
        if since == END:
            return []
        uppers = self._instance.uppers
        imports = tuple(replace(i, upper=uppers.get(i.id, i.upper)) for i in dataflow.collections)
        as_of = max(since, dataflow.as_of)
        exports = tuple(self._undelivered(export, as_of) for export in dataflow.exports)
        dataflow = replace(dataflow, collections=imports, exports=exports, as_of=as_of)
        self.tracking.create(dataflow)
        return [CreateDataflow(dataflow)]

    def _undelivered(self, export: Export, as_of: Frontier) -> Export:
        """Return a subscription without its snapshot if that was delivered; any other export as it is."""
        if not isinstance(export, SubscribeExport):
            return export
        subscription = self._context.pending.subscriptions.get(export.id)
        delivered = subscription is not None and subscription.upper > as_of
        return replace(export, snapshot=False) if delivered else export

    def _absorb_frontiers(self, report: Frontiers) -> None:
        if not self.tracking.handle_report(report):
            return
        if report.write is not None:
            self._instance.record_progress(report.id, report.write)
        if report.id not in self.tracking.exports:
            self.status.pop(report.id, None)
        if report.input == END:
            self._instance.record_stopped(report.id)
        released = self._hydration.commands_after(report)
        for command in released:
            self._send(command)
        if released:
            self.wake()

    def _expects_answer(self, id: Id, done: bool) -> bool:
        """Whether responses for `id` are expected. done: whether this is the last one."""
        tracked = self.tracking.exports.get(id)
        if tracked is None or tracked.reports or tracked.done:
            self._note(f"unexpected response for {id}")
            return False
        if done:
            self.tracking.record_complete(id)
        return True

    def _note(self, text: str) -> None:
        self._context.note(self.replica, text)


def retry_delay(random: random.Random, tries: int, first: int, longest: int) -> int:
    """Return the milliseconds to wait before the next try, after `tries` failures.

    The wait doubles from `first` up to `longest`; up to half of it is randomly removed, so that replicas that
    failed together are not retried together.
    """
    most = min(first << min(max(tries - 1, 0), 30), longest)
    return most - random.randint(0, most // 2)


@dataclass(slots=True)
class CrashRecord:
    """Recent crashes of one replica.

    deaths:    times of the crashes, ms of the clock.
    rebuilds:  times at which it had fallen behind, and connected again to rebuild dataflows.
    hydrating: exports that were hydrating at the last crash.
    until:     end of the quarantine, or None.
    probation: whether it was quarantined before, so that one more crash quarantines it again.
    """

    deaths: list[int] = field(default_factory=list[int])
    rebuilds: list[int] = field(default_factory=list[int])
    hydrating: tuple[Id, ...] = ()
    until: int | None = None
    probation: bool = False

    def record_crash(self, now: int, hydrating: Iterable[Id], settings: ControllerSettings) -> None:
        """Record a crash; at the limit, quarantine the replica."""
        self.deaths = [at for at in self.deaths if at > now - settings.window] + [now]
        self.hydrating = tuple(hydrating)
        if self.probation or len(self.deaths) >= settings.quarantine_after:
            self.until = now + settings.quarantine

    def record_rebuild(self, now: int, settings: ControllerSettings) -> int:
        """Record that the replica has to rebuild dataflows. Returns the number of rebuilds in the window."""
        self.rebuilds = [at for at in self.rebuilds if at > now - settings.window] + [now]
        return len(self.rebuilds)

    def recent_crash_count(self, now: int, settings: ControllerSettings) -> int:
        """Return the number of crashes in the window."""
        return sum(at > now - settings.window for at in self.deaths)

    def hydrates_sequentially(self, now: int, settings: ControllerSettings) -> bool:
        """Whether the replica should hydrate one dataflow at a time."""
        return self.probation or self.recent_crash_count(now, settings) >= settings.careful_after

    def is_quarantined(self, now: int) -> bool:
        """Whether the replica is quarantined. After a quarantine it is on probation, with a single try."""
        if self.until is not None and now >= self.until:
            self.until, self.probation = None, True
        return self.until is not None

    def forgive(self) -> None:
        """Forget all crashes of a replica that was steady for long enough, or was released."""
        self.deaths, self.hydrating, self.until, self.probation = [], (), None, False
        self.rebuilds = []


@dataclass(slots=True, eq=False)
class ReplicaRecord:
    """State of one replica, connected or not.

    connections: number of connections so far.
    since:    ms of the clock at which it entered its current state.
    tries:    failed attempts since it was last connected.
    retry_at: time of the next attempt.
    problem:  reason why it is not connected.
    kept:     holds on the inputs that it may still read.
    """

    entry: ReplicaEntry
    since: int
    retry_at: int
    connection: ReplicaConnection | None = None
    connections: int = 0
    tries: int = 0
    problem: str = ""
    crashes: CrashRecord = field(default_factory=CrashRecord)
    kept: Kept = field(default_factory=Kept)

    @property
    def name(self) -> str:
        return self.entry.name

    def state(self, now: int) -> ReplicaState:
        if self.connection is not None:
            return ReplicaState.CONNECTED
        return ReplicaState.QUARANTINED if self.crashes.is_quarantined(now) else ReplicaState.WAITING


def _nothing() -> None:
    pass
