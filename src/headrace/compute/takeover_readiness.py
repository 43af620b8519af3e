"""Readiness of new replicas to take over from the current ones without losing freshness.

A replica is ready once it is hydrated and about as far as the best current one. It must stay so for a while,
because a replica that crashes repeatedly looks ready in between.
Source: the compute protocol of Materialize, readiness for a cut-over (reference, with improvement 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.compute.frontier import Frontier
from headrace.compute.hydration import is_hydrated


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
