"""Reads of clients: their time, the replicas that may answer, and how they fail; and pending peeks.

A problem with the data is an answer, because every replica would give it. A problem of a replica is none as
long as another connected one may answer; if none is left, the first such problem is the answer. A read that
times out ends with an error that says what each replica lacked.

A peek goes to every replica; the first answer wins and the rest are cancelled. Its read hold is released
only after the cancellations are sent, so no replica loses data it is still reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headrace.compute.controller.catalog import CollectionEntry, ViewEntry
from headrace.compute.controller.pending import PeekAnswer, PendingPeek, PendingRead, StashedOnReplica
from headrace.compute.controller.replica_connection import ReplicaConnection, ReplicaRecord
from headrace.compute.controller.state import ControllerState
from headrace.compute.controller.status import ReplicaState
from headrace.compute.errors import (
    BadMessage,
    Missing,
    ReadTimeout,
    SinceViolation,
    TargetReplicaLost,
    TooManyPeeks,
    UnknownName,
    problem_of,
)
from headrace.compute.frontier import END, LAST_TIME, Frontier, join
from headrace.compute.protocol.client_messages import PeekRequest
from headrace.compute.protocol.commands import CancelPeek, CollectionTarget, Id, IndexTarget, Peek
from headrace.compute.protocol.responses import Canceled, PeekResponse, Problem, RowsResponse, Stashed
from headrace.errors import Origin

ReadableEntry: TypeAlias = CollectionEntry | ViewEntry


def check_readable(state: ControllerState, time: int, entry: ReadableEntry) -> int:
    """Check a time given by a client. Raises `SinceViolation` if it is compacted, and `BadMessage`."""
    if not 0 <= time < LAST_TIME:
        raise BadMessage(f"{time} is not a valid time", field="at")
    since = state.instance.holds.since(entry.id)
    if since.has_passed(time):
        raise SinceViolation(
            f"time {time} of {entry.name!r} can no longer be read",
            why=f"It can be read from time {since.time} on." if since.time is not None else "It is complete.",
            fix="read a later time, or create the view with a greater `keep`",
            id=entry.id,
            time=time,
            since=since,
        )
    return time


def select_strict_time(state: ControllerState, entry: ReadableEntry) -> int:
    """Select the time of a strict read: that of the last acknowledged write, or the since if later.

    Raises `StaleEpoch`, `SinceViolation`.
    """
    state.check_epoch()
    since = state.instance.holds.since(entry.id).time
    if since is None:
        raise SinceViolation(
            f"{entry.name!r} is complete, and can no longer be read",
            fix="read the collection that it is written into",
            id=entry.id,
            since=END,
        )
    return max(state.oracle.read, since)


def select_recent_time(state: ControllerState, id: Id, staleness: int) -> int | None:
    """Select the latest time settled on a connected replica; None if it is not current enough.

    staleness: milliseconds for which it may have been superseded. Raises `StaleEpoch`, `BadMessage`.
    """
    if staleness < 0:
        raise BadMessage(f"staleness of {staleness} ms", field="staleness")
    state.check_epoch()
    if state.instance.is_collection(id):
        settled = state.instance.upper(id).time
    else:
        exports = (c.tracking.exports.get(id) for c in state.connections())
        settled = join(tracked.write for tracked in exports if tracked is not None).time
    since = state.instance.holds.since(id).time
    if not settled or since is None:
        return None
    time = min(settled - 1, state.oracle.read)
    return time if time >= since and state.oracle.is_within(staleness, time) else None


def check_target(state: ControllerState, replica: str | None) -> None:
    """Raise `UnknownName` or `TargetReplicaLost` unless the only replica of a read, if any, is connected."""
    if replica is not None:
        state.catalog.replica(replica)
        if state.replicas[replica].connection is None:
            raise _target_lost_error(replica)


def handle_problem(
    state: ControllerState, read: PendingRead, replica: str, problem: Problem
) -> Problem | None:
    """Handle a problem in place of a replica's answer. Returns the problem to pass on, if any."""
    if read.target is not None or problem.origin is Origin.DATA:
        return problem
    # The client may never see it.
    state.note(replica, f"it cannot answer a {read.what}: {problem.message}")
    read.problems[replica] = problem
    return _problem_of_all(state, read)


def problem_after_loss(state: ControllerState, read: PendingRead, replica: str) -> Problem | None:
    """Return the problem to pass on after the loss of a replica, if any.

    It is asked again when it reconnects.
    """
    if read.target == replica:
        return problem_of(_target_lost_error(replica))
    read.problems.pop(replica, None)
    return _problem_of_all(state, read)


def _problem_of_all(state: ControllerState, read: PendingRead) -> Problem | None:
    """Return the first problem if no connected replica can still answer."""
    if not read.problems or any(c.replica not in read.problems for c in state.connections()):
        return None
    return next(iter(read.problems.values()))


def _target_lost_error(replica: str) -> TargetReplicaLost:
    return TargetReplicaLost(
        f"replica {replica!r} is not connected",
        why="The read is for this replica only; it failed, was dropped, or has not connected yet.",
        fix="read from any replica, or retry later",
        replica=replica,
    )


