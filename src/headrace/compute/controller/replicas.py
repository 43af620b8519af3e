"""Replicas of a controller: connecting, retrying, quarantine, and readiness to take over."""

from __future__ import annotations

from collections.abc import Callable

from headrace.compute.controller import reads, subscriptions
from headrace.compute.controller.catalog import ReplicaEntry, check_name, name_taken_error
from headrace.compute.controller.instance import release_all
from headrace.compute.controller.pending import PendingCopy, PendingPeek
from headrace.compute.controller.replica_connection import (
    Answer,
    ConnectionContext,
    HistoryOverrides,
    ReplicaConnection,
    ReplicaRecord,
    retry_delay,
)
from headrace.compute.controller.state import ControllerState
from headrace.compute.controller.status import ReplicaState
from headrace.compute.errors import (
    ComputeError,
    FellBehind,
    IncompatibleInstance,
    InsecureAddress,
    NotAuthorized,
    StaleEpoch,
    VersionMismatch,
)
from headrace.compute.frontier import join
from headrace.compute.hydration import (
    Readiness,
    ReplicaProgress,
    Unhydrated,
    readiness,
    worst_readiness,
)
from headrace.compute.protocol.commands import Epoch, Parameters, TimelyConfig, UpdateConfiguration
from headrace.compute.protocol.responses import CopyToResponse, PeekResponse, SubscribeResponse

_REFUSALS = (StaleEpoch, NotAuthorized, VersionMismatch, InsecureAddress, IncompatibleInstance)
"""Errors by which a replica refuses a connection: it has not crashed, but may keep refusing for a while."""


def add_replica(
    state: ControllerState, name: str, address: str, timely: TimelyConfig = TimelyConfig()
) -> None:
    """Add a replica. Does nothing if an equal one exists. Raises `AlreadyThere`."""
    entry = ReplicaEntry(name, address, timely)
    found = state.catalog.replicas.get(name)
    if found == entry:
        return
    if found is not None:
        raise name_taken_error(name, f"A replica of that name is at {found.address}.")
    check_name(name)
    with state.begin_change() as change:
        change.add_replica(entry)
    state.catalog.replicas[name] = entry
    now = state.clock()
    state.replicas[name] = ReplicaRecord(entry, since=now, retry_at=now)


def drop_replica(state: ControllerState, name: str) -> None:
    """Remove a replica, and close its connection. Raises `UnknownName`."""
    state.catalog.replica(name)
    with state.begin_change() as change:
        change.remove_replica(name)
    del state.catalog.replicas[name]
    replica = state.replicas.pop(name)
    if replica.connection is not None:
        replica.connection.close()
    release_all(replica.kept)
    _fail_reads(state, name)


def release_replica(state: ControllerState, name: str) -> None:
    """End the quarantine of a replica, forget its crashes, and retry it now. Raises `UnknownName`."""
    state.catalog.replica(name)
    replica = state.replicas[name]
    replica.crashes.forgive()
    replica.retry_at, replica.tries = state.clock(), 0


def configure(state: ControllerState, parameters: Parameters) -> None:
    """Change the limits and intervals of all replicas, for the lifetime of this controller."""
    state.check_epoch()
    state.instance.send(UpdateConfiguration(parameters))


def replicas_to_connect(state: ControllerState) -> list[tuple[str, str]]:
    """List the names and addresses of the replicas to connect now."""
    return [(r.name, r.entry.address) for r in state.replicas.values() if _delay(state, r) == 0]


def next_retry_delay(state: ControllerState, name: str | None = None) -> int | None:
    """Return the milliseconds until a replica is retried; None if connected, quarantined or dropped.

    name: None: the first of all replicas.
    """
    replicas = [r for r in state.replicas.values() if name in (None, r.name)]
    return min((wait for r in replicas if (wait := _delay(state, r)) is not None), default=None)


def _delay(state: ControllerState, replica: ReplicaRecord) -> int | None:
    now = state.clock()
    return max(replica.retry_at - now, 0) if replica.state(now) is ReplicaState.WAITING else None


def accept_connection(state: ControllerState, name: str) -> ReplicaConnection:
    """Accept a new connection to a replica, closing any earlier one. Raises `UnknownName`."""
    state.catalog.replica(name)
    state.check_epoch()
    replica = state.replicas[name]
    if replica.connection is not None:
        _fail_reads(state, name)
        replica.connection.close()
    now = state.clock()
    careful = replica.crashes.hydrates_sequentially(now, state.settings)
    replica.connections += 1
    overrides = HistoryOverrides(
        name,
        replica.entry.timely,
        Epoch(state.epoch, next(state.connection_numbers)),
        state.random.randbytes(16),
        Parameters(hydration_concurrency=1) if careful else Parameters(),
    )
    context = ConnectionContext(
        state.instance, state.pending, state.clock, state.note, _deliverer(state), _loser(state)
    )
    replica.connection = ReplicaConnection(overrides, context, replica.kept)
    replica.since, replica.tries, replica.problem = now, 0, ""
    state.steady.restart(name)
    return replica.connection


