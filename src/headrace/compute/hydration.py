"""Hydration of exports: when they may start, when they are hydrated, and when a replica can take over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import (
    AllowCompaction,
    Command,
    CreateDataflow,
    Dataflow,
    Id,
    Schedule,
    UpdateConfiguration,
    is_transient,
)
from headrace.compute.protocol.responses import Frontiers, Response

# A dataflow hydrates from its start until it has computed its contents at the as-of, or has failed. Hydrating
# takes more memory than steady operation, so a replica hydrates only a few dataflows at a time.
# Source: the compute protocol of Materialize, scheduling and sequential hydration (reference); here a
# dataflow counts once for all its exports.


def is_hydrated(as_of: Frontier, output: Frontier) -> bool:
    """Whether the contents at the as-of have been computed.

    >>> is_hydrated(Frontier(5), Frontier(5)), is_hydrated(Frontier(5), Frontier(6)), is_hydrated(END, END)
    (False, True, True)
    """
    return as_of == END or as_of < output


def may_be_scheduled(export: Id, as_of: Frontier, uppers: Iterable[Frontier], indexes_are: bool) -> bool:
    """Whether an export may be scheduled: its inputs are settled at its as-of, so it will not hold memory
    while waiting for them.

    uppers:      of everything it reads, except itself.
    indexes_are: whether all indexes that it reads have been scheduled.
    Transient exports may start at once, since a client is waiting. Dropped or already scheduled ones (`as_of`
    END) may not be scheduled.
    """
    if as_of == END:
        return False
    return is_transient(export) or (indexes_are and all(as_of < upper for upper in uppers))


@dataclass(slots=True, eq=False)
class _Waiting:
    """Dataflow not yet known to be hydrated.

    exports: all except transient ones. behind: those neither hydrated nor dropped.
    queued:  those whose `Schedule` is held back.
    """

    as_of: Frontier
    exports: frozenset[Id]
    behind: set[Id]
    queued: list[Id] = field(default_factory=list[Id])


class SequentialHydration:
    """Limiter of hydration on one connection: holds back `Schedule` commands.

    Every command to the replica goes through `command`, every response from it through `commands_after`; the
    commands they return must be sent to the replica, in order. Transient dataflows are not limited.

    limit: number of dataflows that may hydrate at a time, until an `UpdateConfiguration` changes it.
    Invariant: at most `limit` dataflows hydrate at a time, and each `Schedule` is sent once, unless its
    export is dropped first. `check` asserts the part that is visible here.
    """

    def __init__(self, limit: int = 4) -> None:
        self._limit = limit
        self._dataflow_of: dict[Id, _Waiting] = {}
        self._hydrating: list[_Waiting] = []
        self._queue: deque[_Waiting] = deque()

    @property
    def hydrating(self) -> int:
        """Number of hydrating dataflows."""
        return len(self._hydrating)

    @property
    def queued(self) -> tuple[Id, ...]:
        """Exports whose `Schedule` is held back, in order."""
        return tuple(id for waiting in self._queue for id in waiting.queued)

    def commands_for(self, command: Command) -> list[Command]:
        """Return the commands to send to the replica for a command."""
        match command:
            case CreateDataflow(dataflow):
                self._track(dataflow)
            case Schedule(id) if id in self._dataflow_of:
                return self._schedule(id)
            case AllowCompaction(id, frontier) if frontier == END and id in self._dataflow_of:
                return [command, *self._drop(id), *self._fill()]
            case UpdateConfiguration(parameters) if parameters.hydration_concurrency is not None:
                self._limit = parameters.hydration_concurrency
            case _:
                pass
        return [command, *self._fill()]

    def commands_after(self, response: Response) -> list[Command]:
        """Return the commands to send to the replica after a response."""
        if not isinstance(response, Frontiers):
            return []
        waiting = self._dataflow_of.get(response.id)
        if waiting is None:
            return []
        # A failed dataflow has stopped reading: it will never hydrate, and must not count.
        over = response.input == END
        if not over and (response.output is None or not is_hydrated(waiting.as_of, response.output)):
            return []
        # Its own Schedules first: a dataflow that is still queued may also turn out to be hydrated.
        return [*self._caught_up(response.id), *self._fill()]

    def check(self) -> None:
        """Assert the invariant."""
        assert len(self._hydrating) <= max(self._limit, 1) or not self._queue
        assert all(waiting.queued for waiting in self._queue)
        assert not any(waiting.queued for waiting in self._hydrating)

    def _track(self, dataflow: Dataflow) -> None:
        ids = frozenset(export.id for export in dataflow.exports if not is_transient(export.id))
        if ids and dataflow.as_of != END:
            waiting = _Waiting(dataflow.as_of, ids, set(ids))
            self._dataflow_of.update(dict.fromkeys(ids, waiting))

    def _schedule(self, id: Id) -> list[Command]:
        waiting = self._dataflow_of[id]
        if waiting in self._hydrating:
            return [Schedule(id)]
        waiting.queued.append(id)
        if waiting not in self._queue:
            self._queue.append(waiting)
        return self._fill()

    def _drop(self, id: Id) -> list[Command]:
        waiting = self._dataflow_of[id]
        if id in waiting.queued:
            waiting.queued.remove(id)
        if not waiting.queued and waiting in self._queue:
            self._queue.remove(waiting)
        return self._caught_up(id)

    def _caught_up(self, id: Id) -> list[Command]:
        """Handle an export that is hydrated or dropped. If it was the last of its dataflow, stop tracking the
        dataflow, and return its held-back commands."""
        waiting = self._dataflow_of[id]
        waiting.behind.discard(id)
        if waiting.behind:
            return []
        for export in waiting.exports:
            del self._dataflow_of[export]
        if waiting in self._hydrating:
            self._hydrating.remove(waiting)
        if waiting in self._queue:
            self._queue.remove(waiting)
        return [Schedule(export) for export in waiting.queued]

    def _fill(self) -> list[Command]:
        sent: list[Command] = []
        while self._queue and len(self._hydrating) < max(self._limit, 1):
            waiting = self._queue.popleft()
            self._hydrating.append(waiting)
            sent += [Schedule(id) for id in waiting.queued]
            waiting.queued.clear()
        return sent


# A replica is ready once it is hydrated and about as far as the best current one. It must stay so for a
# while, because a replica that crashes repeatedly looks ready in between. Source: the compute protocol of
# Materialize, readiness for a cut-over (reference, with improvement 10).


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """Progress of a replica with an export: its as-of and output frontier."""

    as_of: Frontier
    output: Frontier


@dataclass(frozen=True, slots=True)
class Ready:
    """State in which some replica can take over."""


@dataclass(frozen=True, slots=True)
class Lagging:
    """State of hydrated replicas that are too far behind.

    by: milliseconds that the furthest of them is behind; None: the reference has ended.
    """

    by: int | None


@dataclass(frozen=True, slots=True)
class Unhydrated:
    """State without any hydrated replica."""


Readiness: TypeAlias = Ready | Lagging | Unhydrated


def readiness(
    reference: Frontier | None, targets: Mapping[str, ReplicaProgress], allowed_lag: int | None
) -> Readiness:
    """Determine whether one of the target replicas can take over an export.

    reference:   furthest output frontier of the current replicas; None: there are none.
    targets:     by replica name. A single replica must be both hydrated and far enough.
    allowed_lag: milliseconds; None: hydration is enough.

    >>> readiness(Frontier(100), {"r2": ReplicaProgress(Frontier(5), Frontier(90))}, 5)
    Lagging(by=10)
    """
    lags = [
        milliseconds_behind(reference, t.output) for t in targets.values() if is_hydrated(t.as_of, t.output)
    ]
    if not lags:
        return Unhydrated()
    known = [by for by in lags if by is not None]
    if allowed_lag is None or any(by <= allowed_lag for by in known):
        return Ready()
    return Lagging(min(known, default=None))


def worst_readiness(states: Iterable[Readiness]) -> Readiness:
    """Return the worst of several readiness states; `Ready` if there are none."""
    lags: list[int | None] = []
    for state in states:
        match state:
            case Unhydrated():
                return state
            case Lagging(by):
                lags.append(by)
            case Ready():
                pass
    if not lags:
        return Ready()
    return Lagging(None if None in lags else max(by for by in lags if by is not None))


def milliseconds_behind(reference: Frontier | None, output: Frontier) -> int | None:
    """Return the milliseconds that an output is behind a reference; None if only the reference has ended."""
    if reference is None or reference <= output:
        return 0
    return None if reference.time is None or output.time is None else reference.time - output.time


@dataclass(slots=True)
class SteadyReplicas:
    """Tracker of the replicas that have been ready without interruption for `period` milliseconds.

    >>> steady = SteadyReplicas(1000)
    >>> steady.observe(0, {"r2": Ready()}), steady.observe(1000, {"r2": Ready()})
    (frozenset(), frozenset({'r2'}))
    """

    period: int
    _ready_since: dict[str, int] = field(default_factory=dict[str, int])

    def observe(self, now: int, replicas: Mapping[str, Readiness]) -> frozenset[str]:
        """Record the readiness of all connected replicas at time `now`, and return those that have been ready
        for the whole period."""
        ready = [name for name, state in replicas.items() if isinstance(state, Ready)]
        self._ready_since = {name: self._ready_since.get(name, now) for name in ready}
        return frozenset(name for name in ready if now - self._ready_since[name] >= self.period)

    def restart(self, replica: str) -> None:
        """Restart the period of a replica that was disconnected, perhaps between two observations."""
        self._ready_since.pop(replica, None)
