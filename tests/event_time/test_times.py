"""Times of every type, and times computed from times: windows mean the same over all of them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, col
from headrace.errors import EvaluationError, WrongType
from headrace.expr.types import FLOAT64, INT64, TIMESTAMP
from headrace.operators.event_time.due_calendar import slice_assigner, window_assigner
from headrace.operators.time_spans import Grid, Windows
from tests.event_time.by_hand import EVENTS_BEGIN, Event, grid, on_grid, part
from tests.event_time.test_windows import EVENTS, SHAPES, cut, summed
from tests.properties.effort import examples


class Stamped(NamedTuple):
    key: int | None
    at: datetime


class Floating(NamedTuple):
    key: int | None
    at: float


def seconds(count: int) -> timedelta:
    return timedelta(seconds=count)


def counts(row: type[Any], windows: Windows, lateness: Any) -> hr.Flow:
    flow = hr.Flow("counts")
    timed = flow.source("events", row).watermark(col.at, lateness=lateness)
    flow.sink("out", timed.group_by("key", window=windows).agg(n=hr.count()))
    return flow


def answers(flow: hr.Flow, ticks: list[list[Any]]) -> list[tuple[Any, ...]]:
    engine = Engine(flow)
    made = [engine.tick(events=tick) for tick in ticks] + [engine.end()]
    return [row[:-1] for changes in made for row in changes["out"].raw]


SPANS = st.floats(0.05, 40)


@examples(0.7)
@given(st.floats(-1e4, 1e4), SPANS, SPANS, st.floats(0, 40), st.floats(0, 1))
@example(time=-59.7, every=0.3, more=0.1 + 0.2 - 0.3, offset=0.0, within=0.5)
@example(time=1656.9999999999998, every=1 / 3, more=6e-17, offset=1e3, within=0.5)
def test_all_times_of_a_slice_are_in_the_same_windows(
    time: float, every: float, more: float, offset: float, within: float
) -> None:
    """Over floats, and over whole numbers and timestamps of the same grids."""
    number, epoch = round(time), datetime(1970, 1, 1, tzinfo=UTC)
    step, size, shift = max(1, round(every)), max(1, round(every)) + round(more), round(offset)
    for at, windowing, type in (
        (time, Grid(every + more, every, offset or None), FLOAT64),
        (time, Grid(every, every, offset or None), FLOAT64),
        (number, Grid(size, step, shift or None), INT64),
        (epoch + seconds(number), Grid(seconds(size), seconds(step), seconds(shift)), TIMESTAMP),
    ):
        slice_of, windows_of = slice_assigner(windowing, type), window_assigner(windowing, type)
        start, end = slice_of(at)
        assert start <= at < end
        windows = windows_of(at)
        assert all(begin <= at < stop for begin, stop in windows)
        assert max(begin for begin, stop in windows) == windows[0][0]
        other = start + (int((end - start) * within) if type == INT64 else (end - start) * within)
        for inside in (start, other if start <= other < end else start):
            assert slice_of(inside) == (start, end)
            assert windows_of(inside) == windows


@examples(0.7)
@given(st.data(), EVENTS, st.integers(0, 9), st.integers(1, 9), st.integers(0, 9), st.integers(0, 5))
def test_windows_of_timestamps_lie_where_those_of_their_seconds_do(
    data: Any, events: list[Event], lateness: int, every: int, more: int, offset: int
) -> None:
    windows = hr.sliding(col.at, seconds(every + more), seconds(every), offset=seconds(offset))
    stamped = [Stamped(e.key, EVENTS_BEGIN + seconds(e.at)) for e in events]
    found = answers(counts(Stamped, windows, seconds(lateness)), data.draw(cut(stamped)))
    on_time, _, _ = part(events, lateness)
    begin = int(EVENTS_BEGIN.timestamp())
    places = grid(every + more, every, (offset - begin) % every)
    expected = [
        (a[0], EVENTS_BEGIN + seconds(a[1]), EVENTS_BEGIN + seconds(a[2]), a[3])
        for a in on_grid(on_time, places)
    ]
    assert found == expected


@pytest.mark.parametrize("span", ["1m 30s", seconds(90), 90, 90.0])
def test_a_span_of_timestamps_is_text_a_timedelta_or_a_number_of_seconds(
    span: str | timedelta | float,
) -> None:
    flow = counts(Stamped, hr.tumbling(col.at, span), lateness=span)
    events = [Stamped(1, EVENTS_BEGIN + seconds(at)) for at in (0, 89, 90, 300, 210, 209)]
    expected = counts(Stamped, hr.tumbling(col.at, seconds(90)), seconds(90))
    assert answers(flow, [events]) == answers(expected, [events])


@pytest.mark.parametrize("span", [float("inf"), float("nan"), 1e300, True, -1])
def test_a_number_that_is_no_span_of_timestamps_is_refused(span: float) -> None:
    with pytest.raises(WrongType):
        counts(Stamped, hr.tumbling(col.at, span), lateness=0)


@examples(1)
@given(
    st.data(),
    st.lists(st.floats(-100, 100), max_size=20),
    st.floats(0.001, 30),
    st.integers(1, 4),
    st.floats(0, 10),
    st.floats(0, 20),
)
def test_every_time_that_is_a_float_is_in_its_windows_and_each_window_answers_once(
    data: Any, times: list[float], every: float, several: int, offset: float, lateness: float
) -> None:
    windows = hr.sliding(col.at, every * several, every, offset=offset)
    flow = counts(Floating, windows, lateness)
    engine = Engine(flow)
    ticks = data.draw(cut([Floating(0, at) for at in times]))
    made = [row[:-1] for tick in ticks for row in engine.tick(events=tick)["out"].raw]
    made += [row[:-1] for row in engine.end()["out"].raw]
    late = sum(engine.late_rows.values())
    assert len({start for _, start, _, _ in made}) == len(made)
    # Borders are rounded, so a time that is very near to one may be in a window more or less.
    total = sum(n for *_, n in made)
    assert several - 1 <= total / max(1, len(times) - late) <= several + 1 or len(times) == late
    if several == 1:
        assert total == len(times) - late
    for _, start, end, n in made:
        assert sum(start <= at < end for at in times) >= n


@examples(1)
@given(st.data(), EVENTS, SHAPES, st.integers(0, 20), st.integers(1, 40), st.booleans())
def test_windows_of_windows_miss_none_of_them(
    data: Any, events: list[Event], shape: Any, lateness: int, size: int, by_end: bool
) -> None:
    windows, places = shape
    flow = hr.Flow("windows of windows")
    timed = flow.source("events", Event).watermark(col.at, lateness=lateness)
    inner = timed.group_by("key", window=windows).agg(n=hr.count())
    time = col.window_end if by_end else col.window_start
    flow.sink(
        "out", inner.group_by(window=hr.tumbling(time, size)).agg(rows=hr.sum(col.n), windows=hr.count())
    )
    found = answers(flow, data.draw(cut(events)))
    on_time, _, _ = part(events, lateness)
    expected: dict[int, list[int]] = {}
    for _, start, end, n, *_ in on_grid(on_time, places):
        at = (end if by_end else start) // size * size
        rows, count = expected.get(at, (0, 0))
        expected[at] = [rows + n, count + 1]
    assert found == [(at, at + size, *sums) for at, sums in sorted(expected.items())]


@pytest.mark.parametrize("every", [1, 2, 3, 5])
@pytest.mark.parametrize("more", [0, 1, 2, 4])
@pytest.mark.parametrize("offset", [0, 1])
def test_windows_of_windows_close_as_early_as_they_can(every: int, more: int, offset: int) -> None:
    """One row per tick and time: every border is passed by itself."""
    flow = hr.Flow("windows of windows")
    timed = flow.source("events", Event).watermark(col.at, lateness=0)
    inner = timed.group_by(window=hr.sliding(col.at, every + more, every, offset=offset)).agg(n=hr.count())
    flow.sink("inner", inner)
    flow.sink("outer", inner.group_by(window=hr.tumbling(col.window_start, 1)).agg(n=hr.sum(col.n)))
    engine = Engine(flow)
    starts: list[int] = []
    for at in range(-10, 40):
        made = engine.tick(events=[Event(0, at, 0)])
        starts += [change.row.window_start for change in made["inner"]]
        closed = {change.row.window_start for change in made["outer"]}
        # A window of length 1 is passed when no window will answer any more that begins in it.
        still_to_come = min(
            s for s in range(at - 50, at + 50) if (s - offset) % every == 0 and s + every + more > at
        )
        assert all(start < still_to_come for start in closed)
        assert {start for start in starts if start < still_to_come} >= closed
        assert not [start for start in starts if start < still_to_come and start not in closed]
        starts = [start for start in starts if start not in closed]


@examples(0.5)
@given(st.data(), EVENTS, EVENTS, st.integers(0, 9), st.integers(1, 20))
def test_windows_over_two_streams_count_all_that_is_on_time_in_either(
    data: Any, ones: list[Event], others: list[Event], lateness: int, size: int
) -> None:
    flow = hr.Flow("union")
    one = flow.source("ones", Event).watermark(col.at, lateness=lateness)
    other = flow.source("others", Event).filter(col.at > -100).watermark(col.at, lateness=2 * lateness)
    both = one.union(other.select("key", "at", "value", into=Event))
    flow.sink("out", both.group_by(window=hr.tumbling(col.at, size)).agg(n=hr.count()))
    engine = Engine(flow)
    waiting = [
        [{"ones": tick} for tick in data.draw(cut(ones))],
        [{"others": t} for t in data.draw(cut(others))],
    ]
    made: list[Any] = []
    while any(waiting):
        # Each source keeps its order; which of them is ahead does not matter.
        side = data.draw(st.integers(0, 1)) if all(waiting) else int(not waiting[0])
        made.append(engine.tick(**waiting[side].pop(0)))
    made.append(engine.end())
    kept = part(ones, lateness)[0] + part(others, 2 * lateness)[0]
    expected = Counter(e.at // size * size for e in kept)
    found = [(row[:-1], row[-1]) for changes in made for row in changes["out"].raw]
    assert summed(found) == Counter((at, at + size, n) for at, n in expected.items())


def test_numbers_that_count_time_take_spans_in_words() -> None:
    flow = hr.Flow("milliseconds")
    timed = flow.source("events", Event).watermark(col.at, lateness="2s", unit="ms")
    flow.sink("out", timed.group_by(window=hr.tumbling(col.at, "10s", unit="ms")).agg(n=hr.count()))
    engine = Engine(flow)
    assert [tuple(c.row) for c in engine.tick(events=[Event(1, 9_999, 0), Event(1, 12_000, 0)])["out"]] == [
        (0, 10_000, 1)
    ]


def test_a_window_that_would_begin_before_the_first_year_is_an_error_with_its_row() -> None:
    flow = counts(Stamped, hr.tumbling(col.at, "400d"), "1s")
    with pytest.raises(EvaluationError) as error:
        Engine(flow).tick(events=[Stamped(1, datetime(1, 1, 2, tzinfo=UTC))])
    assert error.value.facts["row"] is not None
