"""The end of the input: windows close, whoever finds that nothing more comes."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import BadInput
from tests.event_time.by_hand import Event


class Stamped(NamedTuple):
    key: int
    at: datetime


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = [Event(1, 3, 1), Event(1, 12, 1), Event(2, 14, 1)]


def counts(*sources: str, bounded: bool = False) -> hr.Flow:
    flow = hr.Flow("counts")
    streams = [
        flow.source(name, Event, bounded=bounded).watermark(col.at, lateness=0)  # type: ignore[call-overload]
        for name in sources
    ]
    events = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    flow.sink("out", events.group_by(window=hr.tumbling(col.at, 10)).agg(rows=hr.count()))
    return flow


def rows(changes: Any) -> list[tuple[int, int, int]]:
    return [tuple(change.row) for change in changes]


def test_windows_close_when_the_engine_is_told_that_nothing_more_comes() -> None:
    engine = hr.Engine(counts("a"))
    assert rows(engine.tick(a=EVENTS)["out"]) == [(0, 10, 1)]
    assert rows(engine.end()["out"]) == [(10, 20, 2)]
    assert rows(engine.end()["out"]) == []


def test_rows_of_a_source_that_has_ended_are_refused() -> None:
    engine = hr.Engine(counts("a"))
    engine.end("a")
    with pytest.raises(BadInput, match="has ended"):
        engine.tick(a=EVENTS)
    assert engine.tick()["out"] == []


def test_a_source_ends_after_the_rows_that_were_fed_to_it() -> None:
    engine = hr.Engine(counts("a"))
    engine.feed(a=EVENTS)
    with pytest.raises(BadInput, match="wait for a tick"):
        engine.end()
    engine.run_available()
    assert rows(engine.end()["out"]) == [(10, 20, 2)]


def test_the_slower_of_two_sources_holds_windows_open_until_it_ends() -> None:
    engine = hr.Engine(counts("a", "b"))
    assert rows(engine.tick(a=EVENTS)["out"]) == []
    assert rows(engine.tick(b=[Event(1, 11, 1)])["out"]) == [(0, 10, 1)]
    assert rows(engine.end("b")["out"]) == []
    assert rows(engine.tick(a=[Event(1, 25, 1)])["out"]) == [(10, 20, 3)]
    assert rows(engine.end("a")["out"]) == [(20, 30, 1)]


def test_windows_of_a_bounded_source_close_with_its_only_tick() -> None:
    engine = hr.Engine(counts("a", bounded=True))
    assert rows(engine.tick(a=EVENTS)["out"]) == [(0, 10, 1), (10, 20, 2)]
    assert rows(engine.end()["out"]) == []


def test_a_bounded_source_holds_no_window_of_another_open() -> None:
    flow = hr.Flow("counts")
    old = flow.source("old", Event, bounded=True).watermark(col.at, lateness=0)
    new = flow.source("new", Event).watermark(col.at, lateness=0)
    flow.sink("out", old.union(new).group_by(window=hr.tumbling(col.at, 10)).agg(rows=hr.count()))
    engine = hr.Engine(flow)
    assert rows(engine.tick(old=EVENTS, new=[Event(1, 10, 1)])["out"]) == [(0, 10, 1)]
    assert rows(engine.tick(new=[Event(1, 20, 1)])["out"]) == [(10, 20, 3)]


def test_a_run_ends_its_sources_when_they_are_done() -> None:
    out: list[Any] = []
    hr.run(counts("a", "b"), {"a": EVENTS, "b": EVENTS}, {"out": out}, tick_rows=1)
    assert rows(out) == [(0, 10, 2), (10, 20, 4)]


def test_a_run_with_a_checkpoint_leaves_windows_open_for_the_next_run(tmp_path: Path) -> None:
    out: list[Any] = []
    flow = counts("a")
    hr.run(flow, {"a": EVENTS}, {"out": out}, checkpoint=tmp_path / "run")
    assert rows(out) == [(0, 10, 1)]
    hr.run(flow, {"a": [*EVENTS, Event(1, 15, 1)]}, {"out": out}, checkpoint=tmp_path / "run", end=True)
    assert rows(out)[1:] == [(10, 20, 3)]
    more = [*EVENTS, Event(1, 15, 1)]
    ended = hr.run(flow, {"a": more}, {"out": out}, checkpoint=tmp_path / "run", end=True)
    assert ended.ticks == 0
    with pytest.raises(BadInput, match="has ended"):
        hr.run(flow, {"a": [*EVENTS, *EVENTS]}, {"out": out}, checkpoint=tmp_path / "run")


@pytest.mark.parametrize(
    "windows",
    [hr.tumbling(col.at, "10s"), hr.sliding(col.at, "10s", "5s"), hr.session(col.at, "4s")],
    ids=["tumbling", "sliding", "session"],
)
@pytest.mark.parametrize("emit", ["close", "updates"])
@pytest.mark.seeds(1)
def test_windows_go_on_from_a_checkpoint_as_if_nothing_had_happened(
    tmp_path: Path, windows: Any, emit: Any, seed: int
) -> None:
    flow = hr.Flow("stamped")
    stamped = flow.source("a", Stamped).watermark(col.at, lateness="5s")
    groups = stamped.first_within("1s", by="key").distinct().group_by("key", window=windows, emit=emit)
    flow.sink("out", groups.agg(rows=hr.count(), last=hr.last(col.key, by=col.at)))
    rng = random.Random(seed)
    events = [Stamped(rng.randrange(3), BEGIN + timedelta(seconds=n - rng.randrange(9))) for n in range(60)]
    once: list[Any] = []
    hr.run(flow, {"a": events}, {"out": once}, tick_rows=7)
    parts: list[Any] = []
    for count in (20, 21, 43, 60):
        ended = count == 60
        hr.run(
            flow, {"a": events[:count]}, {"out": parts}, tick_rows=7, checkpoint=tmp_path / "run", end=ended
        )
    if emit == "close":
        assert parts == once
    assert rows_of(parts) == rows_of(once)


def rows_of(changes: list[Any]) -> list[Any]:
    held: Counter[Any] = Counter()
    for row, weight in changes:
        held[tuple(row)] += weight
    return sorted((row, weight) for row, weight in held.items() if weight)


def test_rows_that_were_deferred_come_before_the_end() -> None:
    flow = hr.Flow("deferred")
    events = flow.source("a", Event).defer_tick().defer_tick().watermark(col.at, lateness=0)
    flow.sink("out", events.group_by(window=hr.tumbling(col.at, 10)).agg(rows=hr.count()))
    out: list[Any] = []
    hr.run(flow, {"a": EVENTS}, {"out": out})
    assert rows(out) == [(0, 10, 1), (10, 20, 2)]
    engine = hr.Engine(flow)
    engine.tick(a=EVENTS)
    with pytest.raises(BadInput, match="wait for a tick"):
        engine.end()
