"""Subscriptions and copies of one controller: dataflows of a single request, with ids like "t1".

Each is a dataflow that passes its input on, on all replicas or on its target. Of a copy, the first answer
counts. Of a subscription, each replica sends all changes. Replicas are deterministic, so the first to send a
time is right; changes already delivered are removed from later batches. The dataflow is dropped with the last
message to the client.
Source: the compute protocol of Materialize, subscriptions under active replication (reference).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from headrace.compute.controller import reads
from headrace.compute.controller.catalog import ViewEntry
from headrace.compute.controller.pending import CopyAnswer, Deliver, PendingCopy, PendingSubscription
from headrace.compute.controller.state import ControllerState
from headrace.compute.errors import BadMessage
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import INPUT, OUTPUT, encode, identity_flow
from headrace.compute.protocol.commands import (
    CollectionImport,
    CopyToExport,
    Dataflow,
    Id,
    IndexImport,
    SubscribeExport,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    CopyToResponse,
    Dropped,
    DroppedAt,
    EncodedUpdates,
    Problem,
    SubscribeResponse,
)
from headrace.errors import Origin


def subscribe(
    state: ControllerState,
    view: str,
    deliver: Deliver,
    *,
    as_of: int | None = None,
    snapshot: bool = True,
    replica: str | None = None,
) -> Id:
    """Subscribe to all changes from a time on, delivered once each, in order of time.

    as_of: None: the time of the last acknowledged write. To resume after a batch with `upper`, pass
        as_of=upper-1 and snapshot=False.
    Ends with `DroppedAt`, or with a batch that is a `Problem`. Raises `UnknownName`, `SinceViolation`,
    `TargetReplicaLost`.
    """
    entry, time = _entry_at(state, view, as_of, replica)
    id = state.transient_ids.next()
    dataflow = _passthrough(state, entry, time, SubscribeExport(id, OUTPUT, snapshot))
    subscription = PendingSubscription(
        view, time, replica, state.clock(), id, entry.id, dataflow.as_of, deliver
    )
    state.pending.subscriptions[id] = subscription
    state.instance.create(dataflow, replica)
    state.leases.add_reader(entry.id, subscription.position)
    return id


def unsubscribe(state: ControllerState, id: Id) -> None:
    """End a subscription, delivering `DroppedAt`. Does nothing if it has already ended."""
    subscription = state.pending.subscriptions.get(id)
    if subscription is not None:
        finish(state, subscription, DroppedAt(subscription.upper))


def time_out_subscription(state: ControllerState, id: Id) -> None:
    """Deliver a `ReadTimeout` to a subscription that has not begun, which ends it."""
    subscription = state.pending.subscriptions.get(id)
    if subscription is not None:
        fail(state, subscription, reads.timeout_problem(state, subscription))


def on_changes(state: ControllerState, replica: str, response: SubscribeResponse) -> None:
    """Deliver a replica's changes, except for those delivered before."""
    subscription = state.pending.subscriptions.get(response.id)
    if subscription is None:
        return  # ended meanwhile
    if not subscription.accepts(replica):
        state.note(replica, f"unexpected changes of {response.id}, a subscription to another replica")
        return
    if isinstance(response.event, DroppedAt):
        state.note(replica, f"{response.id} dropped without a command")
        return
    updates = response.event.updates
    if isinstance(updates, Problem) and updates.origin is Origin.PROCESS and not subscription.target:
        # Counts even if other replicas are ahead of that time, because this one sends no more changes.
        problem = reads.handle_problem(state, subscription, replica, updates)
        if problem is not None:
            fail(state, subscription, problem)
        return
    batch = undelivered(subscription.upper, response.event)
    if batch is None:
        return
    if batch.upper == END or isinstance(batch.updates, Problem):
        finish(state, subscription, batch)
        return
    subscription.upper = batch.upper
    state.instance.record_progress(subscription.id, batch.upper)
    subscription.deliver(batch)


def undelivered(tracked: Frontier, batch: BatchResponse) -> BatchResponse | None:
    """Return the part of a batch that is not yet delivered, from `tracked` on; None if there is none.

    The upper of the returned batch is the next `tracked`.

    >>> batch = BatchResponse(Frontier(0), Frontier(7), ((("a",), 3, 1), (("b",), 6, 1)))
    >>> undelivered(Frontier(5), batch)
    BatchResponse(lower=Frontier(time=5), upper=Frontier(time=7), updates=((('b',), 6, 1),))
    """
    if batch.upper <= tracked:
        return None
    updates = batch.updates
    if isinstance(updates, EncodedUpdates):
        updates = () if tracked.has_passed(updates.time) else updates
    elif not isinstance(updates, Problem):
        updates = tuple(update for update in updates if not tracked.has_passed(update[1]))
    return BatchResponse(tracked, batch.upper, updates)


def advance_positions(state: ControllerState) -> None:
    """Advance holds and leases to the delivered positions.

    Replicas that connect later need not repeat delivered changes; leases keep them readable for clients that
    lose their connection.
    """
    positions: dict[Id, Frontier] = dict.fromkeys(state.leases, END)
    for subscription in state.pending.subscriptions.values():
        positions[subscription.reads] = min(positions[subscription.reads], subscription.position)
    for id, position in positions.items():
        state.leases.move_reader(id, position)
    for subscription in state.pending.subscriptions.values():
        running = state.instance.running.get(subscription.id)
        if running is not None:
            running.implied.advance(subscription.position)


