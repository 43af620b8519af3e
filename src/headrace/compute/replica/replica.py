"""Replica: connections, protocol stages, epochs, reconciliation, and frontier reporting.

A replica has no sockets, threads or clocks of its own, and is independent of the runtime of its dataflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headrace.compute.errors import (
    ComputeError,
    FellBehind,
    IncompatibleInstance,
    ProtocolViolation,
    ReplicaExpired,
    ResultGone,
    StaleEpoch,
)
from headrace.compute.frontier import END
from headrace.compute.history import CommandHistory
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Epoch,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    Schedule,
    TimelyConfig,
    UpdateConfiguration,
)
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import (
    BROKEN,
    Batch,
    CopyToResponse,
    Counted,
    PeekResponse,
    Problem,
    Response,
    Status,
    SubscribeResponse,
)
from headrace.compute.protocol.stages import ProtocolStage, ReplicaStages
from headrace.compute.reconciliation import ReconciliationPlan, reconcile
from headrace.compute.replica.reporter import Reporter
from headrace.compute.replica.runtime import Answer, ReplicaRuntime
from headrace.errors import Origin

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

    # -- connections ----------------------------------------------------------------------------

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

    # -- agreeing with a controller -------------------------------------------------------------

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

    # -- commands -------------------------------------------------------------------------------

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

    # -- work -----------------------------------------------------------------------------------

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
        case SubscribeResponse(_, Batch(updates=Problem() as problem)):
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
