"""Assembly of the status of a controller from its state."""

from __future__ import annotations

from headrace.compute.controller.catalog import CollectionEntry, ViewEntry
from headrace.compute.controller.replica_connection import Replica, ReplicaConnection
from headrace.compute.controller.state import ControllerState
from headrace.compute.controller.status_types import (
    CollectionStatus,
    ControllerStatus,
    PeekStatus,
    ReplicaStatus,
    SubscriptionStatus,
    ViewReplicaStatus,
    ViewStatus,
)
from headrace.compute.frontier import END
from headrace.compute.protocol.dataflow import Id


def status(state: ControllerState) -> ControllerStatus:
    """Return the status of all replicas, views, collections and reads."""
    now, catalog, pending = state.clock(), state.catalog, state.pending
    return ControllerStatus(
        epoch=state.epoch,
        read_time=state.oracle.read,
        commands=len(state.instance.log.history),
        replicas=tuple(_replica(state, r, now) for r in state.replicas.values()),
        views=tuple(_view(state, view) for view in catalog.views.values()),
        collections=tuple(
            _collection(state, entry) for entry in catalog.collections.values() if entry.written_by != ""
        ),
        peeks=tuple(
            PeekStatus(p.peek.uuid, p.view, p.time, p.target, p.asked_at) for p in pending.peeks.values()
        ),
        subscriptions=tuple(
            SubscriptionStatus(s.id, s.view, s.upper, s.target) for s in pending.subscriptions.values()
        ),
        problems=tuple(state.note),
    )


def _replica(state: ControllerState, replica: Replica, now: int) -> ReplicaStatus:
    connection = replica.connection
    return ReplicaStatus(
        name=replica.name,
        address=replica.entry.address,
        timely=replica.entry.timely,
        state=replica.state(now),
        since=replica.since,
        connections=replica.connections,
        # Ready, still connected, and able to continue all its views.
        ready=connection is not None
        and replica.name in state.ready
        and not connection.broken & connection.tracking.exports.keys(),
        deaths=replica.crashes.recent_crash_count(now, state.settings),
        hydrating=connection.tracking.building() if connection else replica.crashes.hydrating,
        problem=replica.problem,
        says=tuple(connection.says.items()) if connection else (),
    )


def _view(state: ControllerState, view: ViewEntry) -> ViewStatus:
    catalog, instance = state.catalog, state.instance
    running = instance.running.get(view.id)
    progress = tuple(
        _progress(c, view.id, state.oracle.read) for c in state.connections() if view.id in c.tracking.exports
    )
    names = {entry.id: entry.name for entry in (*catalog.collections.values(), *catalog.views.values())}
    return ViewStatus(
        name=view.name,
        id=view.id,
        since=instance.holds.since(view.id),
        upper=running.write if running else END,
        key=view.key,
        keep=view.keep,
        reads=tuple(names[id] for _, id in view.imports),
        into=names[view.into.collection] if view.into else None,
        scheduled=running is None or running.scheduled,
        hydrated=running is None or any(on.hydrated for on in progress),
        replicas=progress,
    )


def _progress(connection: ReplicaConnection, view: Id, read_time: int) -> ViewReplicaStatus:
    tracked, status = connection.tracking.exports[view], connection.status.get(view)
    settled = tracked.output.time
    lag = 0 if settled is None else max(read_time + 1 - settled, 0)
    broken = view in connection.broken
    return ViewReplicaStatus(
        connection.replica,
        tracked.hydrated and not broken,
        tracked.write,
        tracked.output,
        lag,
        failed=tracked.input == END and tracked.write != END,
        broken=broken,
        says=status.text if status else "",
    )


def _collection(state: ControllerState, entry: CollectionEntry) -> CollectionStatus:
    instance = state.instance
    writer = state.catalog.views.get(entry.written_by) if entry.written_by else None
    return CollectionStatus(
        name=entry.name,
        id=entry.id,
        since=instance.holds.since(entry.id),
        upper=instance.uppers[entry.id],
        append_only=entry.append_only,
        columns=str(entry.schema),
        written_by=writer.name if writer else None,
    )
