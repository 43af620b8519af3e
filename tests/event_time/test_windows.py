"""Windows: under any cut the answers of a plain loop over the whole input, in one order, and nothing kept."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import EvaluationError
from headrace.operators.time_spans import Windows
from tests.event_time.by_hand import Answer, Event, grid, in_sessions, on_grid, part
from tests.properties.effort import examples

EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from([0, 1, 2, None]),
        st.integers(-30, 60),
        st.one_of(st.none(), st.integers(-5, 5)),
    ),
    max_size=30,
)


def flow_of(
    windows: Windows, lateness: int, emit: Literal["close", "updates"] = "close", every: int | None = None
) -> hr.Flow:
    flow = hr.Flow("windows")
    events = flow.source("events", Event).watermark(col.at, lateness=lateness, every=every, late="late")
    answers = events.group_by("key", window=windows, emit=emit).agg(  # type: ignore[call-overload]
        rows=hr.count(), sum=hr.sum(col.value), max=hr.max(col.value), values=hr.collect(col.value)
    )
    flow.sink("out", answers)
    return flow


@st.composite
def cut(draw: st.DrawFn, events: list[Any]) -> list[list[Any]]:
    borders = sorted(draw(st.lists(st.integers(0, len(events)), max_size=6)))
    return [events[a:b] for a, b in zip([0, *borders], [*borders, len(events)], strict=True)]


def run(flow: hr.Flow, ticks: list[list[Event]], *, end: bool) -> dict[str, list[tuple[Any, int]]]:
    engine = hr.Engine(flow, state=(state := {s.name: {} for s in hr.Engine(flow).program.slots}))
    out: dict[str, list[tuple[Any, int]]] = {"out": [], "late": []}
    answers = [engine.tick(events=tick) for tick in ticks]
    if end:
        answers.append(engine.end())
        left = {name: slot for name, slot in state.items() if slot}
        assert all(list(slot) == ["next"] for name, slot in left.items() if name.endswith(".calendar"))
        kept = {name.partition(".")[2] for name in left} - {"calendar"}
        assert kept <= {"clock", "ended", "marks"}, "nothing is kept below the watermark"
    for tick in answers:
        for name, changes in tick.items():
            out[name] += [(row[:-1], row[-1]) for row in changes.raw]
    return out


def summed(changes: list[tuple[Any, int]]) -> Counter[Any]:
    held: Counter[Any] = Counter()
    for row, weight in changes:
        held[row] += weight
    return +held


SHAPES = st.one_of(
    st.tuples(st.integers(1, 20), st.integers(-7, 7)).map(
        lambda so: (hr.tumbling(col.at, so[0], offset=abs(so[1])), grid(so[0], so[0], abs(so[1])))
    ),
    st.tuples(st.integers(1, 12), st.integers(0, 12), st.integers(0, 5)).map(
        lambda s: (hr.sliding(col.at, s[0] + s[1], s[0], offset=s[2]), grid(s[0] + s[1], s[0], s[2]))
    ),
)


@examples(1)
@given(st.data(), EVENTS, SHAPES, st.integers(0, 20), st.booleans())
def test_windows_that_close_answer_once_and_in_order_whatever_the_cut(
    data: Any, events: list[Event], shape: Any, lateness: int, end: bool
) -> None:
    windows, places = shape
    on_time, late, mark = part(events, lateness)
    expected: list[Answer] = on_grid(on_time, places)
    if not end:
        expected = [a for a in expected if mark is not None and a[2] <= mark]
    found = run(flow_of(windows, lateness), data.draw(cut(events)), end=end)
    assert found["out"] == [(a, 1) for a in expected]
    assert found["late"] == [(tuple(e), 1) for e in late]


@examples(1)
@given(st.data(), EVENTS, st.integers(1, 15), st.integers(0, 20), st.booleans())
def test_sessions_answer_once_and_in_order_whatever_the_cut(
    data: Any, events: list[Event], gap: int, lateness: int, end: bool
) -> None:
    on_time, late, mark = part(events, lateness)
    expected = in_sessions(on_time, gap)
    if not end:
        expected = [a for a in expected if mark is not None and a[2] <= mark]
    found = run(flow_of(hr.session(col.at, gap), lateness), data.draw(cut(events)), end=end)
    assert found["out"] == [(a, 1) for a in expected]
    assert found["late"] == [(tuple(e), 1) for e in late]


def test_a_session_of_several_is_as_old_as_the_first_of_them() -> None:
    events = [Event(1, 1, None), Event(2, 9, None), Event(1, 9, None), Event(1, 5, None)]
    for ticks in ([events], [[event] for event in events]):
        found = run(flow_of(hr.session(col.at, 5), 10), ticks, end=True)
        assert [row[:4] for row, _ in found["out"]] == [(1, 1, 14, 3), (2, 9, 14, 1)]


@examples(1)
@given(st.data(), EVENTS, st.integers(1, 15), st.integers(0, 20))
def test_updates_of_sessions_add_up_to_what_they_answer_when_they_close(
    data: Any, events: list[Event], gap: int, lateness: int
) -> None:
    on_time, _, _ = part(events, lateness)
    ticks = data.draw(cut(events))
    found = run(flow_of(hr.session(col.at, gap), lateness, "updates"), ticks, end=True)
    assert summed(found["out"]) == Counter(in_sessions(on_time, gap))


@examples(1)
@given(st.data(), EVENTS, SHAPES, st.integers(0, 20), st.integers(1, 9))
def test_updates_add_up_to_what_windows_answer_when_they_close(
    data: Any, events: list[Event], shape: Any, lateness: int, every: int
) -> None:
    windows, places = shape
    on_time, _, _ = part(events, lateness, every)
    found = run(flow_of(windows, lateness, "updates", every), data.draw(cut(events)), end=True)
    assert summed(found["out"]) == Counter(on_grid(on_time, places))
    closed = run(flow_of(windows, lateness, "close", every), data.draw(cut(events)), end=True)
    assert summed(closed["out"]) == summed(found["out"])


class Sample(NamedTuple):
    at: int
    whole: int | None
    real: float
    exact: Decimal


def test_sessions_that_become_one_have_the_aggregates_of_all_their_rows() -> None:
    aggregates = {
        "count": hr.count(col.whole), "sum": hr.sum(col.whole), "real": hr.sum(col.real),
        "exact": hr.mean(col.exact), "mean": hr.mean(col.whole), "min": hr.min(col.whole),
        "max": hr.max(col.real), "several": hr.count_distinct(col.whole), "all": hr.collect(col.whole),
        "first": hr.first(col.whole, by=col.at), "last": hr.last(col.real, by=col.at),
    }  # fmt: skip
    early = [Sample(1, 7, 0.1, Decimal("0.5")), Sample(2, None, 0.25, Decimal("1.5"))]
    later = [Sample(9, 3, 1e16, Decimal("2.5")), Sample(10, 7, -1e16, Decimal("0.1"))]
    between = [Sample(5, 5, 3.5, Decimal("9.5"))]
    for order in (early + later + between, later + early + between, early + between + later):
        flow = hr.Flow("aggregates")
        timed = flow.source("samples", Sample).watermark(col.at, lateness=100)
        flow.sink("in_windows", timed.group_by(window=hr.session(col.at, 5)).agg(**aggregates))
        flow.sink("at_once", timed.group_by().agg(**aggregates))
        engine = hr.Engine(flow)
        (expected,) = engine.tick(samples=order)["at_once"].raw
        (found,) = engine.end()["in_windows"].raw
        assert found[:2] == (1, 15)
        assert found[2:-1] == expected[:-1]


@pytest.mark.parametrize("shape", [hr.tumbling(col.at, 10), hr.session(col.at, 4)], ids=["grid", "session"])
@pytest.mark.parametrize("late", [None, "late"])
def test_a_large_tick_answers_as_many_small_ones(shape: Windows, late: str | None) -> None:
    events = [Event(n % 3, n - n % 7, n) for n in range(1_000)]
    flow = hr.Flow("large")
    timed = flow.source("events", Event).watermark(col.at, lateness=5, late=late)
    flow.sink("out", timed.group_by("key", window=shape).agg(n=hr.count(), sum=hr.sum(col.value)))
    large, small = hr.Engine(flow, columnar="always"), hr.Engine(flow)
    at_once = [large.tick(events=events), large.end()]
    bit_by_bit = [small.tick(events=events[at : at + 10]) for at in range(0, 1_000, 10)] + [small.end()]
    one, other = ([row for made in ticks for row in made["out"].raw] for ticks in (at_once, bit_by_bit))
    assert one == other


class Reading(NamedTuple):
    at: float


@pytest.mark.parametrize("time", [1e17, 1e300, -1e300, 1.7e308])
@pytest.mark.parametrize(
    "windows", [hr.tumbling(col.at, 0.1), hr.sliding(col.at, 1.0, 0.1), hr.session(col.at, 0.1)]
)
def test_a_float_so_large_that_it_has_no_window_is_named(windows: Windows, time: float) -> None:
    flow = hr.Flow("readings")
    readings = flow.source("readings", Reading).watermark(col.at, lateness=0.0)
    flow.sink("out", readings.group_by(window=windows).agg(rows=hr.count()))
    with pytest.raises(EvaluationError, match=r"overflow: (a window of|the end of a session at) .* float64"):
        hr.Engine(flow).tick(readings=[Reading(time)])
