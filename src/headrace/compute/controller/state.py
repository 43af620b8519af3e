"""State of one controller: catalogue, read holds, command log, pending reads, replicas, clock.

The chapters of this package are functions over it: `ddl`, `peeks`, `reads`, `subscriptions`, `writes`,
`replicas`, `restart`. It has no sockets, threads, clock or randomness of its own, so that what a controller
does is a function of the requests, responses and times passed in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from random import Random

from headrace.compute.collections.store import CollectionAppend, Collections
from headrace.compute.controller.catalog import ControllerCatalog
from headrace.compute.controller.durable_catalog import DurableCatalog, StateChange, TransientIds
from headrace.compute.controller.holds import Leases, Positions, ReadHold
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.pending import PendingReads
from headrace.compute.controller.replica_connection import ReplicaConnection, ReplicaRecord
from headrace.compute.controller.status import AnomalyLog, ControllerSettings
from headrace.compute.frontier import LAST_TIME, Frontier
from headrace.compute.hydration import SteadyReplicas
from headrace.compute.protocol.commands import Id, PlanBytes
from headrace.expr.types import Row


class TimestampOracle:
    """Timestamp oracle of one controller.

    Writes get increasing times, the clock's milliseconds if that is ahead. A read is at the time of the last
    acknowledged write, so it sees every write acknowledged before it, and successive reads never go back in
    time (strict serializable).

    last: greatest time of a write, acknowledged or not.
    read: time of the last acknowledged write.
    """

    def __init__(self, clock: Callable[[], int], last: int) -> None:
        self.last = last
        self.read = last
        self._clock = clock
        self._acknowledged: deque[tuple[int, int]] = deque(
            maxlen=4096
        )  # times, with when it was, by the clock

    def assign_write_time(self) -> int:
        """Assign a time to a group of writes, above all earlier ones."""
        self.last = min(max(self.last + 1, self._clock()), LAST_TIME - 1)
        return self.last

    def skip_to(self, upper: Frontier) -> None:
        """Skip the times before `upper`, which are already used."""
        if upper.time is not None:
            self.last = max(self.last, upper.time - 1)

    def acknowledge(self, time: int) -> None:
        """Make a durable write visible to strict reads."""
        if time > self.read:
            self.read = time
            self._acknowledged.append((time, self._clock()))

    def is_within(self, staleness: int, time: int) -> bool:
        """Whether the contents at a time were current at most `staleness` ms ago.

        They are current until the next write is acknowledged, by the clock, since write times may be ahead of
        it. False if that was too long ago to be remembered.
        """
        if time >= self.read:
            return True
        recent = self._acknowledged
        if not recent or time < recent[0][0]:
            return False
        _, superseded = recent[bisect_right(recent, time, key=itemgetter(0))]
        return self._clock() - superseded <= staleness


@dataclass(frozen=True, slots=True)
class Write:
    """Group of writes in progress, to be passed to `Collections.append` in one call.

    time:    of its changes.
    appends: one per collection that clients write; those without changes are advanced to the same time.
    ids:     ids of the clients' writes in the group.
    """

    time: int
    appends: tuple[CollectionAppend, ...]
    ids: tuple[bytes, ...] = ()


@dataclass(slots=True)
class WriteState:
    """Group of writes in progress, and the ids of earlier writes.

    ids:        id of the collection of write ids.
    under_way:  begun, but neither ended nor failed.
    in_doubt:   failed, and not known yet whether it is durable.
    times:      times of known writes, by id.
    oldest:     their ids, in order of time.
    converters: conversions of users' rows, by collection.
    """

    ids: Id
    under_way: Write | None = None
    in_doubt: Write | None = None
    times: dict[bytes, int] = field(default_factory=dict[bytes, int])
    oldest: deque[bytes] = field(default_factory=deque[bytes])
    converters: dict[Id, Callable[[Iterable[object]], list[Row]]] = field(
        default_factory=dict[Id, Callable[[Iterable[object]], list[Row]]]
    )


@dataclass(eq=False, kw_only=True)
class ControllerState:
    """Complete state of a controller. Not thread-safe.

    durable:       catalogue on disk; a later controller on the same file supersedes this one.
    catalog:       collections, views and replicas, as in `durable`.
    store:         rows of the collections, used by the thread that calls the controller.
    instance:      exports and read holds on all replicas, and the command log.
    oracle:        times of writes and strict reads.
    clock:         milliseconds since 1970.
    note:          log of anomalies, for users.
    allow_callables: whether plans may carry Python functions.
    policies:      implied holds on collections.
    pending:       reads that await answers.
    leases, positions: of the readers that have left.
    passthrough_plans: plans of subscriptions and copies, by what they read.
    replicas:      by name, connected or not.
    ready:         names of replicas level with the others for a while, so that any other may be dropped.
    connection_numbers: shared by all replicas, because a replica that is dropped and added again may be the
        same process.
    initial_holds: on all collections, for replicas that may still read them after a restart.
    """

    epoch: int
    durable: DurableCatalog
    catalog: ControllerCatalog
    store: Collections
    instance: Instance
    oracle: TimestampOracle
    clock: Callable[[], int]
    random: Random
    settings: ControllerSettings
    note: AnomalyLog
    allow_callables: bool
    writes: WriteState
    leases: Leases
    positions: Positions
    transient_ids: TransientIds
    steady: SteadyReplicas
    started: int
    compacted: int
    policies: dict[Id, ReadHold] = field(default_factory=dict[Id, ReadHold])
    pending: PendingReads = field(default_factory=PendingReads)
    passthrough_plans: dict[Id, PlanBytes] = field(default_factory=dict[Id, PlanBytes])
    replicas: dict[str, ReplicaRecord] = field(default_factory=dict[str, ReplicaRecord])
    ready: frozenset[str] = frozenset()
    connection_numbers: count[int] = field(default_factory=lambda: count(1))
    initial_holds: list[ReadHold] = field(default_factory=list[ReadHold])

    def check_epoch(self) -> None:
        """Raise `StaleEpoch` if a later controller has started, which may have writes unknown to this one."""
        self.durable.check_epoch(self.epoch)

    def begin_change(self) -> AbstractContextManager[StateChange]:
        """Begin a durable change of the catalogue. Raises `StaleEpoch`, `StoreDamaged`."""
        return self.durable.begin_change(self.epoch)

    def connections(self) -> Iterator[ReplicaConnection]:
        """Iterate over the connections of the connected replicas."""
        return (r.connection for r in self.replicas.values() if r.connection is not None)
