"""Controller, with its interface to clients, a transport and a clock.

A controller has no sockets, threads, clock or randomness of its own: its state is a function of the requests,
responses and times passed in. Not thread-safe.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from headrace.compute.collections.store import Collections
from headrace.compute.controller.catalog import (
    CollectionEntry,
    ReplicaEntry,
    ViewEntry,
    check_name,
    name_taken_error,
)
from headrace.compute.controller.ddl import DdlExecutor, ViewRequest
from headrace.compute.controller.durable import ControllerState, TransientIds
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.leases import Leases, Positions
from headrace.compute.controller.maintenance import Maintenance
from headrace.compute.controller.pending_reads import Copies, CopyAnswer, Peeks
from headrace.compute.controller.reads import Reads, UnansweredDiagnosis
from headrace.compute.controller.replica_connection import ReplicaConnection, ResponseRouter
from headrace.compute.controller.replicas import Replicas
from headrace.compute.controller.requests import ControllerSettings, Described, PeekAnswer, PeekRequest, Write
from headrace.compute.controller.restart import create_views, start
from headrace.compute.controller.status_assembly import build_status
from headrace.compute.controller.status_types import AnomalyLog, ControllerStatus
from headrace.compute.controller.subscriptions import Deliver, Subscriptions
from headrace.compute.controller.timestamps import ReadTimestamps, TimestampOracle
from headrace.compute.controller.writes import Writes
from headrace.compute.errors import ComputeError, StoreUnavailable, UnknownName
from headrace.compute.frontier import Frontier, join
from headrace.compute.protocol.commands import (
    InstanceConfig,
    Parameters,
    TimelyConfig,
    UpdateConfiguration,
)
from headrace.compute.protocol.dataflow import DataflowLimits, Id, Plan
from headrace.compute.protocol.responses import (
    Counted,
)
from headrace.expr.types import Schema

DEFAULT_KEEP = 10_000
"""Default length of a view's readable past, in milliseconds."""
_PARAMETERS = Parameters(hydration_concurrency=4)


