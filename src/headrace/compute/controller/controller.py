"""Controller: its state, with the calls on it.

The calls are the functions of the chapters; they take the state as their first argument, so that here they
are methods.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headrace.compute.collections.store import Collections
from headrace.compute.controller import (
    ddl,
    maintenance,
    peeks,
    replicas,
    status_assembly,
    subscriptions,
    writes,
)
from headrace.compute.controller.durable_catalog import DurableCatalog, TransientIds
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.leases import Leases, Positions
from headrace.compute.controller.replica_connection import Replica
from headrace.compute.controller.restart import create_views, start
from headrace.compute.controller.settings import ControllerSettings
from headrace.compute.controller.state import ControllerState, TimestampOracle, WriteState
from headrace.compute.controller.status_types import AnomalyLog
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import InstanceConfig, Parameters
from headrace.compute.protocol.dataflow import Id
from headrace.compute.takeover_readiness import SteadyReplicas

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

    peek = peeks.peek
    cancel_peek = peeks.cancel_peek
    time_out_peek = peeks.time_out_peek

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

    maintain = maintenance.maintain
    status = status_assembly.status

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
            self.replicas[entry.name] = Replica(entry, since=clock(), retry_at=clock())
        self.initial_holds = [exports.holds.acquire(id) for id in exports.uppers]
        exports.pushed = lambda: replicas.wake_connections(self)

    def _keep_of(self, id: Id) -> int:
        """Return how many milliseconds of a view's past to keep readable."""
        view = self.catalog.views.get(id)
        return view.keep if view else self.settings.keep

    def check(self) -> None:
        """Assert the invariants: no hold below a since, no since above a hold, inputs readable."""
        self.instance.check()
        for view in self.catalog.views.values():
            running = self.instance.running.get(view.id)
            assert running is None or Frontier(view.valid_from) <= self.instance.holds.since(view.id)
