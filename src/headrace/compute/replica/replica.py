"""Replica: connections, protocol stages, epochs, reconciliation, and frontier reporting.

A replica has no sockets, threads or clocks of its own, and is independent of the runtime of its dataflows.
Its `Reporter` sends answers at once, and frontiers as they advance: each frontier starts at the as-of or
later, only advances, and ends once. Controllers release read holds based on reports, so a regressing
frontier, or one of a dropped export, would be worse than none.
Source: the compute protocol of Materialize, its reported frontiers (reference).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headrace.compute.errors import (
    ComputeError,
    FellBehind,
    IncompatibleInstance,
    ProtocolViolation,
    ReplicaExpired,
    ResultGone,
    StaleEpoch,
)
from headrace.compute.frontier import END, Frontier
from headrace.compute.history import CommandHistory
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CollectionExport,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Epoch,
    Id,
    IndexExport,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    Schedule,
    TimelyConfig,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import (
    BROKEN,
    BatchResponse,
    CopyToResponse,
    Counted,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    Status,
    SubscribeResponse,
)
from headrace.compute.protocol.stages import ProtocolStage, ReplicaStages
from headrace.compute.reconciliation import ReconciliationPlan, reconcile
from headrace.compute.replica.runtime import Answer, ReachedFrontiers, ReplicaRuntime
from headrace.errors import Origin


@dataclass(frozen=True, slots=True)
class NotReported:
    """Guard before the first report, which must be at `lower` or later.

    >>> NotReported(Frontier(5)).allows(Frontier(4)), NotReported(Frontier(5)).allows(END)
    (False, True)
    """

    lower: Frontier

    def allows(self, frontier: Frontier) -> bool:
        return self.lower <= frontier


@dataclass(frozen=True, slots=True)
class Reported:
    """Guard after a report of `frontier`: only later ones may follow, and none after END.

    >>> Reported(Frontier(5)).allows(Frontier(5)), Reported(END).allows(END)
    (False, False)
    """

    frontier: Frontier

    def allows(self, frontier: Frontier) -> bool:
        return self.frontier < frontier


Guard: TypeAlias = NotReported | Reported


class HasReached(Protocol):
    """Object with an export's frontiers, such as `replica.runtime.ReachedFrontiers`."""

    @property
    def write(self) -> Frontier: ...
    @property
    def input(self) -> Frontier: ...
    @property
    def output(self) -> Frontier: ...


@dataclass(slots=True)
class ReportedFrontiers:
    """Guards of one index or collection export.

    >>> reported = ReportedFrontiers.since("u1", Frontier(5))
    >>> reported.advance(write=Frontier(7), input=Frontier(9), output=Frontier(4))
    Frontiers(id='u1', write=Frontier(time=7), input=Frontier(time=9), output=None)
    >>> reported.advance(write=Frontier(7), input=Frontier(8), output=Frontier(4))
    """

    id: Id
    write: Guard
    input: Guard
    output: Guard

    @classmethod
    def since(cls, id: Id, as_of: Frontier) -> ReportedFrontiers:
        """Create the guards of an export created or kept at `as_of`, before any report."""
        return cls(id, NotReported(as_of), NotReported(as_of), NotReported(as_of))

    @property
    def ended(self) -> bool:
        """Return whether END of each kind was reported, so that nothing may follow."""
        return self.write == self.input == self.output == Reported(END)

    def advance(self, *, write: Frontier, input: Frontier, output: Frontier) -> Frontiers | None:
        """Report the frontiers allowed now; None if there are none."""
        reported = Frontiers(
            self.id,
            write if self.write.allows(write) else None,
            input if self.input.allows(input) else None,
            output if self.output.allows(output) else None,
        )
        if reported == Frontiers(self.id):
            return None
        self.write = _after(self.write, reported.write)
        self.input = _after(self.input, reported.input)
        self.output = _after(self.output, reported.output)
        return reported

    def report_reached(self, reached: HasReached) -> Frontiers | None:
        """Report the frontiers of a runtime, as `advance` does."""
        return self.advance(write=reached.write, input=reached.input, output=reached.output)

    def report_end(self) -> Frontiers | None:
        """Report END of each kind that has not ended."""
        return self.advance(write=END, input=END, output=END)


def _after(guard: Guard, reported: Frontier | None) -> Guard:
    return guard if reported is None else Reported(reported)


