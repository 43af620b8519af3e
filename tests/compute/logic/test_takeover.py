"""Readiness: caught up for a while, not by chance."""

from __future__ import annotations

from headrace.compute.frontier import Frontier
from headrace.compute.hydration import (
    Lagging,
    Ready,
    ReplicaProgress,
    SteadyReplicas,
    Unhydrated,
    readiness,
    worst_readiness,
)


def test_a_replica_that_crashes_now_and_then_is_never_steady() -> None:
    steady = SteadyReplicas(1000)
    for now in range(0, 10_000, 500):
        state = Unhydrated() if now % 1000 == 0 else Ready()
        assert steady.observe(now, {"r2": state}) == frozenset()


def test_a_replica_that_was_away_begins_anew() -> None:
    steady = SteadyReplicas(1000)
    steady.observe(0, {"r1": Ready(), "r2": Ready()})
    steady.observe(900, {"r1": Ready()})
    assert steady.observe(1000, {"r1": Ready(), "r2": Ready()}) == {"r1"}
    assert steady.observe(1999, {"r1": Ready(), "r2": Ready()}) == {"r1"}
    assert steady.observe(2000, {"r1": Ready(), "r2": Ready()}) == {"r1", "r2"}


def test_one_that_lags_is_not_steady() -> None:
    steady = SteadyReplicas(1000)
    steady.observe(0, {"r1": Ready()})
    assert steady.observe(1000, {"r1": Lagging(5)}) == frozenset()


def test_the_least_lag_of_the_hydrated_is_told() -> None:
    targets = {
        "far": ReplicaProgress(Frontier(1), Frontier(50)),
        "near": ReplicaProgress(Frontier(1), Frontier(80)),
        "unhydrated": ReplicaProgress(Frontier(100), Frontier(100)),
    }
    assert readiness(Frontier(100), targets, 10) == Lagging(20)
    assert readiness(Frontier(100), targets, 20) == Ready()


def test_all_are_as_far_as_the_one_that_is_least_far() -> None:
    assert worst_readiness([]) == worst_readiness([Ready(), Ready()]) == Ready()
    assert worst_readiness([Lagging(5), Ready(), Lagging(7)]) == Lagging(7)
    assert worst_readiness([Lagging(5), Lagging(None)]) == Lagging(None)
    assert worst_readiness([Lagging(None), Unhydrated(), Ready()]) == Unhydrated()
