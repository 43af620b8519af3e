"""The wall clock as a source: multiples of a span, once each, never back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import headrace as hr
from headrace.errors import WrongType
from headrace.io import WallClock, open_source
from headrace.io.source import Feed

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)


def read(clock: WallClock, feed: Feed, times: int) -> list[datetime | None]:
    reader = open_source(clock, feed)
    batches = [reader.read(100) for _ in range(times)]
    return [None if batch is None else batch.rows[0][0] for batch in batches]


def clock_that_shows(*seconds: float) -> WallClock:
    shown = iter(seconds)
    return WallClock("2s", now=lambda: NOON + timedelta(seconds=next(shown)))


def feed_of_times() -> Feed:
    flow = hr.Flow("times")
    flow.sink("out", flow.source("clock", datetime))
    engine = hr.Engine(flow)
    schema = flow.graph().nodes[0].schema
    return Feed("clock", schema, from_user=lambda rows: engine.internal_rows("clock", rows))


def test_each_multiple_is_given_once_it_has_passed() -> None:
    found = read(clock_that_shows(0.1, 1.9, 2.0, 3.0, 9.5), feed_of_times(), 5)
    assert found == [NOON, None, NOON + timedelta(seconds=2), None, NOON + timedelta(seconds=8)]


def test_a_clock_that_is_set_back_gives_nothing_until_it_has_caught_up() -> None:
    found = read(clock_that_shows(4, 0, 3, 6), feed_of_times(), 4)
    assert found == [NOON + timedelta(seconds=4), None, None, NOON + timedelta(seconds=6)]


def test_a_later_run_goes_on_where_the_last_one_was() -> None:
    feed = feed_of_times()
    read(clock_that_shows(4), feed, 1)
    assert read(clock_that_shows(5, 6), feed, 2) == [None, NOON + timedelta(seconds=6)]


def test_a_span_of_nothing_is_refused() -> None:
    with pytest.raises(WrongType):
        WallClock(timedelta())
