"""Pending peeks of one controller.

A peek goes to every replica; the first answer wins and the rest are cancelled. Its read hold is released only
after the cancellations are sent, so no replica loses data it is still reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.compute.controller import reads
from headrace.compute.controller.catalog import ViewEntry
from headrace.compute.controller.pending import PeekAnswer, PendingPeek, StashedOnReplica
from headrace.compute.controller.state import ControllerState
from headrace.compute.errors import BadMessage, TooManyPeeks, UnknownName
from headrace.compute.frontier import Frontier
from headrace.compute.problem_conversion import problem_of
from headrace.compute.protocol.client_messages import PeekRequest
from headrace.compute.protocol.commands import (
    CancelPeek,
    CollectionTarget,
    IndexTarget,
    Peek,
)
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import Canceled, PeekResponse, Problem, Rows, Stashed

MAX_PENDING = 10_000
"""Limit on pending peeks across all clients. Replicas enforce the same limit."""


def peek(state: ControllerState, request: PeekRequest, answer: Callable[[PeekAnswer], None]) -> bytes:
    """Send a peek to the replicas, and pass on the first answer. Returns the peek's uuid.

    Raises `UnknownName`, `SinceViolation`, `TargetReplicaLost`, `BadMessage`, `TooManyPeeks`.
    """
    entry = state.catalog.find_or_raise(request.view)
    _check_request(request, entry)
    reads.check_target(state, request.replica)
    time = _select_time(state, request, entry)
    uuid = state.random.randbytes(16)
    if request.keys is not None and not request.keys:
        answer(Rows(()))
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
        finish(state, pending, Canceled())


def time_out_peek(state: ControllerState, uuid: bytes) -> None:
    """Answer a pending peek with a `ReadTimeout` that names the missing condition."""
    pending = state.pending.peeks.get(uuid)
    if pending is not None:
        finish(state, pending, reads.timeout_problem(state, pending))


def on_response(state: ControllerState, replica: str, response: PeekResponse) -> None:
    """Deliver the first answer; ignore later ones and `Canceled`."""
    pending = state.pending.peeks.get(response.uuid)
    answer = response.answer
    if pending is None or not pending.accepts(replica) or isinstance(answer, Canceled):
        return
    if isinstance(answer, Stashed):
        answer = StashedOnReplica(answer.token, answer.rows, answer.size, answer.inline, replica)
    elif isinstance(answer, Problem):
        answer = reads.handle_problem(state, pending, replica, answer)
    if answer is not None:
        finish(state, pending, answer)


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
            finish(state, pending, problem_of(dropped))


def finish(state: ControllerState, pending: PendingPeek, answer: PeekAnswer) -> None:
    """Answer a pending peek, and cancel it on all replicas."""
    del state.pending.peeks[pending.peek.uuid]
    state.instance.send(CancelPeek(pending.peek.uuid))
    pending.hold.release()
    pending.answer(answer)


def _select_time(state: ControllerState, request: PeekRequest, entry: reads.Entry) -> int:
    """Select the time of a peek. Raises `SinceViolation`, `BadMessage`, `StaleEpoch`."""
    if request.at is not None:
        if request.staleness is not None:
            raise BadMessage("a read has a time or a bound on its staleness, not both", field="staleness")
        return reads.check_readable(state, request.at, entry)
    if request.staleness is not None:
        recent = reads.select_recent_time(state, entry.id, request.staleness)
        if recent is not None:
            return recent
    return reads.select_strict_time(state, entry)


def _check_capacity(state: ControllerState) -> None:
    """Raise `TooManyPeeks` if the limit is reached."""
    if len(state.pending.peeks) >= MAX_PENDING:
        raise TooManyPeeks(
            f"{MAX_PENDING:,} peeks are already pending",
            why="No replica is answering, or clients ask faster than replicas answer.",
            fix="retry later, or check the replicas with `headrace status`",
            limit=MAX_PENDING,
        )


def _check_request(request: PeekRequest, entry: reads.Entry) -> None:
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


def _check_keys(keys: Sequence[tuple[Any, ...]], entry: reads.Entry) -> None:
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
