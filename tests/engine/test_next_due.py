"""An engine knows when rows next come or go by themselves, and a run has a tick then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import SourceLocation
from headrace.io import TickTime
from headrace.io.uri import parse_source
from headrace.operators.event_time.temporal_filter import Presence

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2020, 2, 28, 22, 30, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Offer(NamedTuple):
    item: int
    at: datetime


CLOCKS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda clock: clock,
    "of hours": lambda clock: clock.select(hour=col.value.truncate("hour")),
    "some time ago": lambda clock: clock.select(past=col.value - timedelta(days=2, minutes=5)),
    "of months, two steps": lambda clock: clock.select(next=col.value + timedelta(hours=7)).select(
        month=col.next.truncate("month")
    ),
}


def flow_of(clock: str, presence: Presence) -> hr.Flow:
    flow = hr.Flow("offers")
    offers, time = flow.source("offers", Offer), flow.source("tick_time", datetime)
    there = offers.filter_by_clock(CLOCKS[clock](time), presence, col.at, SourceLocation.of_caller())
    flow.sink("there", there)
    return flow


@pytest.mark.parametrize("presence", Presence)
@pytest.mark.parametrize("clock", CLOCKS)
@given(hours=st.lists(st.integers(0, 2_000), min_size=1, max_size=5))
def test_an_answer_stays_until_then_and_changes_then(
    hours: list[int], clock: str, presence: Presence
) -> None:
    engine = hr.Engine(flow_of(clock, presence))
    now, times = START, 0
    engine.tick(offers=[Offer(n, START + timedelta(hours=h)) for n, h in enumerate(hours)], now=now)
    while (due := engine.next_due(now)) is not None:
        assert due > now
        assert engine.tick(now=due - MICROSECOND)["there"] == []
        assert engine.next_due(due - MICROSECOND) == due
        assert engine.tick(now=due)["there"] != []
        now, times = due, times + 1
    assert times <= len(set(hours))
    assert engine.tick(now=now + timedelta(days=400))["there"] == []


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("year", [2020, 9999])
def test_a_moment_that_time_does_not_reach_is_never_due(clock: str, year: int) -> None:
    engine, now = hr.Engine(flow_of(clock, Presence.AFTER)), START.replace(year=year, day=1)
    engine.tick(offers=[Offer(1, datetime.max.replace(tzinfo=UTC))], now=now)
    assert engine.next_due(now) is None


class Both(NamedTuple):
    item: int
    start: datetime
    end: datetime


TIMES = st.integers(0, 300).map(lambda h: START + timedelta(hours=h))


@pytest.mark.parametrize("memory", [None, "1 kB"])
@given(offers=st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=8), gone=st.sets(st.integers(0, 7)))
def test_of_several_filters_the_first_is_told(
    offers: list[tuple[datetime, datetime]], gone: set[int], memory: str | None
) -> None:
    flow = hr.Flow("offers")
    table, time = flow.table("offers", Both), flow.source("tick_time", datetime)
    flow.sink("there", table.valid(time, since=col.start, until=col.end))
    hours = CLOCKS["of hours"](time)
    flow.sink("late", table.valid(hours, since=col.start))
    engine = hr.Engine(flow, memory=memory)
    rows = [Both(n, *offer) for n, offer in enumerate(offers)]
    engine.tick(offers=rows, now=START)
    engine.tick(offers=[hr.delete(row) for row in rows if row.item in gone])
    now, told = START, 0
    while (due := engine.next_due(now)) is not None:
        assert not any(engine.tick(now=due - MICROSECOND).values())
        told += sum(map(len, engine.tick(now=due).values()))
        now = due
    left = [row for row in rows if row.item not in gone]
    # At the start, the hour has begun before all of them.
    comes = len(left)
    begins = sum(START < row.start < row.end for row in left)
    ends = sum(row.start < row.end for row in left if row.end > START)
    assert told == comes + begins + ends


def test_an_engine_that_goes_on_knows_what_is_due() -> None:
    flow = flow_of("as it is", Presence.SINCE)
    state: dict[str, dict[Any, Any]] = {name: {} for name in hr.Engine(flow).slots}
    hr.Engine(flow, state=state).tick(offers=[Offer(1, START + timedelta(hours=1))], now=START)
    assert hr.Engine(flow, state=state, first_tick=1).next_due(START) == START + timedelta(hours=1)


def test_what_no_sink_reads_is_never_due() -> None:
    flow = hr.Flow("offers")
    offers = flow.source("offers", Offer)
    offers.valid(flow.source("tick_time", datetime), until=col.at)
    flow.sink("all", offers)
    engine = hr.Engine(flow)
    engine.tick(offers=[Offer(1, START)], now=START - timedelta(days=1))
    assert engine.next_due(START - timedelta(days=1)) is None


def test_what_is_far_off_is_due_later() -> None:
    engine = hr.Engine(flow_of("as it is", Presence.SINCE))
    far = START.replace(year=START.year + 120)
    engine.tick(offers=[Offer(1, far)], now=START)
    assert engine.next_due(START) is None
    near = START.replace(year=START.year + 40)
    engine.tick(now=near)
    assert engine.next_due(near) == far


def test_a_clock_that_may_fall_is_not_looked_at() -> None:
    flow = hr.Flow("minutes")
    minutes = flow.source("tick_time", datetime).select(minute=col.value.minute().cast(int))
    flow.sink("there", flow.source("n", int).valid(minutes, until=col.value))
    engine = hr.Engine(flow)
    engine.tick(n=[59], now=START)
    assert engine.next_due(START) is None


def test_a_clock_of_its_own_is_not_looked_at() -> None:
    flow = hr.Flow("offers")
    flow.sink("there", flow.source("offers", Offer).valid(flow.source("clock", datetime), until=col.at))
    engine = hr.Engine(flow)
    engine.tick(offers=[Offer(1, START)])
    assert engine.next_due(START - timedelta(days=1)) is None


class Enough(Exception):
    pass


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_run_that_follows_has_a_tick_when_a_row_falls_due(tmp_path: Any, checkpoint: bool) -> None:
    elapsed = iter(range(10_000))
    told: list[tuple[int, int]] = []

    def keep(tick: int, changes: list[Any]) -> None:
        told.extend((change.row.item, change.weight) for change in changes)
        if (2, 1) in told:
            raise Enough

    offers = [Offer(n, START + timedelta(seconds=s)) for n, s in enumerate([0, 3, 9, 3_599])]
    with pytest.raises(Enough):
        hr.run(
            flow_of("as it is", Presence.SINCE),
            sources={
                "offers": offers,
                "tick_time": TickTime("1h", lambda: START + timedelta(seconds=next(elapsed))),
            },
            sinks={"there": keep},
            follow=True,
            checkpoint=tmp_path / "c" if checkpoint else None,
        )
    assert told == [(0, 1), (1, 1), (2, 1)]


def test_there_are_no_more_than_ten_ticks_a_second_for_rows_that_fall_due() -> None:
    times = iter(START + timedelta(milliseconds=30 * n) for n in range(100))
    clock, taken = TickTime("1h", lambda: next(times)), dict[Any, Any]()
    found = [clock.take(taken, begins=n == 0, next_due=lambda last: last + MICROSECOND) for n in range(12)]
    assert [n for n, time in enumerate(found) if time is not None] == [0, 4, 8]


def test_a_clock_that_is_given_as_a_uri_has_no_more_ticks_than_it_says() -> None:
    clock: Any = parse_source("clock:10s")
    assert clock == TickTime("10s", clock.now, soonest="10s")
