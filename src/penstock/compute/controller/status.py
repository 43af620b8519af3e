"""What a controller tells about itself: plain data, good enough for tables."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from penstock.compute.frontier import Frontier
from penstock.compute.protocol.commands import TimelyConfig
from penstock.compute.protocol.dataflow import Id


class ReplicaState(Enum):
    """CONNECTED: commands reach it. WAITING: it is not, and will be tried again. QUARANTINED: it died too
    often and is left alone until it is released."""

    CONNECTED = "connected"
    WAITING = "waiting"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica.

    since:      ms of the clock from which on it has been in this state.
    connections: how often it was connected.
    ready:      for a minute it has had all that it is to have, and been as far as the others: it can do
        without them.
    deaths:     how often it was lost within the window that counts for quarantine.
    hydrating:  what was not yet whole when it died last, or is not now.
    problem:    why it is not connected, or is quarantined; empty: nothing is wrong.
    says:       of itself: "memory" in bytes, "rows" of indexes; how many dataflows it has "kept",
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
    """How far a view has come on one replica.

    lag:  ms that its settled times are behind the last write.
    says: what the replica said of it last, for people.
    """

    replica: str
    hydrated: bool
    write: Frontier
    output: Frontier
    lag: int
    says: str = ""


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """One view. since, upper: what can be read on some replica. hydrated: on some replica."""

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


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """One collection. written_by: the view that writes it; None: clients do."""

    name: str
    id: Id
    since: Frontier
    upper: Frontier
    append_only: bool
    columns: str
    written_by: str | None


@dataclass(frozen=True, slots=True)
class PeekStatus:
    """A peek that waits. replica: the only one that may answer; None: any."""

    uuid: bytes
    view: str
    time: int
    replica: str | None
    since: int


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription. upper: what was delivered covers the times before it."""

    id: Id
    view: str
    upper: Frontier
    replica: str | None


@dataclass(frozen=True, slots=True)
class ProblemNote:
    """Something that should not be, which was passed over.

    at:    ms of the clock, the last time. times: how often in a row.
    """

    at: int
    replica: str | None
    text: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """The whole of it.

    read_time: the time of the last acknowledged write, at which strict reads are.
    commands:  length of the history, reduced or not.
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


class Anomalies:
    """The last problems; the same one again and again is one note."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._notes: deque[ProblemNote] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[ProblemNote]:
        return iter(self._notes)

    def __call__(self, replica: str | None, text: str) -> None:
        """Note a problem."""
        now = self._clock()
        last = self._notes[-1] if self._notes else None
        if last is not None and (last.replica, last.text) == (replica, text):
            self._notes[-1] = replace(last, at=now, times=last.times + 1)
        else:
            self._notes.append(ProblemNote(now, replica, text))
