"""The order of work does not show: every schedule gives the same answers and activates the same operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.engine.engine import Engine, ScheduleName
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases, cuts

SCHEDULES: tuple[ScheduleName, ...] = ("hybrid", "dynamic", "static")
ONE_CUT = cases(deferred=True, folds=True).flatmap(lambda case: st.tuples(st.just(case), cuts(case)))


class Pair(NamedTuple):
    k: int
    v: int


class Order(NamedTuple):
    customer: int
    price: int


def told(flow: hr.Flow, ticks: Sequence[Tick], schedule: ScheduleName) -> tuple[list[Any], dict[str, int]]:
    """What each tick says, as bags, and how often each operator was reached."""
    engine = Engine(flow, schedule=schedule, count_activations=True)
    said = [engine.tick(**tick) for tick in ticks]
    while engine.pending:
        said.append(engine.tick())
    return [{n: sorted(map(repr, c.raw)) for n, c in tick.items()} for tick in said], engine.activations


@examples(1)
@given(ONE_CUT)
def test_schedules_give_the_same_answers_and_activate_the_same_operators(
    drawn: tuple[Case, list[Tick]],
) -> None:
    case, ticks = drawn
    hybrid = told(case.flow, ticks, "hybrid")
    assert told(case.flow, ticks, "dynamic") == hybrid
    assert told(case.flow, ticks, "static") == hybrid


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_operator_behind_a_silent_filter_does_not_run(schedule: ScheduleName) -> None:
    flow = hr.Flow("gated")
    pairs, other = flow.source("pairs", Pair), flow.source("other", Pair)
    high = pairs.filter(col.v > 10, name="high")
    met = high.distinct(name="set").join(other, on="k", suffix="_other", name="met")
    flow.sink("out", met)
    _, activations = told(
        flow, [{"pairs": [Pair(1, 1)]}, {"pairs": [Pair(1, 11)]}, {"pairs": [Pair(1, 11)]}], schedule
    )
    assert {n: activations[n] for n in ("pairs", "high", "set", "met")} == {
        "pairs": 3,
        "high": 3,
        "set": 2,
        "met": 1,
    }


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_node_between_two_sources_runs_once_for_both(schedule: ScheduleName) -> None:
    flow = hr.Flow("meeting")
    left, right = flow.source("left", Pair), flow.source("right", Order)
    longer = left
    for at in range(5):
        longer = longer.with_columns(v=col.v + 1, into=Pair, name=f"step{at}")
    met = longer.join(right, on=col.k == col.customer, name="met")
    flow.sink("out", met)
    outputs, activations = told(flow, [{"left": [Pair(1, 1)], "right": [Order(1, 5)]}], schedule)
    assert outputs == [{"out": ["(1, 6, 1, 5, 1)"]}]
    assert activations["met"] == 1


def test_nothing_is_counted_unless_it_is_asked_for() -> None:
    flow = hr.Flow("uncounted")
    flow.sink("out", flow.source("pairs", Pair).filter(col.v > 0))
    engine = Engine(flow)
    engine.tick(pairs=[Pair(1, 1)])
    assert set(engine.activations.values()) == {0}
    assert "x_activations" not in engine.code