def record_unreachable(state: ControllerState, name: str, error: ComputeError) -> None:
    """Record a failed attempt to connect; the replica is retried after `next_retry_delay`."""
    replica = state.replicas.get(name)
    if replica is not None and replica.connection is None:
        replica.problem = error.what
        _wait_after_refusal(state, replica)


def wake_connections(state: ControllerState) -> None:
    """Wake all connections, because new commands may be available."""
    for connection in state.connections():
        connection.wake()


def _deliverer(state: ControllerState) -> Callable[[str, Answer], None]:
    def deliver(replica: str, response: Answer) -> None:
        match response:
            case PeekResponse():
                reads.on_peek_response(state, replica, response)
            case SubscribeResponse():
                subscriptions.on_changes(state, replica, response)
            case CopyToResponse():
                subscriptions.on_copied(state, replica, response)

    return deliver


def _loser(state: ControllerState) -> Callable[[ReplicaConnection, ComputeError | None], None]:
    def lose(connection: ReplicaConnection, error: ComputeError | None) -> None:
        _record_lost_connection(state, connection, error)
        _fail_reads(state, connection.replica)

    return lose


def _record_lost_connection(
    state: ControllerState, connection: ReplicaConnection, error: ComputeError | None
) -> None:
    """Record the end of a replica's current connection, and when it is retried."""
    replica = state.replicas[connection.replica]
    assert replica.connection is connection, "a superseded connection is closed, and reports no end"
    now, settings = state.clock(), state.settings
    replica.connection, replica.since = None, now
    replica.problem = error.what if error else "the connection ended"
    if connection.gave_up or isinstance(error, FellBehind):
        if error is not None:
            state.note(replica.name, error.what)
        replica.problem = "it has fallen too far behind, and rebuilds views"
        _rest(state, replica, replica.crashes.record_rebuild(now, settings))
    elif connection.fell_behind:
        replica.retry_at = now
        replica.problem = "it was too slow in taking commands"
    elif isinstance(error, _REFUSALS):
        replica.tries = max(replica.tries, 8)
        _wait_after_refusal(state, replica)
    else:
        replica.crashes.record_crash(now, connection.tracking.building(), settings)
        _rest(state, replica, len(replica.crashes.deaths))


def _wait_after_refusal(state: ControllerState, replica: ReplicaRecord) -> None:
    replica.tries += 1
    first, longest = state.settings.first_retry, state.settings.longest_retry
    replica.retry_at = state.clock() + retry_delay(state.random, replica.tries, first, longest)


def _rest(state: ControllerState, replica: ReplicaRecord, times: int) -> None:
    """Schedule a later retry of a replica, with a delay that grows with `times`."""
    first, longest = state.settings.first_rest, state.settings.longest_rest
    replica.retry_at = state.clock() + retry_delay(state.random, times, first, longest)


def _fail_reads(state: ControllerState, replica: str) -> None:
    """Fail the reads that only a lost replica could answer."""
    for read in state.pending:
        problem = reads.problem_after_loss(state, read, replica)
        if problem is None:
            continue
        match read:
            case PendingPeek():
                reads.finish_peek(state, read, problem)
            case PendingCopy():
                subscriptions.finish_copy(state, read, problem)
            case _:
                subscriptions.fail(state, read, problem)


def maintain_replicas(state: ControllerState) -> None:
    """Release the inputs of replicas that were lost a while ago, and update the set of ready ones."""
    now = state.clock()
    for replica in state.replicas.values():
        if replica.connection is None and now - replica.since >= state.settings.patience:
            release_all(replica.kept)
    states = {c.replica: _readiness(state, c) for c in state.connections()}
    state.ready = state.steady.observe(now, states)
    for name in state.ready:
        state.replicas[name].crashes.forgive()


def release_lagging_replicas(state: ControllerState) -> bool:
    """Stop keeping inputs for replicas that are too far behind. Returns whether there are any."""
    now, most = state.clock(), state.settings.max_lag
    released = [
        (connection, id, connection.tracking.release_inputs(id))
        for connection in state.connections()
        if not connection.is_over
        for id in connection.tracking.lagging_exports(now, most)
    ]
    # Where somebody else still needs them, the replica may as well go on.
    lost = [(c, id) for c, id, held in released if not c.tracking.hold_again(id, held)]
    for connection, id in lost:
        connection.give_up()
        name = state.instance.running[id].dataflow.name
        text = f"more than {most / 1000:g} s behind with {name!r}, which it rebuilds from a snapshot"
        state.note(connection.replica, text)
    return bool(lost)


def _readiness(state: ControllerState, connection: ReplicaConnection) -> Readiness:
    if not connection.initialized:
        return Unhydrated()
    return worst_readiness(
        readiness(
            join(c.tracking.output_frontier(tracked.id) for c in state.connections()),
            {connection.replica: ReplicaProgress(tracked.as_of, tracked.output)},
            state.settings.lag,
        )
        for tracked in connection.tracking.lasting_exports()
    )
