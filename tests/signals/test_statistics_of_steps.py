"""Difference, relative change, crossing; fewer values: every n-th, throttled, after quiet, bars, timers."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.signals.statistic_signal import StatisticSignal
from headrace.operators.statistics.downsampling import (
    BarsByCount,
    BarsByTime,
    Crossed,
    Debounce,
    Diff,
    Direction,
    EveryNth,
    PctChange,
    Throttle,
    Timer,
)
from headrace.operators.statistics.kernel import SILENT, InputValues, compile_kernel, kernel_of
from headrace.operators.statistics.kernel_runtime import FUNCTIONS
from headrace.operators.statistics.statistic import Holes, Statistic, Times
from tests.signals.statistics_from_scratch import NAN, Event, stepwise

SECONDS = timedelta(seconds=1)


def of(*values: Any) -> list[Event]:
    return [(v, None, None) for v in values]


def fired(statistic: Statistic, events: list[tuple[float, Any]]) -> list[tuple[float, Any]]:
    """(time, answer) where it fires; a value of None is a time alone."""
    kernel = kernel_of(statistic, InputValues(statistic.inputs))
    state, step = kernel.start(FUNCTIONS), compile_kernel(kernel, FUNCTIONS)
    latest, out = None, []
    for time, value in events:
        latest = latest if value is None else value
        answer = step(state, latest, t=time, fresh=value is not None)
        if answer is not SILENT:
            out.append((time, answer))
    return out


def test_diff_is_silent_until_there_is_a_value_before() -> None:
    assert stepwise(Diff(2), of(1, 2, 4, 8)) == [SILENT, SILENT, 3, 6]


def test_a_hole_makes_both_differences_nan() -> None:
    for hole in (None, NAN):
        found = stepwise(Diff(1), of(1.0, hole, 3.0, 4.0))
        assert math.isnan(found[1])
        assert math.isnan(found[2])
        assert found[3] == 1.0


def test_diff_takes_what_can_be_subtracted() -> None:
    day = datetime(2024, 1, 1, tzinfo=UTC)
    assert stepwise(Diff(1), of(day, day + SECONDS))[1] == SECONDS


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [(2.0, 3.0, 0.5), (-2.0, 3.0, -2.5), (0.0, 3.0, math.inf), (0.0, -3.0, -math.inf), (0.0, 0.0, NAN)],
)
def test_a_change_from_nothing_is_what_ieee_754_says(before: float, now: float, change: float) -> None:
    found = stepwise(PctChange(1), of(before, now))[1]
    assert found == change or (math.isnan(found) and math.isnan(change))


LEVELS = st.lists(st.tuples(st.integers(-2, 2), st.integers(-1, 1)), max_size=30)


@given(LEVELS)
def test_crossing_is_standing_on_the_other_side(pairs: list[tuple[int, int]]) -> None:
    side, above, below = 0, [], []
    for x, y in pairs:
        above.append(x > y and side < 0)
        below.append(x < y and side > 0)
        side = (x > y) - (x < y) or side
    events: list[Event] = [(x, y, None) for x, y in pairs]
    assert stepwise(Crossed(Direction.ABOVE), events) == above
    assert stepwise(Crossed(Direction.BELOW), events) == below
    assert stepwise(Crossed(Direction.BOTH), events) == [a or b for a, b in zip(above, below)]


def test_touching_is_not_crossing() -> None:
    events: list[Event] = [(v, 2, None) for v in (3, 2, 3, 2, 1)]
    assert stepwise(Crossed(Direction.BOTH), events) == [False, False, False, False, True]


def test_a_hole_crosses_nothing_and_is_forgotten() -> None:
    events: list[Event] = [(1, 2, None), (NAN, 2, None), (3, 2, None)]
    assert stepwise(Crossed(Direction.BOTH), events) == [False, False, True]


def test_every_nth_is_the_last_of_each() -> None:
    assert stepwise(EveryNth(3), of(*range(8))) == [SILENT, SILENT, 2, SILENT, SILENT, 5, SILENT, SILENT]


def test_throttle_lets_the_first_through_and_then_one_per_span() -> None:
    events = [(0.0, "a"), (0.5, "b"), (1.0, "c"), (1.9, "d"), (2.1, "e")]
    assert fired(Throttle(SECONDS), events) == [(0.0, "a"), (1.0, "c"), (2.1, "e")]


@pytest.mark.parametrize("span", ["1m 30s", timedelta(seconds=90), 90, 90.0])
def test_a_span_is_text_a_timedelta_or_a_number_of_seconds(span: str | timedelta | float) -> None:
    flow = hr.Flow("spans")
    a, at = flow.signal("a", float), flow.signal("at", float)
    flow.sink("out", a.throttle(span, at=at))
    operators = [node.operator for node in flow.graph().nodes]
    assert StatisticSignal(Throttle(timedelta(seconds=90)), Holes.NAN, Times.SECONDS) in operators


def test_debounce_shows_the_newest_once_it_has_been_quiet() -> None:
    events = [(0.0, "a"), (0.5, "b"), (1.4, None), (1.5, None), (3.0, None), (3.5, "c"), (9.0, "d")]
    assert fired(Debounce(SECONDS), events) == [(1.5, "b"), (9.0, "c")]


def test_a_timer_rings_at_multiples_of_its_span_once_a_tick() -> None:
    events = [(t, None) for t in (0.2, 0.9, 1.0, 1.1, 4.5, 4.9, 5.0)]
    assert fired(Timer(SECONDS), events) == [(1.0, 1.0), (4.5, 4.0), (5.0, 5.0)]


def test_a_timer_of_dates_counts_in_their_own_zone() -> None:
    zone = datetime(2024, 3, 1, 23, 59, tzinfo=UTC)
    events = [(zone, None), (zone + timedelta(minutes=2), None)]
    assert fired(Timer(timedelta(days=1)), events) == [(events[1][0], datetime(2024, 3, 2, tzinfo=UTC))]  # type: ignore[list-item, comparison-overlap]


def test_bars_of_so_many_values() -> None:
    found = stepwise(BarsByCount(3), of(2.0, 5.0, 1.0, 4.0, NAN, 3.0, 6.0, 0.0))
    assert found == [
        SILENT,
        SILENT,
        (2.0, 5.0, 1.0, 1.0),
        SILENT,
        SILENT,
        SILENT,
        (4.0, 6.0, 3.0, 6.0),
        SILENT,
    ]


def test_a_bar_of_time_is_shown_when_a_later_one_begins() -> None:
    events = [
        (0.0, 2.0),
        (0.4, 5.0),
        (0.9, 3.0),
        (1.0, 7.0),
        (1.5, None),
        (3.2, None),
        (5.0, 1.0),
        (6.0, 1.0),
    ]
    assert fired(BarsByTime(SECONDS), events) == [
        (1.0, (0.0, 2.0, 5.0, 2.0, 3.0)),
        (3.2, (1.0, 7.0, 7.0, 7.0, 7.0)),
        (6.0, (5.0, 1.0, 1.0, 1.0, 1.0)),
    ]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(-9, 9)), max_size=40))
def test_bars_are_those_of_resampling(pairs: list[tuple[int, int]]) -> None:
    pd = pytest.importorskip("pandas", reason="compared with pandas, which comes with the extra dev")
    now, events = 0, []
    for gap, value in pairs:
        now += gap
        events.append((now / 10, float(value)))
    if not events:
        return
    events.append((now / 10 + 100, 0.0))
    index = pd.to_datetime([t for t, _ in events[:-1]], unit="s")
    bars = pd.Series([v for _, v in events[:-1]], index=index).resample("2s").ohlc().dropna()
    expected = [(at.timestamp(), *row) for at, *row in bars.itertuples()]
    assert [bar for _, bar in fired(BarsByTime(2 * SECONDS), events)] == expected
