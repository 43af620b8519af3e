"""Assembly of a controller's status from its parts."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.compute.controller.catalog import Catalog, CollectionEntry, ViewEntry
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.pending_reads import Peeks
from headrace.compute.controller.replica_connection import ReplicaConnection
from headrace.compute.controller.replicas import Replica, Replicas
from headrace.compute.controller.status_types import (
    CollectionStatus,
    ControllerStatus,
    PeekStatus,
    ProblemNote,
    ReplicaStatus,
    SubscriptionStatus,
    ViewReplicaStatus,
    ViewStatus,
)
from headrace.compute.controller.subscriptions import Subscriptions
from headrace.compute.controller.timestamps import TimestampOracle
from headrace.compute.frontier import END
from headrace.compute.protocol.dataflow import Id


def build_status(
    epoch: int,
    now: int,
    catalog: Catalog,
    instance: Instance,
    oracle: TimestampOracle,
    replicas: Replicas,
    peeks: Peeks,
    subscriptions: Subscriptions,
    problems: Iterable[ProblemNote],
) -> ControllerStatus:
    """Build the status of a controller at `now`, ms of its clock."""
    return ControllerStatus(
        epoch=epoch,
        read_time=oracle.read,
        commands=len(instance.outbox.history),
        replicas=tuple(_replica(r, replicas, now) for r in replicas),
        views=tuple(_view(v, catalog, instance, oracle, replicas) for v in catalog.views.values()),
        collections=tuple(
            _collection(c, catalog, instance) for c in catalog.collections.values() if c.written_by != ""
        ),
        peeks=tuple(
            PeekStatus(p.peek.uuid, p.read.view, p.peek.time, p.read.target, p.read.asked_at) for p in peeks
        ),
        subscriptions=tuple(
            SubscriptionStatus(s.id, s.read.view, s.upper, s.read.target) for s in subscriptions
        ),
        problems=tuple(problems),
    )


def _replica(replica: Replica, replicas: Replicas, now: int) -> ReplicaStatus:
    connection = replica.connection
    return ReplicaStatus(
        name=replica.name,
        address=replica.entry.address,
        timely=replica.entry.timely,
        state=replica.state(now),
        since=replica.since,
        connections=replica.connections,
        ready=replicas.is_ready(replica),
        deaths=replicas.recent_crash_count(replica),
        hydrating=connection.tracking.building() if connection else replica.crashes.hydrating,
        problem=replica.problem,
        says=tuple(connection.says.items()) if connection else (),
    )


def _view(
    view: ViewEntry, catalog: Catalog, instance: Instance, oracle: TimestampOracle, replicas: Replicas
) -> ViewStatus:
    running = instance.running.get(view.id)
    connections = replicas.connections()
    progress = tuple(_on_replica(c, view.id, oracle) for c in connections if view.id in c.tracking.exports)
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


def _on_replica(connection: ReplicaConnection, view: Id, oracle: TimestampOracle) -> ViewReplicaStatus:
    tracked, status = connection.tracking.exports[view], connection.status.get(view)
    settled = tracked.output.time
    lag = 0 if settled is None else max(oracle.read + 1 - settled, 0)
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


def _collection(entry: CollectionEntry, catalog: Catalog, instance: Instance) -> CollectionStatus:
    writer = catalog.views.get(entry.written_by) if entry.written_by else None
    return CollectionStatus(
        name=entry.name,
        id=entry.id,
        since=instance.holds.since(entry.id),
        upper=instance.uppers[entry.id],
        append_only=entry.append_only,
        columns=str(entry.schema),
        written_by=writer.name if writer else None,
    )