INTERVAL = 25
"""Default milliseconds between two reports of frontiers while there is other work."""


class Reporter:
    """Responses on the current connection. Silent until `begin`. clock: milliseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.silent = True
        self._clock = clock
        self._out: list[Response] = []
        self._guards: dict[Id, ReportedFrontiers] = {}
        self._dropped: dict[Id, None] = {}
        self._reported_at = 0
        self._anew = False

    def silence(self) -> None:
        """Discard unsent responses because the connection has ended."""
        self.silent = True
        self._out.clear()

    def begin(self) -> list[Id]:
        """Begin reporting on a connection whose initial commands are complete.

        Returns the exports that were dropped earlier, whose end need not be reported.
        """
        self.silent = False
        self._anew = True
        self._guards.clear()
        dropped = list(self._dropped)
        self._dropped.clear()
        return dropped

    def add_exports(self, dataflow: Dataflow) -> None:
        """Start reporting a dataflow's exports from its as-of on."""
        for export in dataflow.exports:
            if isinstance(export, IndexExport | CollectionExport):
                self._guards[export.id] = ReportedFrontiers.since(export.id, dataflow.as_of)

    def record_dropped(self, id: Id) -> bool:
        """Record a dropped export. Returns whether its end has still to be reported."""
        if id in self._guards:
            self._dropped[id] = None
            return True
        return False

    def queue_answers(self, answers: Iterable[Response]) -> None:
        """Queue answers."""
        if not self.silent:
            self._out.extend(answers)

    def is_due(self, moved: bool, busy: bool, interval: int | None) -> bool:
        """Return whether frontiers are due: always when idle, periodically while there is other work.

        moved: whether some frontiers may have risen. A new connection gets all of them.
        """
        wait = INTERVAL if interval is None else interval
        idle = not busy or self._clock() - self._reported_at >= wait
        return not self.silent and (moved or self._anew) and idle

    def report(self, reached: Mapping[Id, ReachedFrontiers]) -> list[Id]:
        """Report advanced frontiers. Returns the dropped exports whose end is reported, to be forgotten."""
        self._reported_at = self._clock()
        self._anew = False
        for id, guard in self._guards.items():
            found = reached.get(id)
            reported = None if found is None else guard.report_reached(found)
            if reported is not None:
                self._out.append(reported)
        ended = [id for id in self._dropped if self._guards[id].ended]
        for id in ended:
            del self._dropped[id], self._guards[id]
        return ended

    def take_responses(self) -> list[Response]:
        """Take the queued responses."""
        out, self._out = self._out, []
        return out


MakeRuntime = Callable[[TimelyConfig, InstanceConfig, Callable[[], None]], ReplicaRuntime]

_SLACK = 1_000
"""Commands, mostly peeks and their cancellations, that the history holds before it is reduced."""


