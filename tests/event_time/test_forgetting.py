"""What is forgotten below the watermark is never missed: the answers are those of operators that keep all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, col, left, right
from tests.event_time.by_hand import Event, part
from tests.event_time.test_state import entries
from tests.event_time.test_windows import EVENTS, cut, summed
from tests.properties.effort import examples
from tests.properties.test_state import changes_of, restarted

AnyStream = hr.Stream[Any, Any, Any, Any]
KEEPS_NOTHING = {"clock", "ended", "marks", "left_passed", "right_passed"}


def answers(flow: hr.Flow, ticks: list[dict[str, list[Any]]]) -> list[tuple[Any, int]]:
    """All changes of the sink `out`, in order; after the end nothing is left of them in the state."""
    state: dict[str, Any] = {slot.name: {} for slot in Engine(flow).program.slots}
    engine = Engine(flow, state=state)
    made = [engine.tick(**tick) for tick in ticks] + [engine.end()]
    left_over = {name.partition(".")[2] for name, slot in state.items() if slot}
    assert left_over <= KEEPS_NOTHING
    return [(row[:-1], row[-1]) for changes in made for row in changes["out"].raw]


@examples(1)
@given(st.data(), EVENTS, st.integers(0, 15))
def test_distinct_rows_with_a_time_are_those_that_would_be_distinct_without(
    data: Any, events: list[Event], lateness: int
) -> None:
    flow = hr.Flow("distinct")
    timed = flow.source("events", Event).watermark(col.at, lateness=lateness)
    flow.sink("out", timed.select("key", "at").distinct())
    found = answers(flow, [{"events": tick} for tick in data.draw(cut(events))])
    on_time, _, _ = part(events, lateness)
    assert found == [(row, 1) for row in dict.fromkeys((e.key, e.at) for e in on_time)]


def first_of_near(events: list[Event], within: int) -> list[Event]:
    kept: list[Event] = []
    for event in events:
        if not any(k.key == event.key and abs(k.at - event.at) < within for k in kept):
            kept.append(event)
    return kept


@examples(1)
@given(st.data(), EVENTS, st.integers(0, 15), st.integers(1, 20))
def test_of_rows_near_to_each_other_the_first_that_came_is_kept(
    data: Any, events: list[Event], lateness: int, within: int
) -> None:
    flow = hr.Flow("first")
    timed = flow.source("events", Event).watermark(col.at, lateness=lateness)
    flow.sink("out", timed.first_within(within, by="key"))
    found = answers(flow, [{"events": tick} for tick in data.draw(cut(events))])
    on_time, _, _ = part(events, lateness)
    assert found == [(tuple(event), 1) for event in first_of_near(on_time, within)]


CONDITIONS: dict[str, tuple[Callable[[int, int], Any], Callable[[int, int, int, int], bool]]] = {
    "between": (
        lambda low, high: right.at_r.between(left.at + low, left.at + high),
        lambda l, r, low, high: l + low <= r <= l + high,
    ),
    "the other way round": (
        lambda low, high: (
            (left.at - high < right.at_r + 0) & (right.at_r - low > left.at) & (right.at_r < left.at + high)
        ),
        lambda l, r, low, high: l - high < r and r - low > l and r < l + high,
    ),
    "equal": (lambda low, high: left.at + low == right.at_r, lambda l, r, low, high: l + low == r),
}


@examples(1)
@given(
    st.data(),
    EVENTS,
    EVENTS,
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(-9, 9),
    st.integers(0, 12),
    st.sampled_from(sorted(CONDITIONS)),
)
def test_a_join_that_forgets_has_the_pairs_of_one_that_does_not(
    data: Any, ls: list[Event], rs: list[Event], one: int, other: int, low: int, width: int, name: str
) -> None:
    condition, holds = CONDITIONS[name]
    flow = hr.Flow("join")
    lefts = flow.source("lefts", Event).watermark(col.at, lateness=one)
    rights = flow.source("rights", Event).watermark(col.at, lateness=other)
    rights = rights.select(key_r=col.key, at_r=col.at, value_r=col.value)
    near = condition(low, low + width)
    pairs = lefts.join(rights, on=(left.key == right.key_r) & near)
    assert "forgets" in hr.explain(_with_sink(flow, pairs))
    ticks = [
        {"lefts": a, "rights": b}
        for a, b in zip(*_as_long(data.draw(cut(ls)), data.draw(cut(rs))), strict=True)
    ]
    found = answers(flow, ticks)
    expected = Counter(
        (*l, *r)
        for l in part(ls, one)[0]
        for r in part(rs, other)[0]
        if l.key is not None and l.key == r.key and holds(l.at, r.at, low, low + width)
    )
    assert summed(found) == expected


def _with_sink(flow: hr.Flow, stream: AnyStream) -> hr.Flow:
    flow.sink("out", stream)
    return flow


def _as_long(one: list[list[Any]], other: list[list[Any]]) -> tuple[list[list[Any]], list[list[Any]]]:
    length = max(len(one), len(other))
    return one + [[]] * (length - len(one)), other + [[]] * (length - len(other))


@pytest.mark.parametrize(
    "on",
    [
        left.key == right.key,
        (left.key == right.key) & (left.at <= right.at),
        (left.key == right.key) & (left.at * 2 <= right.at) & (right.at <= left.at + 5),
        (left.key == right.key) & (left.value <= right.value) & (right.value <= left.value + 5),
    ],
    ids=str,
)
def test_a_join_without_bounds_on_both_sides_of_the_time_forgets_nothing(on: Any) -> None:
    flow = hr.Flow("join")
    lefts = flow.source("lefts", Event).watermark(col.at, lateness=0)
    rights = flow.source("rights", Event).watermark(col.at, lateness=0)
    flow.sink("out", lefts.join(rights, on=on, suffix="_r"))
    assert "forgets" not in hr.explain(flow)


@pytest.mark.parametrize("ended", ["lefts", "rights"])
@pytest.mark.parametrize("bounded", [False, True])
def test_a_join_of_times_keeps_no_rows_for_a_side_that_has_ended(ended: str, bounded: bool) -> None:
    flow = hr.Flow("join")
    sides = [
        flow.source(name, Event, bounded=bounded and name == ended).watermark(col.at, lateness=5)
        for name in ("lefts", "rights")
    ]
    near = right.at.between(left.at - 10, left.at + 10)
    flow.sink("out", sides[0].join(sides[1], on=(left.key == right.key) & near, suffix="_r"))
    state: dict[str, Any] = {slot.name: {} for slot in Engine(flow).program.slots}
    engine = Engine(flow, state=state)
    (goes_on,) = {"lefts", "rights"} - {ended}
    first = engine.tick(**{ended: [Event(1, 3, 0)], goes_on: [Event(1, 0, 0)]})
    assert len(first["out"]) == 1
    if not bounded:
        engine.end(ended)
    at_the_end = engine.tick(**{goes_on: [Event(1, 13, 0)]})
    assert len(at_the_end["out"]) == 1
    for at in range(20, 2000, 20):
        engine.tick(**{goes_on: [Event(1, at, 0)]})
    assert sum(len(slot) for name, slot in state.items() if name.partition(".")[2] in {"left", "right"}) < 3


class Click(NamedTuple):
    user: str
    at: datetime


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def shown_and_clicked(time: str = "at_click") -> hr.Flow:
    """A join of times, what is distinct in it, and windows over that."""
    flow = hr.Flow("clicks")
    shown = flow.source("shown", Click).watermark(col.at, lateness="20s")
    clicked = flow.source("clicked", Click).watermark(col.at, lateness="10s")
    soon = right.at.between(left.at, left.at + timedelta(minutes=1))
    pairs = shown.join(clicked, on=(left.user == right.user) & soon, suffix="_click").distinct()
    minutes = pairs.group_by(window=hr.tumbling(col[time], "1 min"))
    flow.sink("out", minutes.agg(n=hr.count()))
    return flow


def clicks(rng: random.Random, tick: int) -> list[Click]:
    return [
        Click(f"u{rng.randrange(50)}", BEGIN + timedelta(seconds=tick * 10 + rng.randrange(10)))
        for _ in range(10)
    ]


@pytest.mark.parametrize("time", ["at", "at_click"])
@pytest.mark.seeds(1)
def test_windows_after_a_join_of_times_count_every_pair_once(time: str, seed: int) -> None:
    rng = random.Random(seed)
    ticks = [{"shown": clicks(rng, at), "clicked": clicks(rng, at)} for at in range(60)]
    pairs = {
        (shown.user, shown.at, clicked.at)
        for a in ticks
        for shown in a["shown"]
        for b in ticks
        for clicked in b["clicked"]
        if shown.user == clicked.user and shown.at <= clicked.at <= shown.at + timedelta(minutes=1)
    }
    expected = Counter((clicked if time == "at_click" else at).replace(second=0) for _, at, clicked in pairs)
    found = answers(shown_and_clicked(time), ticks)
    assert [row[0] for row, _ in found] == sorted(expected)
    assert {row[0]: row[2] for row, _ in found} == expected


def test_what_joins_and_distinct_remember_does_not_grow() -> None:
    rng = random.Random(5)
    flow = shown_and_clicked()
    state: dict[str, Any] = {slot.name: {} for slot in Engine(flow).program.slots}
    engine = Engine(flow, state=state)
    sizes: list[int] = []
    for at in range(400):
        engine.tick(shown=clicks(rng, at), clicked=clicks(rng, at))
        sizes.append(entries(state))
    assert max(sizes[300:]) < 1.3 * max(sizes[30:100])


@pytest.mark.seeds(1)
def test_what_is_remembered_goes_on_from_stored_state(seed: int) -> None:
    rng = random.Random(seed)
    flow = shown_and_clicked()
    straight = Engine(flow)
    state: dict[str, Any] = {slot.name: {} for slot in straight.program.slots}
    stopping = Engine(flow, state=state)
    for at in range(30):
        tick = {"shown": clicks(rng, at), "clicked": clicks(rng, at)}
        assert changes_of(stopping.tick(**tick)) == changes_of(straight.tick(**tick))
        stopping, state = restarted(stopping, flow, state)
