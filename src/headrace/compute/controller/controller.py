"""Controller: its state, with the calls on it, its periodic work, and its status.

The calls are the functions of the chapters; they take the state as their first argument, so that here they
are methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from headrace.compute.collections.store import Collections
from headrace.compute.controller import ddl, reads, replicas, subscriptions, writes
from headrace.compute.controller.catalog import CollectionEntry, ViewEntry
from headrace.compute.controller.ddl import drop_stray_collections
from headrace.compute.controller.durable_catalog import DurableCatalog, TransientIds
from headrace.compute.controller.holds import KeepPast, Leases, Positions
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.replica_connection import ReplicaConnection, ReplicaRecord
from headrace.compute.controller.restart import create_views, start
from headrace.compute.controller.state import ControllerState, TimestampOracle, WriteState
from headrace.compute.controller.status import (
    AnomalyLog,
    CollectionStatus,
    ControllerSettings,
    ControllerStatus,
    PeekStatus,
    ReplicaStatus,
    SubscriptionStatus,
    ViewReplicaStatus,
    ViewStatus,
)
from headrace.compute.controller.subscriptions import advance_positions
from headrace.compute.errors import StoreUnavailable
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.hydration import SteadyReplicas
from headrace.compute.protocol.commands import Id, InstanceConfig, Parameters


def maintain(state: ControllerState) -> int:
    """Do all work that is due: compact history, schedule dataflows, retry replicas.

    Returns the milliseconds until the next call; an earlier call is harmless. Raises `StaleEpoch`.
    """
    state.check_epoch()
    try:
        _read_uppers(state)
        _advance_holds(state)
        # At once, so that a replica finds out on its next connection that it has to rebuild.
        _compact_store(state, at_once=replicas.release_lagging_replicas(state))
    except StoreUnavailable as error:
        state.note(None, error.what)
    replicas.maintain_replicas(state)
    state.instance.schedule_exports()
    retry, interval = replicas.next_retry_delay(state), state.settings.interval
    return min(interval, max(retry, 1) if retry is not None else interval)


def _read_uppers(state: ControllerState) -> None:
    """Read the uppers of the collections that replicas write."""
    written = [entry for entry in state.catalog.collections.values() if entry.written_by]
    ids = [entry.id for entry in written]
    bounds = state.store.bounds(ids) if ids else []
    for entry, bound in zip(written, bounds, strict=True):
        state.instance.advance_upper(entry.id, bound.upper)
        writer = state.catalog.views.get(entry.written_by or "")
        if writer is not None and writer.into is not None:
            state.instance.record_progress(writer.into.export, bound.upper)


def _advance_holds(state: ControllerState) -> None:
    """Advance all holds to the read policies and to the positions of readers."""
    instance = state.instance
    if state.initial_holds and state.clock() - state.started >= state.settings.patience:
        for hold in state.initial_holds:
            hold.release()
        state.initial_holds.clear()
    advance_positions(state)
    state.leases.expire()
    # Without replicas, count a view as being as far as its inputs, so that a replica that connects later
    # need not read the whole past.
    connected = any(True for _ in state.connections())
    reached = {} if connected else instance.availability_by_export()
    # In reverse order of creation, readers come before their inputs, which can then follow immediately.
    for view in reversed(state.catalog.views.values()):
        _apply_policy(state, view, reached)
    for id, hold in state.policies.items():
        hold.advance(KeepPast(state.settings.keep).since(_up_to_read_time(state, instance.uppers[id])))
    instance.advance_warm_up_holds()


def _apply_policy(state: ControllerState, view: ViewEntry, reached: Mapping[Id, Frontier]) -> None:
    """Advance a view's holds to its read policy. reached: uppers to use in place of lower `write`s."""
    running = state.instance.running
    index = running.get(view.id)
    if index is None:
        return
    upper = max(index.write, reached.get(view.id, START))
    since = KeepPast(view.keep, view.valid_from).since(_up_to_read_time(state, upper))
    if view.into is not None and (sink := running.get(view.into.export)) is not None:
        # The collection must be continued from where it ends, not from a later time.
        sink.implied.advance(sink.write.step_back())
        since = min(since, sink.implied.frontier)
    index.implied.advance(since)


def _up_to_read_time(state: ControllerState, upper: Frontier) -> Frontier:
    """Limit an upper to just after the read time, where reads may be in progress."""
    return upper if upper == END else min(upper, Frontier(state.oracle.read + 1))


