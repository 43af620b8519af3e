"""Status of a controller, as plain data for tables."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import TimelyConfig
from headrace.compute.protocol.dataflow import Id


class ReplicaState(Enum):
    """Connection state of a replica.

    CONNECTED: receives commands. WAITING: will be retried. QUARANTINED: has crashed too often, and is not
    retried until the quarantine ends.
    """

    CONNECTED = "connected"
    WAITING = "waiting"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Status of one replica.

    since:      ms of the clock at which it entered this state.
    connections: number of connections so far.
    ready:      whether it has been hydrated and level with the others for a minute, so it can replace them.
    deaths:     number of crashes in the window that counts for quarantine.
    hydrating:  exports that are hydrating now, or were at the last crash.
    problem:    reason why it is not connected, or quarantined; empty if there is none.
    says:       its own metrics: "memory" in bytes, "rows" of indexes; the numbers of dataflows "kept",
        "created" and "dropped" when this connection began; ...
    """

    name: str
    address: str
    timely: TimelyConfig
    state: ReplicaState
    since: int
    connections: int
    ready: bool
    deaths: int
    hydrating: tuple[Id, ...]
    problem: str
    says: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ViewReplicaStatus:
    """Progress of a view on one replica.

    hydrated: whether it can answer from the view, from its as-of on.
    lag:    ms that its output frontier is behind the last acknowledged write.
    failed: whether reads from `write` on get an error: of the data, which is the same on all replicas, or, if
        `broken`, of this replica only, such as a limit of processor time or memory.
    says:   the replica's last status text.
    """

    replica: str
    hydrated: bool
    write: Frontier
    output: Frontier
    lag: int
    failed: bool
    broken: bool
    says: str = ""

    @property
    def failure(self) -> str:
        """ "failed" or "broken"; empty if neither."""
        return "broken" if self.broken else "failed" if self.failed else ""


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """Status of one view. since, upper: times readable on some replica.

    hydrated: on some connected replica, or complete.
    """

    name: str
    id: Id
    since: Frontier
    upper: Frontier
    key: tuple[str, ...]
    keep: int
    reads: tuple[str, ...]
    into: str | None
    scheduled: bool
    hydrated: bool
    replicas: tuple[ViewReplicaStatus, ...]

    @property
    def failure(self) -> str:
        """ "failed" or "broken" if no replica can answer from the view any more; else empty."""
        found = {on.failure for on in self.replicas} or {""}
        return "" if "" in found else min(found, key=("failed", "broken").index)

    @property
    def state(self) -> str:
        """State of the view, in words."""
        if self.failure:
            return self.failure
        if self.hydrated:
            return "ready"
        if not self.replicas:
            return "no replica has it"
        return "hydrating" if self.scheduled else "waits for its inputs"


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """Status of one collection. written_by: the view that writes it; None if clients do."""

    name: str
    id: Id
    since: Frontier
    upper: Frontier
    append_only: bool
    columns: str
    written_by: str | None


@dataclass(frozen=True, slots=True)
class PeekStatus:
    """Status of a pending peek. replica: the only one that may answer, or None for any."""

    uuid: bytes
    view: str
    time: int
    replica: str | None
    since: int


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """Status of a subscription. upper: frontier up to which changes were delivered."""

    id: Id
    view: str
    upper: Frontier
    replica: str | None


@dataclass(frozen=True, slots=True)
class ProblemNote:
    """Record of an anomaly that was ignored.

    at: ms of the clock at its last occurrence. times: number of occurrences in a row.
    """

    at: int
    replica: str | None
    text: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """Status of a whole controller.

    read_time: time of the last acknowledged write, used by strict reads.
    commands:  current length of the history.
    """

    epoch: int
    read_time: int
    commands: int
    replicas: tuple[ReplicaStatus, ...]
    views: tuple[ViewStatus, ...]
    collections: tuple[CollectionStatus, ...]
    peeks: tuple[PeekStatus, ...]
    subscriptions: tuple[SubscriptionStatus, ...]
    problems: tuple[ProblemNote, ...]


_KEPT = 100


class AnomalyLog:
    """Most recent anomalies; consecutive repetitions share one note with a count."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._notes: deque[ProblemNote] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[ProblemNote]:
        return iter(self._notes)

    def __call__(self, replica: str | None, text: str) -> None:
        """Record an anomaly of a replica, or of the controller (None)."""
        now = self._clock()
        last = self._notes[-1] if self._notes else None
        if last is not None and (last.replica, last.text) == (replica, text):
            self._notes[-1] = replace(last, at=now, times=last.times + 1)
        else:
            self._notes.append(ProblemNote(now, replica, text))