def fail(state: ControllerState, subscription: PendingSubscription, problem: Problem) -> None:
    """End a subscription with a problem."""
    finish(state, subscription, BatchResponse(subscription.upper, subscription.upper, problem))


def finish(
    state: ControllerState, subscription: PendingSubscription, last: BatchResponse | DroppedAt
) -> None:
    """Deliver the last message of a subscription, lease its position, and drop its dataflow."""
    del state.pending.subscriptions[subscription.id]
    running = state.instance.running.get(subscription.id)
    # The position held, as of the last `advance_positions`.
    state.leases.grant(subscription.reads, END if running is None else running.implied.frontier)
    state.instance.drop([subscription.id])
    subscription.deliver(last)


def copy(
    state: ControllerState,
    view: str,
    file: str,
    answer: Callable[[CopyAnswer], None],
    *,
    at: int | None = None,
    replica: str | None = None,
) -> Id:
    """Write the rows at a time (by default, of the last acknowledged write) to a file on the replicas."""
    _check_file(file)
    entry, time = _entry_at(state, view, at, replica)
    id = state.transient_ids.next()
    dataflow = _passthrough(state, entry, time, CopyToExport(id, OUTPUT, file))
    state.pending.copies[id] = PendingCopy(view, time, replica, state.clock(), id, answer)
    state.instance.create(dataflow, replica)
    return id


def cancel_copy(state: ControllerState, id: Id) -> None:
    """Cancel a copy, answering `Dropped` immediately. Does nothing if it is already answered."""
    pending = state.pending.copies.get(id)
    if pending is not None:
        finish_copy(state, pending, Dropped())


def time_out_copy(state: ControllerState, id: Id, silence: int) -> bool:
    """End a copy with a `ReadTimeout` unless a replica is working on it. Returns whether it has ended.

    A replica counts as working if it has all the input, and has responded within the last `silence` ms.
    """
    pending = state.pending.copies.get(id)
    if pending is None:
        return True
    if reads.could_answer(state, pending, state.clock() - silence):
        return False
    finish_copy(state, pending, reads.timeout_problem(state, pending))
    return True


def on_copied(state: ControllerState, replica: str, response: CopyToResponse) -> None:
    """Deliver the first answer; ignore later ones and `Dropped`."""
    pending = state.pending.copies.get(response.id)
    answer: CopyAnswer | None = response.result
    if pending is None or not pending.accepts(replica) or isinstance(answer, Dropped):
        return
    if isinstance(answer, Problem):
        answer = reads.handle_problem(state, pending, replica, answer)
    if answer is not None:
        finish_copy(state, pending, answer)


def finish_copy(state: ControllerState, pending: PendingCopy, answer: CopyAnswer) -> None:
    """Answer a pending copy, and drop its dataflow."""
    del state.pending.copies[pending.id]
    state.instance.drop([pending.id])
    pending.answer(answer)


def _check_file(file: str) -> None:
    """Raise `BadMessage` unless `file` is a plain file name with the suffix of a supported format."""
    if file != PurePath(file).name or "\\" in file or not file.isprintable():
        raise BadMessage(
            f"{file!r} is not a plain file name", fix="give a file name without a folder", field="file"
        )
    if not file.endswith((".jsonl", ".parquet")):
        raise BadMessage(f"{file!r} has no known format", fix="end it in .jsonl or .parquet", field="file")


def on_dropped(state: ControllerState, name: str, id: Id) -> None:
    """End the subscriptions and copies of a dropped view or collection."""
    for subscription in list(state.pending.subscriptions.values()):
        if subscription.view == name:
            finish(state, subscription, DroppedAt(subscription.upper))
    for pending in list(state.pending.copies.values()):
        if pending.view == name:
            finish_copy(state, pending, Dropped())
    state.passthrough_plans.pop(id, None)


def _entry_at(
    state: ControllerState, name: str, time: int | None, replica: str | None
) -> tuple[reads.ReadableEntry, int]:
    """Find the entry to read, and select its time. Raises like `subscribe`."""
    entry = state.catalog.find_or_raise(name)
    reads.check_target(state, replica)
    at = reads.select_strict_time(state, entry) if time is None else time
    return entry, reads.check_readable(state, at, entry)


def _passthrough(
    state: ControllerState, entry: reads.ReadableEntry, as_of: int, export: SubscribeExport | CopyToExport
) -> Dataflow:
    """Build a dataflow that passes its input on. Its plan depends only on the columns, and is cached."""
    plan = state.passthrough_plans.get(entry.id)
    if plan is None:
        plan = encode(identity_flow(entry.schema, entry.append_only))
        state.passthrough_plans[entry.id] = plan
    is_view = isinstance(entry, ViewEntry)
    return Dataflow(
        plan,
        collections=() if is_view else (CollectionImport(INPUT, entry.id),),
        indexes=(IndexImport(INPUT, entry.id),) if is_view else (),
        exports=(export,),
        as_of=Frontier(as_of),
        until=Frontier(as_of + 1) if isinstance(export, CopyToExport) else END,
        name=entry.name,
    )
