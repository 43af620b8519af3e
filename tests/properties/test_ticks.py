"""Operators that answer each tick for itself, held to what they mean tick by tick."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.engine import Engine
from headrace.testing.oracle import TickOracle
from headrace.testing.tick_tables import check_consolidated
from tests.properties.effort import examples
from tests.properties.test_state import restarted
from tests.random_flows.cases import Accumulated, Case, Tick, cases, cuts

CUT = cases(ticks=True).flatmap(lambda case: st.tuples(st.just(case), cuts(case)))


def check_ticks_of(case: Case, ticks: list[Tick]) -> None:
    """Each tick gives what it means, twice more than there is input for, in changes without contradiction."""
    engine, oracle = Engine(case.flow), TickOracle(case.graph)
    append = engine.program.sink_append
    for number, tick in enumerate([*ticks, {}, {}]):
        came = Accumulated(case)
        came.add(tick)
        expected = oracle.tick(came.inputs)
        made = engine.tick(**tick)
        for name, bag in expected.items():
            raw = [(row[:-1], row[-1]) for row in made[name].raw]
            check_consolidated(f"tick {number}, sink {name!r}", raw)
            found = dict.fromkeys((row for row, _ in raw), 0)
            for row, weight in raw:
                found[row] += weight
                assert weight > 0 or not append[name], f"tick {number}: {name!r} takes back {row}"
            assert found == dict(bag), f"tick {number}, sink {name!r}"


@examples(2)
@given(CUT)
def test_each_tick_gives_what_it_means(drawn: tuple[Case, list[Tick]]) -> None:
    check_ticks_of(*drawn)


@examples(0.75)
@given(CUT)
def test_ticks_that_go_on_from_stored_state_give_the_same_rows_in_the_same_order(
    drawn: tuple[Case, list[Tick]],
) -> None:
    case, ticks = drawn
    straight = Engine(case.flow)
    state: dict[str, Any] = {slot.name: {} for slot in straight.program.slots}
    stopping = Engine(case.flow, state=state)
    for tick in [*ticks, {}, {}]:
        expected, found = straight.tick(**tick), stopping.tick(**tick)
        assert {name: made.raw for name, made in found.items()} == {n: m.raw for n, m in expected.items()}
        stopping, state = restarted(stopping, case.flow, state)
