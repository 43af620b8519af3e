"""Replicas of a controller: connections, retries, crash loops and quarantine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from headrace.compute.controller.catalog import ReplicaEntry
from headrace.compute.controller.replica_connection import (
    HistoryOverrides,
    ReplicaConnection,
    ResponseRouter,
)
from headrace.compute.controller.requests import ControllerSettings
from headrace.compute.controller.status_types import ReplicaState
from headrace.compute.controller.tracking import Kept, release_all
from headrace.compute.errors import (
    ComputeError,
    FellBehind,
    IncompatibleInstance,
    InsecureAddress,
    NotAuthorized,
    StaleEpoch,
    VersionMismatch,
)
from headrace.compute.frontier import join
from headrace.compute.protocol.commands import Epoch, Parameters
from headrace.compute.protocol.dataflow import Id
from headrace.compute.takeover_readiness import (
    Readiness,
    ReplicaProgress,
    SteadyReplicas,
    Unhydrated,
    readiness,
    worst_readiness,
)


def retry_delay(random: random.Random, tries: int, first: int, longest: int) -> int:
    """Return the milliseconds to wait before the next try, after `tries` failures.

    The wait doubles from `first` up to `longest`; up to half of it is randomly removed, so that replicas that
    failed together are not retried together.
    """
    most = min(first << min(max(tries - 1, 0), 30), longest)
    return most - random.randint(0, most // 2)


@dataclass(slots=True)
class CrashRecord:
    """Recent crashes of one replica.

    deaths:    times of the crashes, ms of the clock.
    rebuilds:  times at which it had fallen behind, and connected again to rebuild dataflows.
    hydrating: exports that were hydrating at the last crash.
    until:     end of the quarantine, or None.
    probation: whether it was quarantined before, so that one more crash quarantines it again.
    """

    deaths: list[int] = field(default_factory=list[int])
    rebuilds: list[int] = field(default_factory=list[int])
    hydrating: tuple[Id, ...] = ()
    until: int | None = None
    probation: bool = False

    def record_crash(self, now: int, hydrating: Iterable[Id], settings: ControllerSettings) -> None:
        """Record a crash; at the limit, quarantine the replica."""
        self.deaths = [at for at in self.deaths if at > now - settings.window] + [now]
        self.hydrating = tuple(hydrating)
        if self.probation or len(self.deaths) >= settings.quarantine_after:
            self.until = now + settings.quarantine

    def record_rebuild(self, now: int, settings: ControllerSettings) -> int:
        """Record that it has to rebuild dataflows. Returns how often it had to in the window."""
        self.rebuilds = [at for at in self.rebuilds if at > now - settings.window] + [now]
        return len(self.rebuilds)

    def recent_crash_count(self, now: int, settings: ControllerSettings) -> int:
        """Return the number of crashes in the window."""
        return sum(at > now - settings.window for at in self.deaths)

    def hydrates_sequentially(self, now: int, settings: ControllerSettings) -> bool:
        """Whether the replica should hydrate one dataflow at a time."""
        return self.probation or self.recent_crash_count(now, settings) >= settings.careful_after

    def is_quarantined(self, now: int) -> bool:
        """Whether the replica is quarantined. After a quarantine it is on probation, with a single try."""
        if self.until is not None and now >= self.until:
            self.until, self.probation = None, True
        return self.until is not None

    def forgive(self) -> None:
        """Forget all crashes of a replica that was steady for long enough, or was released."""
        self.deaths, self.hydrating, self.until, self.probation = [], (), None, False
        self.rebuilds = []


_REFUSALS = (StaleEpoch, NotAuthorized, VersionMismatch, InsecureAddress, IncompatibleInstance)
"""Errors by which a replica refuses a connection: it has not crashed, but may keep refusing for a while."""


@dataclass(slots=True, eq=False)
class Replica:
    """State of one replica, connected or not.

    connections: number of connections so far.
    since:    ms of the clock at which it entered its current state.
    tries:    failed attempts since it was last connected.
    retry_at: time of the next attempt.
    problem:  reason why it is not connected.
    kept:     holds on the inputs that it may still read.
    """

    entry: ReplicaEntry
    since: int
    retry_at: int
    connection: ReplicaConnection | None = None
    connections: int = 0
    tries: int = 0
    problem: str = ""
    crashes: CrashRecord = field(default_factory=CrashRecord)
    kept: Kept = field(default_factory=Kept)

    @property
    def name(self) -> str:
        return self.entry.name

    def state(self, now: int) -> ReplicaState:
        if self.connection is not None:
            return ReplicaState.CONNECTED
        return ReplicaState.QUARANTINED if self.crashes.is_quarantined(now) else ReplicaState.WAITING


class Replicas:
    """All replicas of a controller, by name.

    ready: replicas that have been level with the others for a while, so that any other may be dropped.
    """

    def __init__(
        self,
        router: ResponseRouter,
        *,
        epoch: int,
        clock: Callable[[], int],
        random: random.Random,
        settings: ControllerSettings,
    ) -> None:
        self._router = router
        self._epoch = epoch
        self._clock = clock
        self._random = random
        self._settings = settings
        self._replicas: dict[str, Replica] = {}
        self._steady = SteadyReplicas(settings.steady)
        self.ready: frozenset[str] = frozenset()
        # Shared by all replicas, because a replica that is dropped and added again may be the same process.
        self._numbers = count(1)
        router.instance.pushed = self.wake

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __getitem__(self, name: str) -> Replica:
        return self._replicas[name]

    def add(self, entry: ReplicaEntry) -> None:
        now = self._clock()
        self._replicas[entry.name] = Replica(entry, since=now, retry_at=now)

    def remove(self, name: str) -> None:
        replica = self._replicas.pop(name)
        if replica.connection is not None:
            replica.connection.close()
        release_all(replica.kept)

    def connections(self) -> list[ReplicaConnection]:
        return [r.connection for r in self._replicas.values() if r.connection is not None]

    def connected_names(self) -> list[str]:
        return [r.name for r in self._replicas.values() if r.connection is not None]

    def connection_of(self, name: str) -> ReplicaConnection | None:
        """Return the connection of a replica, or None."""
        replica = self._replicas.get(name)
        return replica.connection if replica else None

    def wake(self) -> None:
        """Wake all connections, because new commands may be available."""
        for replica in self._replicas.values():
            if replica.connection is not None:
                replica.connection.wake()

    def retry_delay_of(self, name: str) -> int | None:
        """Return the milliseconds until a replica is retried; None if connected, quarantined or unknown."""
        replica = self._replicas.get(name)
        now = self._clock()
        if replica is None or replica.state(now) is not ReplicaState.WAITING:
            return None
        return max(replica.retry_at - now, 0)

    def connect(self, name: str) -> ReplicaConnection:
        """Open a new connection of a replica, closing any earlier one."""
        replica = self._replicas[name]
        if replica.connection is not None:
            replica.connection.close()
        now = self._clock()
        careful = replica.crashes.hydrates_sequentially(now, self._settings)
        replica.connections += 1
        specifics = HistoryOverrides(
            name,
            replica.entry.timely,
            Epoch(self._epoch, next(self._numbers)),
            self._random.randbytes(16),
            Parameters(hydration_concurrency=1) if careful else Parameters(),
        )
        replica.connection = ReplicaConnection(specifics, self._router, replica.kept, self._clock)
        replica.since, replica.tries, replica.problem = now, 0, ""
        self._steady.restart(name)
        return replica.connection

    def record_unreachable(self, name: str, error: ComputeError) -> None:
        """Record a failed attempt to connect."""
        replica = self._replicas.get(name)
        if replica is not None and replica.connection is None:
            replica.problem = error.what
            self._wait_after_refusal(replica)

    def record_lost_connection(self, connection: ReplicaConnection, error: ComputeError | None) -> None:
        """Record the end of a replica's current connection."""
        replica = self._replicas[connection.replica]
        assert replica.connection is connection, "a superseded connection is closed, and reports no end"
        now = self._clock()
        replica.connection, replica.since = None, now
        replica.problem = error.what if error else "the connection ended"
        if connection.gave_up or isinstance(error, FellBehind):
            if error is not None:
                self._router.note(replica.name, error.what)
            replica.problem = "it has fallen too far behind, and rebuilds views"
            self._rest(replica, replica.crashes.record_rebuild(now, self._settings))
        elif connection.fell_behind:
            replica.retry_at = now
            replica.problem = "it was too slow in taking commands"
        elif isinstance(error, _REFUSALS):
            replica.tries = max(replica.tries, 8)
            self._wait_after_refusal(replica)
        else:
            replica.crashes.record_crash(now, connection.tracking.building(), self._settings)
            self._rest(replica, len(replica.crashes.deaths))

    def release(self, name: str) -> None:
        """End the quarantine of a replica, forget its crashes, and retry it now."""
        replica = self._replicas[name]
        replica.crashes.forgive()
        replica.retry_at, replica.tries = self._clock(), 0

    def maintain(self) -> None:
        """Release the inputs of replicas that were lost a while ago, and update the set of ready ones."""
        now, settings = self._clock(), self._settings
        for replica in self._replicas.values():
            if replica.connection is None and now - replica.since >= settings.patience:
                release_all(replica.kept)
        connections = self.connections()
        self.ready = self._steady.observe(now, {c.replica: self._readiness(c) for c in connections})
        for name in self.ready:
            self._replicas[name].crashes.forgive()

    def release_lagging(self) -> bool:
        """Stop keeping inputs for replicas that are too far behind. Returns whether there are any."""
        now, most = self._clock(), self._settings.max_lag
        released = [
            (connection, id, connection.tracking.release_inputs(id))
            for connection in self.connections()
            if not connection.is_over
            for id in connection.tracking.lagging_exports(now, most)
        ]
        # Where somebody else still needs them, the replica may as well go on.
        lost = [(c, id) for c, id, held in released if not c.tracking.hold_again(id, held)]
        for connection, id in lost:
            connection.give_up()
            name = self._router.instance.running[id].dataflow.name
            text = f"more than {most / 1000:g} s behind with {name!r}, which it rebuilds from a snapshot"
            self._router.note(connection.replica, text)
        return bool(lost)

    def is_ready(self, replica: Replica) -> bool:
        """Whether a replica is ready, still connected, and can continue all its views."""
        connection = replica.connection
        return (
            connection is not None
            and replica.name in self.ready
            and not connection.broken & connection.tracking.exports.keys()
        )

    def recent_crash_count(self, replica: Replica) -> int:
        """Return the number of a replica's crashes in the window."""
        return replica.crashes.recent_crash_count(self._clock(), self._settings)

    def _readiness(self, connection: ReplicaConnection) -> Readiness:
        if not connection.initialized:
            return Unhydrated()
        return worst_readiness(
            readiness(
                join(c.tracking.output_frontier(tracked.id) for c in self.connections()),
                {connection.replica: ReplicaProgress(tracked.as_of, tracked.output)},
                self._settings.lag,
            )
            for tracked in connection.tracking.lasting_exports()
        )

    def next_retry(self) -> int | None:
        """Return the milliseconds until the next retry of any replica, or None."""
        waits = [wait for name in self._replicas if (wait := self.retry_delay_of(name)) is not None]
        return min(waits, default=None)

    def _wait_after_refusal(self, replica: Replica) -> None:
        replica.tries += 1
        settings = self._settings
        wait = retry_delay(self._random, replica.tries, settings.first_retry, settings.longest_retry)
        replica.retry_at = self._clock() + wait

    def _rest(self, replica: Replica, times: int) -> None:
        settings = self._settings
        wait = retry_delay(self._random, times, settings.first_rest, settings.longest_rest)
        replica.retry_at = self._clock() + wait