def timeout_problem(state: ControllerState, read: PendingRead) -> Problem:
    """Build the `ReadTimeout` of a read, naming the missing condition and the state of each replica."""
    now = state.clock()
    replicas = [r for r in state.replicas.values() if read.accepts(r.name)]
    connected = [r.connection for r in replicas if r.connection is not None]
    missing = _missing_condition(state, read, connected)
    waited = (now - read.asked_at) / 1000
    return problem_of(
        ReadTimeout(
            f"the {read.what} was not answered within {waited:.1f} s: {_SHORT[missing]}",
            why="\n".join(f"{r.name}: {_standing(state, read, r, now)}" for r in replicas)
            or "There is no replica.",
            fix=_FIX[missing],
            missing=missing.value,
            replicas=tuple(c.replica for c in connected),
        )
    )


def could_answer(state: ControllerState, read: PendingRead, heard_since: int) -> bool:
    """Whether a replica with all input of the read has responded, to anything, since `heard_since`."""
    return any(
        c.heard >= heard_since and c.replica not in read.problems and _lacking(state, read, c) is None
        for c in state.connections()
        if read.accepts(c.replica)
    )


def _missing_condition(
    state: ControllerState, read: PendingRead, connected: list[ReplicaConnection]
) -> Missing:
    if not connected:
        return Missing.REPLICA
    lacking = [_lacking(state, read, c) for c in connected if c.replica not in read.problems]
    if not lacking or None in lacking:
        return Missing.HEALTH if read.problems else Missing.ANSWER
    if read.time > state.oracle.last:
        return Missing.WRITE
    return Missing.TIME if Missing.TIME in lacking else Missing.HYDRATION


def _lacking(state: ControllerState, read: PendingRead, connection: ReplicaConnection) -> Missing | None:
    """Return the condition for answering that a replica does not meet yet, if any."""
    entry = state.catalog.find(read.view)
    if not isinstance(entry, ViewEntry):
        settled = entry is None or state.instance.upper(entry.id).has_passed(read.time)
        return None if settled else Missing.TIME
    tracked = connection.tracking.exports.get(entry.id)
    if tracked is None or not tracked.hydrated:
        return Missing.HYDRATION
    return None if tracked.write.has_passed(read.time) else Missing.TIME


def _standing(state: ControllerState, read: PendingRead, replica: ReplicaRecord, now: int) -> str:
    """Describe why a replica has not answered a read: its connection, problem, or missing condition."""
    connection = replica.connection
    if connection is None:
        if replica.state(now) is ReplicaState.QUARANTINED:
            return "quarantined, because it crashed too often"
        return f"not connected; {replica.problem or 'it was never reached'}"
    if (problem := read.problems.get(replica.name)) is not None:
        return f"cannot answer: {problem.message}"
    silent = f"silent for {(now - connection.heard) / 1000:.1f} s"
    match _lacking(state, read, connection):
        case Missing.HYDRATION:
            return f"still hydrating the view; {silent}"
        case Missing.TIME:
            return f"has not reached time {read.time}; {silent}"
        case _:
            return f"has all input, and does not answer; {silent}"


_SHORT = {
    Missing.REPLICA: "no replica is connected",
    Missing.HYDRATION: "no replica has hydrated the view yet",
    Missing.TIME: "no replica has reached the time of the read",
    Missing.WRITE: "nothing has been written up to that time yet",
    Missing.HEALTH: "some replicas cannot answer, the others do not",
    Missing.ANSWER: "the replicas do not answer",
}
_PATIENCE = "or be more patient: Client(patience=...)"
_FIX = {
    Missing.REPLICA: "start a replica, or add one by `headrace replicas add NAME=HOST:PORT`",
    Missing.HYDRATION: f"ask again when `headrace status` shows the view as ready, {_PATIENCE}",
    Missing.TIME: f"ask again, {_PATIENCE}; with staleness= a read takes what is there",
    Missing.WRITE: f"read an earlier time, {_PATIENCE}",
    Missing.HEALTH: "see to the replicas; `headrace status` shows their problems",
    Missing.ANSWER: f"see whether the replicas still work, {_PATIENCE}",
}

MAX_PENDING = 10_000
"""Limit on pending peeks across all clients. Replicas enforce the same limit."""


def peek(state: ControllerState, request: PeekRequest, answer: Callable[[PeekAnswer], None]) -> bytes:
    """Send a peek to the replicas, and pass on the first answer. Returns the peek's uuid.

    Raises `UnknownName`, `SinceViolation`, `TargetReplicaLost`, `BadMessage`, `TooManyPeeks`.
    """
    entry = state.catalog.find_or_raise(request.view)
    _check_request(request, entry)
    check_target(state, request.replica)
    time = _select_time(state, request, entry)
    uuid = state.random.randbytes(16)
    if request.keys is not None and not request.keys:
        answer(RowsResponse(()))
        return uuid
    keys = None if request.keys is None else tuple(request.keys)
    target = IndexTarget(entry.id) if isinstance(entry, ViewEntry) else CollectionTarget(entry.id)
    sent = Peek(uuid, target, time, keys, request.predicate, request.finishing)
    _check_capacity(state)
    hold = state.instance.holds.acquire(entry.id)
    hold.downgrade(Frontier(time))
    state.pending.peeks[uuid] = PendingPeek(
        request.view, time, request.replica, state.clock(), sent, hold, answer
    )
    state.instance.send(sent)
    return uuid


