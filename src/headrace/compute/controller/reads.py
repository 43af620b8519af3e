"""Rules that hold for all reads of clients: their time, the replicas that may answer, and how they fail.

A problem with the data is an answer, because every replica would give it. A problem of a replica is none as
long as another connected one may answer; if none is left, the first such problem is the answer. A read that
times out ends with an error that says what each replica lacked.
"""

from __future__ import annotations

from typing import TypeAlias

from headrace.compute.controller.catalog import CollectionEntry, ViewEntry
from headrace.compute.controller.pending import PendingRead
from headrace.compute.controller.replica_connection import ReplicaConnection, ReplicaRecord
from headrace.compute.controller.state import ControllerState
from headrace.compute.controller.status import ReplicaState
from headrace.compute.errors import BadMessage, Missing, ReadTimeout, SinceViolation, TargetReplicaLost
from headrace.compute.frontier import END, LAST_TIME, join
from headrace.compute.problem_conversion import problem_of
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import Problem
from headrace.errors import Origin

Entry: TypeAlias = CollectionEntry | ViewEntry

# --- the time of a read -------------------------------------------------------------


def check_readable(state: ControllerState, time: int, entry: Entry) -> int:
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


def select_strict_time(state: ControllerState, entry: Entry) -> int:
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


# --- the replicas that may answer ---------------------------------------------------


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


# --- reads that time out ------------------------------------------------------------


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
    """Return the condition for an answer that a replica does not meet yet, if any."""
    entry = state.catalog.find(read.view)
    if not isinstance(entry, ViewEntry):
        settled = entry is None or state.instance.upper(entry.id).has_passed(read.time)
        return None if settled else Missing.TIME
    tracked = connection.tracking.exports.get(entry.id)
    if tracked is None or not tracked.hydrated:
        return Missing.HYDRATION
    return None if tracked.write.has_passed(read.time) else Missing.TIME


def _standing(state: ControllerState, read: PendingRead, replica: ReplicaRecord, now: int) -> str:
    """Describe what a replica has to do with a read: its connection, problem, or missing condition."""
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
