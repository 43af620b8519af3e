"""Controller's side of a connection to a replica: commands to send, and handling of its responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.compute.controller.instance import Instance
from headrace.compute.controller.pending_reads import Copies, Peeks
from headrace.compute.controller.subscriptions import Subscriptions
from headrace.compute.controller.tracking import Kept, Tracking
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
    Epoch,
    InitializationComplete,
    Parameters,
    Peek,
    Schedule,
    TimelyConfig,
    UpdateConfiguration,
)
from headrace.compute.protocol.dataflow import Dataflow, Export, Id, SubscribeExport
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


@dataclass(frozen=True, slots=True)
class ResponseRouter:
    """Receivers of replica responses, shared by all connections."""

    instance: Instance
    peeks: Peeks
    subscriptions: Subscriptions
    copies: Copies
    note: Callable[[str | None, str], None]
    lost: Callable[[ReplicaConnection, ComputeError | None], None]

    def target_of(self, command: Peek | CreateDataflow) -> str | None:
        """Return the only replica that a command is for, or None for all."""
        if isinstance(command, Peek):
            pending = self.peeks.find(command.uuid)
            return pending.read.target if pending else None
        for export in command.dataflow.exports:
            running = self.instance.running.get(export.id)
            if running is not None:
                return running.target
        return None


@dataclass(frozen=True, slots=True)
class HistoryOverrides:
    """Values of one connection that replace those in the commands of the shared history."""

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

    def __init__(
        self,
        specifics: HistoryOverrides,
        router: ResponseRouter,
        kept: Kept,
        clock: Callable[[], int],
    ) -> None:
        self.wake: Callable[[], None] = _nothing
        self.heard = clock()
        self._clock = clock
        self._router = router
        self._instance = instance = router.instance
        self.tracking = Tracking(instance.holds, kept, self._note)
        self.status: dict[Id | None, Status] = {}
        self.says: dict[str, float] = {}
        self.broken: frozenset[Id] = frozenset()
        self.initialized = self.gave_up = False
        self._specifics = specifics
        self._reader = instance.outbox.open_cursor(uppers=instance.uppers)
        self._hydration = SequentialHydration()
        self._ready: deque[Command] = deque()
        self._peeks: set[bytes] = set()
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
        self.heard = self._clock()
        match response:
            case Frontiers():
                self._absorb_frontiers(response)
            case PeekResponse():
                self._router.peeks.on_response(self.replica, response)
            case SubscribeResponse(id, event):
                if self._knows(id, isinstance(event, DroppedAt) or event.upper == END):
                    self._router.subscriptions.on_response(self.replica, response)
            case CopyToResponse(id):
                if self._knows(id, True):
                    self._router.copies.on_response(self.replica, response)
            case Status(None, text, values) if text == BROKEN:
                self.broken = frozenset(id for id, _ in values)
            case Status(None, _, values):
                self.says.update(values)
            case Status(id):
                if id in self.tracking.exports:
                    self.status[id] = response

    def give_up(self) -> None:
        """End the connection because some inputs are no longer kept. On the next, the replica rebuilds."""
        self.gave_up = True
        self.wake()

    def record_stream_end(self, error: ComputeError | None) -> None:
        """Report the end of the stream. A second call does nothing."""
        if not self._closed:
            self.close()
            self._router.lost(self, error)

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
            if isinstance(command, Peek):
                self._peek(command)
            elif isinstance(command, CancelPeek):
                self._cancel(command)
            else:
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
                return self._create(command, dataflow)
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

    def _create(self, command: CreateDataflow, dataflow: Dataflow) -> list[Command]:
        # The command may be old by now, and the inputs are only held from the sinces of the exports on.
        since = self._instance.since(dataflow)
        if since == END or self._router.target_of(command) not in (None, self.replica):
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
        subscription = self._router.subscriptions.find(export.id)
        delivered = subscription is not None and subscription.upper > as_of
        return replace(export, snapshot=False) if delivered else export

    def _peek(self, command: Peek) -> None:
        if self._router.target_of(command) in (None, self.replica):
            self._peeks.add(command.uuid)
            self._ready.append(command)

    def _cancel(self, command: CancelPeek) -> None:
        if command.uuid in self._peeks:
            self._peeks.remove(command.uuid)
            self._ready.append(command)

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

    def _knows(self, id: Id, done: bool) -> bool:
        """Whether responses for `id` are expected. done: whether this is the last one."""
        tracked = self.tracking.exports.get(id)
        if tracked is None or tracked.reports or tracked.done:
            self._note(f"unexpected response for {id}")
            return False
        if done:
            self.tracking.record_complete(id)
        return True

    def _note(self, text: str) -> None:
        self._router.note(self.replica, text)


def _nothing() -> None:
    pass