class Controller:
    """Controller of replicas.

    state:       durable state; a later controller on the same state supersedes this one.
    collections: store of the rows, used by the thread that calls the controller.
    clock:       milliseconds since 1970.
    parameters:  limits and intervals of replicas.
    allow_callables: whether plans may carry Python functions.
    instance:    configuration shared by all dataflows of a replica; its `collections` is the store's URI.

    Raises `StoreDamaged`, `StoreUnavailable`. Every method that changes something raises `StaleEpoch` once a
    later controller has started on the same state.
    """

    epoch: int

    def __init__(
        self,
        state: ControllerState,
        collections: Collections,
        *,
        clock: Callable[[], int],
        random: random.Random,
        parameters: Parameters = Parameters(),
        instance: InstanceConfig = InstanceConfig(""),
        settings: ControllerSettings = ControllerSettings(),
        allow_callables: bool = False,
    ) -> None:
        self._clock = clock
        self._state = state
        started = start(state, collections)
        self.epoch = started.epoch
        self._catalog = started.catalog
        self._note = AnomalyLog(clock)
        self._instance = asked = Instance(
            instance, _PARAMETERS.overridden_by(parameters), settings.most_behind
        )
        self._oracle = oracle = TimestampOracle(clock, started.last)
        self._names = DdlExecutor(
            state, self.epoch, self._catalog, collections, asked, oracle, allow_callables=allow_callables
        )
        for entry in self._catalog.collections.values():
            bounds = started.bounds[entry.id]
            self._names.restore(entry, bounds.since, bounds.upper)
        self._writes = Writes(
            self._catalog,
            asked,
            collections,
            oracle,
            ids=started.write_ids,
            remembered=settings.remembered_ids,
        )
        self._writes.load()
        for gap in create_views(started, asked, oracle.read):
            self._note(None, gap)
        asked.complete_initialization()
        self._settings = settings
        self._leases = Leases(asked.holds, clock, self._keep_of)
        for id in (*self._catalog.collections, *self._catalog.views):
            # Gives readers of the previous controller time to reconnect.
            self._leases.grant(id, asked.holds.since(id))
        self._positions = Positions(state, self.epoch, self._catalog, asked.holds, self._leases)
        self._peeks = Peeks(asked)
        self._subscriptions = Subscriptions(asked, self._leases, self._note)
        self._copies = Copies(asked)
        self._replicas = Replicas(
            ResponseRouter(asked, self._peeks, self._subscriptions, self._copies, self._note, self._lost),
            epoch=self.epoch,
            clock=clock,
            random=random,
            settings=settings,
        )
        for entry in self._catalog.replicas.values():
            self._replicas.add(entry)
        self._reads = Reads(
            self._catalog,
            ReadTimestamps(asked, oracle, self._fence, self._settled),
            self._replicas,
            self._peeks,
            self._subscriptions,
            self._copies,
            self._leases,
            TransientIds(state, self.epoch),
            UnansweredDiagnosis(self._catalog, asked, oracle, self._replicas),
            clock=clock,
            random=random,
            note=self._note,
        )
        self._maintenance = Maintenance(
            self._names,
            asked,
            oracle,
            collections,
            self._replicas,
            self._subscriptions,
            self._leases,
            self._positions,
            clock=clock,
            settings=settings,
            note=self._note,
        )

    # --- names ----------------------------------------------------------------------

    def create_collection(self, name: str, schema: Schema, *, append_only: bool) -> Id:
        """Create a collection that clients write. Does nothing if an equal one exists.

        Raises `AlreadyThere`.
        """
        return self._names.create_collection(name, schema, append_only)

    def create_view(
        self,
        name: str,
        plan: Plan,
        *,
        key: Sequence[str] = (),
        keep: int = DEFAULT_KEEP,
        into: str | None = None,
        limits: DataflowLimits = DataflowLimits(),
    ) -> Id:
        """Create a view of a flow with one sink. Does nothing if an equal one exists.

        The flow's sources read the views and collections of the same names; missing collections are created.
        key:  columns of the view's index; empty: the whole row.
        keep: milliseconds of the view's past to keep readable.
        into: name of a new collection to write the changes to as well.
        limits: on what the view may use of a replica.

        Raises `AlreadyThere`, `NotServable`, `BadPlan`, `CallableRefused`, `UnknownColumn`.
        """
        return self._names.create_view(ViewRequest(name, plan, tuple(key), keep, into, limits))

    def drop(self, name: str) -> None:
        """Drop a view, with the collection it is written into, or a collection.

        Its subscriptions end; accepted peeks are still answered. Raises `UnknownName`, `StillInUse`.
        """
        self._names.drop(name, self._forget)

    def describe(self, name: str) -> Described:
        """Describe the view or collection with a name. Raises `UnknownName`."""
        entry = self._catalog.find_or_raise(name)
        key = entry.key if isinstance(entry, ViewEntry) else ()
        is_view = isinstance(entry, ViewEntry)
        return Described(name, entry.id, is_view, entry.schema, entry.append_only, key)

    def plan(self, view: str) -> Plan:
        """Return the plan that a view was created with. Raises `UnknownName`, for a collection, too."""
        entry = self._catalog.find_or_raise(view)
        if isinstance(entry, CollectionEntry):
            raise UnknownName(
                f"{view!r} is a collection, not a view",
                why="A collection holds rows that are written into it; only views have a plan.",
                fix="name a view",
                name=view,
            )
        return entry.plan

    # --- writing --------------------------------------------------------------------

    def begin_write(self, writes: Mapping[str, Sequence[Counted]], ids: Sequence[bytes] = ()) -> Write:
        """Begin a group commit by assigning it a time. Only one may be in progress.

        The caller appends `Write.appends`, in any thread, then calls `end_write` or `fail_write`.

        Raises `UnknownName`, and `BadRow` for rows that do not fit the schema.
        """
        self._fence()
        write = self._writes.begin(writes, ids)
        try:
            self._positions.record_before_write(write.time)
        except StoreUnavailable as error:
            # Some readers may lose their position in a restart, which is no reason to refuse a write.
            self._note(None, error.what)
        return write

    def end_write(self, write: Write) -> None:
        """Finish a durable write, which strict reads now see and which may be acknowledged.

        Raises `StaleEpoch` if a later controller has started meanwhile; then it must not be acknowledged.
        """
        self._fence_after(write)
        self._writes.end(write)

    def fail_write(self, write: Write) -> bool:
        """Settle a write whose append raised. Returns whether it is durable nevertheless, and so finished.

        Raises `StaleEpoch`, and `StoreUnavailable` if the outcome is unknown for now; a client that repeats
        the write should use the same id.
        """
        self._fence_after(write)
        durable = self._writes.fail(write)
        self._fence()  # a later controller may have read the store before the write arrived
        return durable

    def time_of_write(self, id: bytes) -> int | None:
        """Return the time of the write with an id; None for an unknown or long forgotten one.

        After a restart of the controller, it may be a later time at which the rows are readable. Raises
        `StaleEpoch`, and `StoreUnavailable` if the outcome is unknown for now.
        """
        time = self._writes.time_of_write(id)
        self._fence()  # last, so that any later controller finds the write
        return time

    # --- reading --------------------------------------------------------------------

    def peek(self, request: PeekRequest, answer: Callable[[PeekAnswer], None]) -> bytes:
        """Send a peek to the replicas, and pass on the first answer. Returns the peek's uuid.

        Raises `UnknownName`, `SinceViolation`, `TargetReplicaLost`, `BadMessage`.
        """
        return self._reads.peek(request, answer)

    def cancel_peek(self, uuid: bytes) -> None:
        """Cancel a peek, answering `Canceled` immediately. Does nothing if it is already answered."""
        if not self._peeks.cancel(uuid):
            self._note(None, "a peek that is not pending was to be cancelled")

    def time_out_peek(self, uuid: bytes) -> None:
        """Answer a pending peek with a `ReadTimeout` that names the missing condition."""
        self._reads.time_out_peek(uuid)

    def subscribe(
        self,
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
        return self._reads.subscribe(view, deliver, as_of, snapshot, replica)

    def time_out_subscription(self, id: Id) -> None:
        """End a subscription that has not begun with a `ReadTimeout`."""
        self._reads.time_out_subscription(id)

    def unsubscribe(self, id: Id) -> None:
        """End a subscription, delivering `DroppedAt`. Does nothing if it has already ended."""
        self._subscriptions.cancel(id)

    def copy(
        self,
        view: str,
        file: str,
        answer: Callable[[CopyAnswer], None],
        *,
        at: int | None = None,
        replica: str | None = None,
    ) -> Id:
        """Write the rows at a time (by default, of the last acknowledged write) to a file on the replicas."""
        return self._reads.copy(view, file, answer, at, replica)

    def time_out_copy(self, id: Id, silence: int) -> bool:
        """End a copy with a `ReadTimeout` unless a replica is working on it. Returns whether it has ended.

        A replica counts as working if it has all the input, and has responded within the last `silence` ms.
        """
        return self._reads.time_out_copy(id, self._clock() - silence)

    def cancel_copy(self, id: Id) -> None:
        """Cancel a copy, answering `Dropped` immediately. Does nothing if it is already answered."""
        self._copies.cancel(id)

    # --- replicas -------------------------------------------------------------------

    def add_replica(self, name: str, address: str, timely: TimelyConfig = TimelyConfig()) -> None:
        """Add a replica. Does nothing if an equal one exists. Raises `AlreadyThere`."""
        entry = ReplicaEntry(name, address, timely)
        found = self._catalog.replicas.get(name)
        if found == entry:
            return
        if found is not None:
            raise name_taken_error(name, f"A replica of that name is at {found.address}.")
        check_name(name)
        with self._state.begin_change(self.epoch) as change:
            change.add_replica(entry)
        self._catalog.replicas[name] = entry
        self._replicas.add(entry)

    def drop_replica(self, name: str) -> None:
        """Remove a replica, and close its connection. Raises `UnknownName`."""
        self._catalog.replica(name)
        with self._state.begin_change(self.epoch) as change:
            change.remove_replica(name)
        del self._catalog.replicas[name]
        self._replicas.remove(name)
        self._reads.on_replica_lost(name)

    def release_replica(self, name: str) -> None:
        """End the quarantine of a replica, forget its crashes, and retry it now. Raises `UnknownName`."""
        self._catalog.replica(name)
        self._replicas.release(name)

    def replicas_to_connect(self) -> list[tuple[str, str]]:
        """List the names and addresses of the replicas to connect now."""
        return [
            (r.name, r.entry.address) for r in self._replicas if self._replicas.retry_delay_of(r.name) == 0
        ]

    def next_retry_delay(self, name: str) -> int | None:
        """Return the milliseconds until a replica is retried; None if connected, quarantined or dropped."""
        return self._replicas.retry_delay_of(name)

    def accept_connection(self, name: str) -> ReplicaConnection:
        """Accept a new connection to a replica, closing any earlier one. Raises `UnknownName`."""
        self._catalog.replica(name)
        self._fence()
        if self._replicas.connection_of(name) is not None:
            self._reads.on_replica_lost(name)
        return self._replicas.connect(name)

    def record_unreachable(self, name: str, error: ComputeError) -> None:
        """Record a failed attempt to connect; the replica is retried after `next_retry_delay`."""
        self._replicas.record_unreachable(name, error)

    def configure(self, parameters: Parameters) -> None:
        """Change the limits and intervals of all replicas, for the lifetime of this controller."""
        self._fence()
        self._instance.send(UpdateConfiguration(parameters))

    # --- time passes ----------------------------------------------------------------

    def maintain(self) -> int:
        """Do all work that is due: compact history, schedule dataflows, retry replicas.

        Returns the milliseconds until the next call; an earlier call is harmless.
        """
        self._fence()
        under_way = self._writes.under_way
        return self._maintenance.run({a.id for a in under_way.appends} if under_way else set())

    def status(self) -> ControllerStatus:
        """Return the status of all replicas, views, collections and reads."""
        return build_status(
            self.epoch,
            self._clock(),
            self._catalog,
            self._instance,
            self._oracle,
            self._replicas,
            self._peeks,
            self._subscriptions,
            self._note,
        )

    def check(self) -> None:
        """Assert the invariants: no hold below a since, no since above a hold, inputs readable."""
        self._instance.check()
        for view in self._catalog.views.values():
            running = self._instance.running.get(view.id)
            assert running is None or Frontier(view.valid_from) <= self._instance.holds.since(view.id)

    def _forget(self, name: str, id: Id) -> None:
        self._reads.end_reads_of(name, id)
        self._positions.forget(id)
        self._writes.forget_collection(id)

    def _keep_of(self, id: Id) -> int:
        """Return how many milliseconds of a view's past to keep readable."""
        view = self._catalog.views.get(id)
        return view.keep if view else self._settings.keep

    def _fence(self) -> None:
        """Raise `StaleEpoch` if a later controller has started, which may have writes unknown to this one."""
        self._state.check_epoch(self.epoch)

    def _fence_after(self, write: Write) -> None:
        try:
            self._fence()
        except ComputeError:
            self._writes.mark_in_doubt(write)
            raise

    def _settled(self, id: Id) -> Frontier:
        """Return the latest upper of a view or collection on connected replicas."""
        if self._instance.is_collection(id):
            return self._instance.upper(id)
        exports = (c.tracking.exports.get(id) for c in self._replicas.connections())
        return join(tracked.write for tracked in exports if tracked is not None)

    def _lost(self, connection: ReplicaConnection, error: ComputeError | None) -> None:
        self._replicas.record_lost_connection(connection, error)
        self._reads.on_replica_lost(connection.replica)
