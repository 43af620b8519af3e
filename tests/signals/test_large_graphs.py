"""Graphs that are deep or wide beyond what one would write by hand."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from tests.conformance.signal_cases import SCHEDULES


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_hundred_filters_behind_each_other(schedule: Any) -> None:
    flow = hr.Flow("sieve")
    left = a = flow.signal("a", int)
    for at in range(2, 202):
        left = left.filter(lambda v, at=at: v % at != 0)
    flow.sink("left", left)
    flow.sink("sum", left + a)
    engine = hr.Engine(flow, schedule=schedule)
    shown = engine.replay(a=[210, 211, 212, 223])
    assert list(shown["left"]) == [(1, 211), (3, 223)]
    assert list(shown["sum"]) == [(1, 422), (2, 423), (3, 446)]
    assert [change.row for change in engine.tick(a=227)["left"]] == [227]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_chain_of_three_thousand_operators(schedule: Any) -> None:
    flow = hr.Flow("chain")
    value = flow.signal("a", int)
    for _ in range(3_000):
        value = value + 1
    flow.sink("end", value)
    engine = hr.Engine(flow, schedule=schedule)
    assert list(engine.replay(a=[0, 5])["end"]) == [(0, 3_000), (1, 3_005)]
    assert [change.row for change in engine.tick(a=1)["end"]] == [3_001]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_source_and_three_hundred_joins_of_its_filters(schedule: Any) -> None:
    flow = hr.Flow("joins")
    a = flow.signal("a", int)
    parts = [a.filter(lambda v, at=at: v % 300 in (at, (at + 1) % 300)) for at in range(300)]
    for at in range(300):
        flow.sink(f"j{at}", hr.lift(lambda x, y: (x, y))(parts[at], parts[(at + 1) % 300]))
    engine = hr.Engine(flow, schedule=schedule)
    history = [*range(300), 7, 8]
    shown = engine.replay(a=history)
    assert list(shown["j5"])[-1] == (300, (6, 7))
    assert list(shown["j7"])[-2:] == [(300, (7, 9)), (301, (8, 8))]
    assert len(shown["j100"]) == 2
