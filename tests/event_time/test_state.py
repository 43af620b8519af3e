"""State of event time: it is data, what is below the watermark is dropped, and a tick costs what changes."""

from __future__ import annotations

import random
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, col
from headrace.operators.time_spans import Windows
from tests.event_time.by_hand import Event
from tests.event_time.test_windows import EVENTS, cut, flow_of
from tests.properties.effort import examples
from tests.properties.test_state import Counted, changes_of, restarted

WINDOWS = {
    "tumbling": hr.tumbling(col.at, 10),
    "sliding": hr.sliding(col.at, 12, 4),
    "session": hr.session(col.at, 5),
}


@examples(1)
@given(st.data(), EVENTS, st.sampled_from(sorted(WINDOWS)), st.sampled_from(["close", "updates"]))
def test_an_engine_that_goes_on_from_stored_windows_answers_as_if_it_had_never_stopped(
    data: Any, events: list[Event], windows: str, emit: Literal["close", "updates"]
) -> None:
    flow = flow_of(WINDOWS[windows], 7, emit)
    straight = Engine(flow)
    state: dict[str, Any] = {slot.name: {} for slot in straight.program.slots}
    stopping = Engine(flow, state=state)
    for tick in [*data.draw(cut(events)), []]:
        assert changes_of(stopping.tick(events=tick)) == changes_of(straight.tick(events=tick))
        stopping, state = restarted(stopping, flow, state)
    assert changes_of(stopping.end()) == changes_of(straight.end())
    assert stopping.late_rows == straight.late_rows


def entries(state: dict[str, dict[Any, Any]]) -> int:
    """How much a state holds: the entries of slots, and what stands in lists in them."""
    return sum(
        1 + (len(value) if isinstance(value, list | dict) else 0)
        for slot in state.values()
        for value in slot.values()
    )


@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("emit", ["close", "updates"])
def test_in_a_long_stream_the_state_stays_small(windows: Windows, emit: Literal["close", "updates"]) -> None:
    rng = random.Random(7)
    flow = hr.Flow("soak")
    events = flow.source("events", Event).watermark(col.at, lateness=20, late="late")
    groups = events.group_by("key", window=windows, emit=emit)  # type: ignore[call-overload]
    flow.sink("out", groups.agg(n=hr.count(), top=hr.max(col.value)))
    state: dict[str, Any] = {slot.name: {} for slot in Engine(flow).program.slots}
    engine = Engine(flow, state=state)
    sizes: list[int] = []
    counted = 0
    for tick in range(300):
        # Every key comes but once: what is kept per key can only be dropped by time.
        rows = [
            Event(tick * 100 + i, tick * 10 + i // 10 - rng.randrange(30 if i % 50 == 0 else 10), i)
            for i in range(100)
        ]
        counted += len(engine.tick(events=rows)["late"])
        sizes.append(entries(state))
    assert max(sizes[250:]) < 1.3 * max(sizes[20:70])
    assert counted == sum(engine.late_rows.values()) > 0
    engine.end()
    assert entries(state) < 20


def test_a_closing_window_asks_the_state_for_what_it_closes_and_not_for_more() -> None:
    flow = hr.Flow("windows")
    events = flow.source("events", Event).watermark(col.at, lateness=10_000)
    flow.sink("grid", events.group_by("key", window=hr.tumbling(col.at, 10)).agg(n=hr.count()))
    flow.sink("sessions", events.group_by("key", window=hr.session(col.at, 10)).agg(n=hr.count()))

    def cost(keys: int) -> int:
        engine = Engine(flow, state={slot.name: Counted() for slot in Engine(flow).program.slots})
        engine.tick(events=[Event(0, 5, None)])
        engine.tick(events=[Event(key, 25, None) for key in range(keys)])
        Counted.uses = 0
        made = engine.tick(events=[Event(0, 10_021, None)])
        assert [len(changes) for changes in made.values()] == [1, 1]
        return Counted.uses

    assert cost(10) == cost(1_000)


@pytest.mark.parametrize("schedule", ["hybrid", "dynamic", "static"])
@pytest.mark.seeds(1)
def test_every_schedule_has_the_same_answers(
    schedule: Literal["hybrid", "dynamic", "static"], seed: int
) -> None:
    rng = random.Random(seed)
    flow = flow_of(WINDOWS["session"], 4)
    one, other = Engine(flow), Engine(flow, schedule=schedule)
    for tick in range(30):
        rows = [Event(rng.randrange(3), tick * 3 + rng.randrange(9), 1) for _ in range(rng.randrange(4))]
        assert changes_of(one.tick(events=rows)) == changes_of(other.tick(events=rows))
    assert changes_of(one.end()) == changes_of(other.end())