def _compact_store(state: ControllerState, *, at_once: bool) -> None:
    drop_stray_collections(state)
    now = state.clock()
    if not at_once and now - state.compacted < state.settings.compaction:
        return
    state.compacted = now
    state.positions.advance_records(state.oracle.last)
    compactions = state.instance.compactions
    for id, since in list(compactions.items()):
        if since != END:
            state.store.compact(id, since)
            del compactions[id]


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


def _replica(state: ControllerState, replica: ReplicaRecord, now: int) -> ReplicaStatus:
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


_PARAMETERS = Parameters(hydration_concurrency=4)


class Controller(ControllerState):
    """Controller of replicas.

    durable:     durable catalogue; a later controller on the same one supersedes this one.
    store:       store of the rows, used by the thread that calls the controller.
    clock:       milliseconds since 1970.
    parameters:  limits and intervals of replicas.
    allow_callables: whether plans may carry Python functions.
    instance:    configuration shared by all dataflows of a replica; its `collections` is the store's URI.

    Raises `StoreDamaged`, `StoreUnavailable`. Every call that changes something raises `StaleEpoch` once a
    later controller has started on the same state.
    """

    create_collection = ddl.create_collection
    create_view = ddl.create_view
    drop = ddl.drop
    describe = ddl.describe
    plan_of = ddl.plan_of

    begin_write = writes.begin_write
    end_write = writes.end_write
    fail_write = writes.fail_write
    time_of_write = writes.time_of_write

    peek = reads.peek
    cancel_peek = reads.cancel_peek
    time_out_peek = reads.time_out_peek

    subscribe = subscriptions.subscribe
    unsubscribe = subscriptions.unsubscribe
    time_out_subscription = subscriptions.time_out_subscription
    copy = subscriptions.copy
    cancel_copy = subscriptions.cancel_copy
    time_out_copy = subscriptions.time_out_copy

    add_replica = replicas.add_replica
    drop_replica = replicas.drop_replica
    release_replica = replicas.release_replica
    configure = replicas.configure
    replicas_to_connect = replicas.replicas_to_connect
    next_retry_delay = replicas.next_retry_delay
    accept_connection = replicas.accept_connection
    record_unreachable = replicas.record_unreachable

    maintain = maintain
    status = status

    def __init__(
        self,
        durable: DurableCatalog,
        store: Collections,
        *,
        clock: Callable[[], int],
        random: Random,
        parameters: Parameters = Parameters(),
        instance: InstanceConfig = InstanceConfig(""),
        settings: ControllerSettings = ControllerSettings(),
        allow_callables: bool = False,
    ) -> None:
        started = start(durable, store)
        epoch, catalog = started.epoch, started.catalog
        exports = Instance(instance, _PARAMETERS.overridden_by(parameters), settings.most_behind)
        leases = Leases(exports.holds, clock, self._keep_of)
        super().__init__(
            epoch=epoch,
            durable=durable,
            catalog=catalog,
            store=store,
            instance=exports,
            oracle=TimestampOracle(clock, started.last),
            clock=clock,
            random=random,
            settings=settings,
            note=AnomalyLog(clock),
            allow_callables=allow_callables,
            writes=WriteState(started.write_ids),
            leases=leases,
            positions=Positions(durable, epoch, catalog, exports.holds, leases),
            transient_ids=TransientIds(durable, epoch),
            steady=SteadyReplicas(settings.steady),
            started=clock(),
            compacted=clock(),
        )
        for id in catalog.collections:
            bounds = started.bounds[id]
            self.policies[id] = exports.add_collection(id, bounds.since, bounds.upper)
        writes.load_write_ids(self)
        create_views(self, started.bounds)
        exports.complete_initialization()
        for id in (*catalog.collections, *catalog.views):
            # Gives readers of the previous controller time to reconnect.
            leases.grant(id, exports.holds.since(id))
        self.positions.hold_recorded()
        for entry in catalog.replicas.values():
            self.replicas[entry.name] = ReplicaRecord(entry, since=clock(), retry_at=clock())
        self.initial_holds = [exports.holds.acquire(id) for id in exports.uppers]
        exports.pushed = lambda: replicas.wake_connections(self)

    def _keep_of(self, id: Id) -> int:
        """Return the number of milliseconds of a view's past to keep readable."""
        view = self.catalog.views.get(id)
        return view.keep if view else self.settings.keep

    def check(self) -> None:
        """Assert the invariants: no hold below a since, no since above a hold, inputs readable."""
        self.instance.check()
        for view in self.catalog.views.values():
            running = self.instance.running.get(view.id)
            assert running is None or Frontier(view.valid_from) <= self.instance.holds.since(view.id)
