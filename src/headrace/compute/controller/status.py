"""Settings and status of a controller, as plain data for tables and for the network."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, cast

from headrace.compute.errors import BadMessage
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import Id, TimelyConfig


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
class Anomaly:
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
    problems: tuple[Anomaly, ...]


_KEPT = 100


class AnomalyLog:
    """Most recent anomalies; consecutive repetitions share one note with a count."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._notes: deque[Anomaly] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[Anomaly]:
        return iter(self._notes)

    def __call__(self, replica: str | None, text: str) -> None:
        """Record an anomaly of a replica, or of the controller (None)."""
        now = self._clock()
        last = self._notes[-1] if self._notes else None
        if last is not None and (last.replica, last.text) == (replica, text):
            self._notes[-1] = replace(last, at=now, times=last.times + 1)
        else:
            self._notes.append(Anomaly(now, replica, text))


T = TypeVar("T")


def to_plain(value: object) -> Any:
    """Convert dataclasses to dicts by field, and enums to their values, also within tuples."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return tuple(to_plain(each) for each in cast("tuple[object, ...]", value))
    return value


def from_plain(wanted: type[T], plain: object) -> T:
    """Convert plain data back to a dataclass. Unknown fields are ignored; raises `BadMessage` for a missing
    required field."""
    try:
        return _made(wanted, plain)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise BadMessage(
            f"what was sent is no {wanted.__name__}",
            why=f"{type(error).__name__}: {error}",
            fix="use a client of the version of the controller",
            field=wanted.__name__,
        ) from error


@lru_cache(maxsize=64)
def _hints(wanted: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(wanted)


def _made(wanted: Any, plain: Any) -> Any:
    origin = typing.get_origin(wanted)
    if origin is tuple:
        of = typing.get_args(wanted)[0]
        return tuple(_made(of, each) for each in plain)
    if origin in (types.UnionType, typing.Union):
        inner = [of for of in typing.get_args(wanted) if of is not types.NoneType]
        return None if plain is None else _made(inner[0], plain)
    if dataclasses.is_dataclass(wanted):
        hints = _hints(cast("type[Any]", wanted))
        return cast("Any", wanted)(
            **{name: _made(hints[name], plain[name]) for name in hints if name in plain}
        )
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return wanted(plain)
    return plain


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of a controller: times in milliseconds, and counts.

    interval:         longest time between calls of `maintain`.
    keep:             length of the readable past of collections.
    compaction:       time between compactions of the store.
    first_retry:      delay before an unreachable replica is retried; doubled each time.
    longest_retry:    limit of that delay.
    first_rest:       delay before a crashed replica is retried; doubled with each crash in the window.
    longest_rest:     limit of that delay.
    window:           age up to which crashes count. A replica that becomes steady starts over at zero.
    lag:              lag behind the other replicas up to which a replica counts as level with them.
    steady:           time of being hydrated and level after which a replica is ready, and not crash-looping.
    careful_after:    crashes in the window after which a replica hydrates one dataflow at a time.
    quarantine_after: crashes in the window after which a replica is quarantined.
    quarantine:       length of a quarantine, after which the replica is retried.
    patience:         time for which the inputs of a lost replica stay readable from its position on.
    max_lag:          time for which a replica may stay behind the readable past of a hydrated view. Then its
        inputs are no longer kept, and it rebuilds the view.
    most_behind:      commands that a connection may be behind before it is cut, to start over.
    remembered_ids:   time for which the ids of writes are kept, to recognise repeated ones.
    """

    interval: int = 1_000
    keep: int = 10_000
    compaction: int = 5_000
    first_retry: int = 50
    longest_retry: int = 1_000
    first_rest: int = 100
    longest_rest: int = 30_000
    window: int = 600_000
    lag: int = 5_000
    steady: int = 60_000
    careful_after: int = 3
    quarantine_after: int = 8
    quarantine: int = 1_800_000
    patience: int = 60_000
    max_lag: int = 600_000
    most_behind: int = 10_000
    remembered_ids: int = 600_000