class Replica:
    """Replica driven by a controller's commands. Used by one thread.

    clock: milliseconds. wake: called from any thread when there is work for `step` without a command.
    halt: called once, when the process must exit, to be restarted.
    greatest_epoch: greatest epoch of all connections so far; a later connection must have a greater one.
    """

    def __init__(
        self,
        make_runtime: MakeRuntime,
        *,
        clock: Callable[[], int],
        wake: Callable[[], None],
        halt: Callable[[ComputeError], None],
    ) -> None:
        self.greatest_epoch: Epoch | None = None
        self._make_runtime = make_runtime
        self._clock = clock
        self._wake = wake
        self._halt = halt
        self._halted = False
        self._nonce: bytes | None = None
        self._stages: ReplicaStages | None = None
        self._initial: list[Command] = []
        self._runtime: ReplicaRuntime | None = None
        self._runs: TimelyConfig | None = None
        self._began = 0
        self._expires: int | None = None
        self._history: CommandHistory | None = None
        self._parameters = Parameters()
        self._reporter = Reporter(clock)
        self._behind: FellBehind | None = None
        self._broken: frozenset[Id] = frozenset()

    def begin_connection(self, nonce: bytes) -> None:
        """Begin a connection, replacing an earlier one. Its first command is `CreateTimely`.

        nonce: nonce of the connection. Responses created for another connection are discarded.
        """
        self.end_connection()
        self._nonce = nonce
        self._stages = ReplicaStages()

    def end_connection(self) -> None:
        """End the connection. Dataflows continue, and the replica waits for the next connection."""
        self._stages = None
        self._initial = []
        self._behind = None
        self._reporter.silence()
        if self._runtime is not None:
            self._runtime.forget_answers()

    def receive(self, command: Command) -> None:
        """Take a command from the current connection.

        Raises `ProtocolViolation`, `StaleEpoch`; then the command had no effect, and the connection must be
        ended.
        """
        if self._halted:
            return
        if self._stages is None:
            raise ProtocolViolation("a command without a connection", stage="none", message=_name(command))
        self._stages.check_command(command)
        if isinstance(command, CreateTimely):
            self._check_epoch(command)
        if isinstance(command, CreateDataflow) and command.dataflow.as_of.ended:
            raise ProtocolViolation(
                "a dataflow that begins after the end of time",
                stage=self._stages.stage.value,
                message="CreateDataflow",
            )
        if self._stages.stage is not ProtocolStage.COMPUTATION:
            self._initial.append(command)
        elif isinstance(command, InitializationComplete):
            initial, self._initial = self._initial, []
            self._begin([*initial, command])
        else:
            assert self._history is not None
            self._history.push(command)
            self._apply(command)

    def _check_epoch(self, command: CreateTimely) -> None:
        if command.nonce != self._nonce:
            raise ProtocolViolation(
                "CreateTimely has another nonce than its connection", stage="creation", message="CreateTimely"
            )
        if self.greatest_epoch is not None and command.epoch <= self.greatest_epoch:
            raise StaleEpoch(
                f"the epoch {command.epoch.controller}.{command.epoch.replica} is not above "
                f"{self.greatest_epoch.controller}.{self.greatest_epoch.replica}, which the replica has seen",
                why="a later connection or a later controller has taken over",
                epoch=command.epoch,
                current=self.greatest_epoch,
            )
        self.greatest_epoch = command.epoch

    def _begin(self, initial: list[Command]) -> None:
        """Reconcile with a connection's initial commands once they are complete."""
        timely = next(c.config for c in initial if isinstance(c, CreateTimely))
        instance = next(c.config for c in initial if isinstance(c, CreateInstance))
        if self._runtime is None:
            self._runtime = self._make_runtime(timely, instance, self._wake)
            self._runs = timely
            self._began = self._clock()
        elif self._runs != timely:
            self._end(_other_runtime(self._runs, timely))
            return
        if self._history is not None:
            self._drop_broken(self._runtime, self._history)
        agreed = reconcile(None if self._history is None else self._history.commands, initial)
        if agreed.halt is not None:
            self._end(agreed.halt)
            return
        self._expires = instance.expiration_offset
        self._become(agreed, self._runtime)

    def _drop_broken(self, runtime: ReplicaRuntime, history: CommandHistory) -> None:
        """Drop dataflows that cannot continue here but could on a fresh replica."""
        for id in runtime.broken_exports():
            runtime.allow_compaction(id, END)
            runtime.forget(id)
            history.push(AllowCompaction(id, END))

    def _become(self, agreed: ReconciliationPlan, runtime: ReplicaRuntime) -> None:
        for compaction in agreed.first:
            runtime.allow_compaction(compaction.id, compaction.frontier)
        runtime.forget_answers()
        for id in (*self._reporter.begin(), *agreed.drop):
            runtime.forget(id)
        self._history = CommandHistory(agreed.history, slack=_SLACK)
        for dataflow in agreed.keep:
            self._reporter.add_exports(dataflow)
        self._parameters = Parameters()
        self._broken = frozenset()
        runtime.configure(self._parameters)
        for command in agreed.then:
            self._apply(command)
        self._reporter.queue_answers([_agreed(agreed)])

    def _apply(self, command: Command) -> None:
        runtime = self._runtime
        assert runtime is not None
        match command:
            case Peek():
                runtime.peek(command)
            case CancelPeek(uuid):
                runtime.cancel_peek(uuid)
            case UpdateConfiguration(parameters):
                self._parameters = self._parameters.overridden_by(parameters)
                runtime.configure(self._parameters)
            case CreateDataflow(dataflow):
                self._reporter.add_exports(dataflow)
                runtime.create_dataflow(dataflow)
            case Schedule(id):
                runtime.schedule(id)
            case AllowWrites(id):
                runtime.allow_writes(id)
            case AllowCompaction(id, frontier):
                runtime.allow_compaction(id, frontier)
                if frontier.ended and not self._reporter.record_dropped(id):
                    runtime.forget(id)
            case CreateInstance() | CreateTimely() | InitializationComplete():
                pass  # the runtime is made with them

    def step(self, seconds: float) -> bool:
        """Work for about `seconds`. Returns whether there is more to do at once."""
        runtime = self._runtime
        if runtime is None or self._halted:
            return False
        if self._expires is not None and self._clock() - self._began >= self._expires:
            self._end(_expired(self._expires))
            return False
        try:
            busy = runtime.step(seconds)
        except ComputeError as error:
            self._end(error)
            return False
        answers = runtime.take_answers()
        due = self._reporter.is_due(runtime.frontiers_moved(), busy, self._parameters.maintenance_interval)
        if (due or any(map(_is_own_problem, answers))) and self._has_fallen_behind(runtime):
            return busy
        self._reporter.queue_answers(answers)
        if due:
            for id in self._reporter.report(runtime.frontiers()):
                runtime.forget(id)
        return busy

    def _has_fallen_behind(self, runtime: ReplicaRuntime) -> bool:
        """Report broken exports. Returns whether a new connection must repair some, unnoticed by readers."""
        broken = runtime.broken_exports()
        if (found := frozenset(broken)) != self._broken:
            self._broken = found
            values = tuple((id, float(broken[id])) for id in sorted(broken))
            self._reporter.queue_answers([Status(None, BROKEN, values)])
        behind = tuple(sorted(id for id, fell_behind in broken.items() if fell_behind))
        if behind and not self._reporter.silent:
            self._reporter.silence()
            self._behind = _fell_behind(behind)
        return bool(behind)

    def responses(self) -> list[Response]:
        """Take the responses for the current connection, in order.

        Raises `FellBehind`, after which the connection must be ended; and `ProtocolViolation` for a response
        that is not allowed, which is a bug in the replica.
        """
        if self._behind is not None:
            raise self._behind
        found = self._reporter.take_responses()
        if self._stages is not None:
            for response in found:
                self._stages.check_sent(response)
        return found

    def fetch(self, token: bytes) -> Iterator[Sequence[Counted]]:
        """Read the rows of a stashed result in parts, once. Raises `ResultGone`."""
        if self._runtime is None:
            raise ResultGone("there is no result of that token", fix="send the peek again")
        return self._runtime.fetch(token)

    def close(self) -> None:
        """Stop the runtime."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()

    def _end(self, error: ComputeError) -> None:
        self._halted = True
        self._reporter.silence()
        self._halt(error)


def _is_own_problem(answer: Answer) -> bool:
    """Return whether an answer is a problem of this replica, and not of the data."""
    match answer:
        case PeekResponse(_, Problem() as problem) | CopyToResponse(_, Problem() as problem):
            return problem.origin is Origin.PROCESS
        case SubscribeResponse(_, BatchResponse(updates=Problem() as problem)):
            return problem.origin is Origin.PROCESS
        case _:
            return False


def _fell_behind(ids: tuple[Id, ...]) -> FellBehind:
    return FellBehind(
        f"the replica has fallen too far behind with {', '.join(ids)}",
        why="Changes that it has yet to read are compacted.",
        fix="none needed, it rebuilds them on its next connection; if it repeats, give the replica more time",
        ids=ids,
    )


def _name(command: Command) -> str:
    return type(command).__name__


def _other_runtime(running: TimelyConfig | None, asked: TimelyConfig) -> IncompatibleInstance:
    return IncompatibleInstance(
        f"the replica runs with {running} and is asked to run with {asked}",
        why="a runtime cannot change while it runs",
        fix="the process exits; restart it, and it adopts the new configuration",
        running=running,
        asked=asked,
    )


def _expired(offset: int) -> ReplicaExpired:
    return ReplicaExpired(
        f"the replica has reached its maximum age of {offset} ms", fix="restart it; its controller reconnects"
    )


def _agreed(agreed: ReconciliationPlan) -> Status:
    counts = {"kept": agreed.keep, "created": agreed.create, "dropped": agreed.drop}
    return Status(None, "reconciled", tuple((name, float(len(what))) for name, what in counts.items()))