def cancel_peek(state: ControllerState, uuid: bytes) -> None:
    """Cancel a peek, answering `Canceled` immediately. Does nothing if it is already answered."""
    pending = state.pending.peeks.get(uuid)
    if pending is None:
        state.note(None, "a peek that is not pending was to be cancelled")
    else:
        finish_peek(state, pending, Canceled())


def time_out_peek(state: ControllerState, uuid: bytes) -> None:
    """Answer a pending peek with a `ReadTimeout` that names the missing condition."""
    pending = state.pending.peeks.get(uuid)
    if pending is not None:
        finish_peek(state, pending, timeout_problem(state, pending))


def on_peek_response(state: ControllerState, replica: str, response: PeekResponse) -> None:
    """Deliver the first answer; ignore later ones and `Canceled`."""
    pending = state.pending.peeks.get(response.uuid)
    answer = response.answer
    if pending is None or not pending.accepts(replica) or isinstance(answer, Canceled):
        return
    if isinstance(answer, Stashed):
        answer = StashedOnReplica(answer.token, answer.rows, answer.size, answer.inline, replica)
    elif isinstance(answer, Problem):
        answer = handle_problem(state, pending, replica, answer)
    if answer is not None:
        finish_peek(state, pending, answer)


def on_collection_dropped(state: ControllerState, id: Id) -> None:
    """Fail the peeks that wait for a later time of a dropped collection, or of dropped views over it."""
    instance = state.instance
    if not instance.is_collection(id):
        return
    upper = instance.upper(id)
    for pending in list(state.pending.peeks.values()):
        time = pending.time
        if not upper.has_passed(time) and instance.depends_on(pending.peek.target.id, id):
            dropped = UnknownName(
                f"{pending.view!r} was dropped before time {time}",
                fix="create it again, or read a time at which it existed",
                name=pending.view,
            )
            finish_peek(state, pending, problem_of(dropped))


def finish_peek(state: ControllerState, pending: PendingPeek, answer: PeekAnswer) -> None:
    """Answer a pending peek, and cancel it on all replicas."""
    del state.pending.peeks[pending.peek.uuid]
    state.instance.send(CancelPeek(pending.peek.uuid))
    pending.hold.release()
    pending.answer(answer)


def _select_time(state: ControllerState, request: PeekRequest, entry: ReadableEntry) -> int:
    """Select the time of a peek. Raises `SinceViolation`, `BadMessage`, `StaleEpoch`."""
    if request.at is not None:
        if request.staleness is not None:
            raise BadMessage("a read has a time or a bound on its staleness, not both", field="staleness")
        return check_readable(state, request.at, entry)
    if request.staleness is not None:
        recent = select_recent_time(state, entry.id, request.staleness)
        if recent is not None:
            return recent
    return select_strict_time(state, entry)


def _check_capacity(state: ControllerState) -> None:
    """Raise `TooManyPeeks` if the limit is reached."""
    if len(state.pending.peeks) >= MAX_PENDING:
        raise TooManyPeeks(
            f"{MAX_PENDING:,} peeks are already pending",
            why="No replica is answering, or clients ask faster than replicas answer.",
            fix="retry later, or check the replicas with `headrace status`",
            limit=MAX_PENDING,
        )


def _check_request(request: PeekRequest, entry: ReadableEntry) -> None:
    """Raise `BadMessage` for invalid keys, columns, limit or offset."""
    if request.keys is not None:
        _check_keys(request.keys, entry)
    finishing = request.finishing
    width = len(entry.schema.fields)
    columns = [at for at, _ in finishing.order_by] + list(finishing.project or ())
    if any(not 0 <= at < width for at in columns):
        raise BadMessage(
            f"{entry.name!r} has {width} columns, not all that were asked for", field="finishing"
        )
    if finishing.offset < 0 or (finishing.limit is not None and finishing.limit < 0):
        raise BadMessage("a limit or an offset is below 0", field="finishing")


def _check_keys(keys: Sequence[tuple[Any, ...]], entry: ReadableEntry) -> None:
    if not isinstance(entry, ViewEntry):
        raise BadMessage(
            f"{entry.name!r} is a collection, and has no keys",
            fix="filter its rows by a predicate, or make a view over it with a key",
            field="keys",
        )
    columns = entry.key or entry.schema.names
    if any(len(key) != len(columns) for key in keys):
        raise BadMessage(
            f"keys of {entry.name!r} are rows of the columns {', '.join(columns)}",
            fix="give one value for each of them; a key of one column is a row of one value",
            field="keys",
        )
