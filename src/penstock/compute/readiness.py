"""Readiness: whether replicas can take over from others without a step back.

Ready is a replica that has hydrated and is about as far as the best of those that serve now; for a while,
not just at one moment: one that crashes again and again looks ready in between.
Source: the compute protocol of Materialize, readiness for a cut-over (reference, with improvement 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.compute.frontier import Frontier
from penstock.compute.hydration import is_hydrated


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a replica with an export: its as-of and output frontier."""

    as_of: Frontier
    output: Frontier


@dataclass(frozen=True, slots=True)
class Ready:
    """Some replica could take over."""


@dataclass(frozen=True, slots=True)
class Lagging:
    """Hydrated, and behind. by: milliseconds, of the replica that is least behind; None: the reference has
    ended."""

    by: int | None


@dataclass(frozen=True, slots=True)
class Unhydrated:
    """No replica has hydrated, or there is none."""


Readiness: TypeAlias = Ready | Lagging | Unhydrated


def readiness(
    reference: Frontier | None, targets: Mapping[str, Progress], allowed_lag: int | None
) -> Readiness:
    """Whether one of the target replicas could take an export over.

    reference:   the furthest output frontier of those that serve now; None: there are none.
    targets:     by the name of the replica. One replica must be both hydrated and far enough.
    allowed_lag: milliseconds; None: being hydrated is enough.

    >>> readiness(Frontier(100), {"r2": Progress(Frontier(5), Frontier(90))}, 5)
    Lagging(by=10)
    """
    lags = [lag(reference, t.output) for t in targets.values() if is_hydrated(t.as_of, t.output)]
    if not lags:
        return Unhydrated()
    known = [by for by in lags if by is not None]
    if allowed_lag is None or any(by <= allowed_lag for by in known):
        return Ready()
    return Lagging(min(known, default=None))


def worst(states: Iterable[Readiness]) -> Readiness:
    """The worst of several readinesses; ready if there are none."""
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


def lag(reference: Frontier | None, output: Frontier) -> int | None:
    """Milliseconds that an output is behind a reference; None where that has ended and it has not."""
    if reference is None or reference <= output:
        return 0
    return None if reference.time is None or output.time is None else reference.time - output.time


@dataclass(slots=True)
class Steady:
    """Which replicas have been ready without a break for a period, in milliseconds.

    >>> steady = Steady(1000)
    >>> steady.observe(0, {"r2": Ready()}), steady.observe(1000, {"r2": Ready()})
    (frozenset(), frozenset({'r2'}))
    """

    period: int
    _ready_since: dict[str, int] = field(default_factory=dict[str, int])

    def observe(self, now: int, replicas: Mapping[str, Readiness]) -> frozenset[str]:
        """What holds at a moment of the clock, of all replicas that are connected; those that have been ready
        for the whole period."""
        ready = [name for name, state in replicas.items() if isinstance(state, Ready)]
        self._ready_since = {name: self._ready_since.get(name, now) for name in ready}
        return frozenset(name for name in ready if now - self._ready_since[name] >= self.period)

    def restart(self, replica: str) -> None:
        """It has been away, maybe between two observations."""
        self._ready_since.pop(replica, None)
