"""Temporal filters: rows that come and go as the clock rises."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import WrongType
from headrace.operators.event_time.temporal_filter import Presence
from headrace.testing import check_ticks

if TYPE_CHECKING:
    from headrace.testing import Backend


class Offer(NamedTuple):
    item: str
    start: int | None
    end: int | None


def while_valid(backend: Backend, table: str, **edges: Any) -> None:
    def flow(flow: hr.Flow) -> None:
        clock = flow.source("clock", int)
        flow.sink("out", flow.table("offers", Offer).valid(clock, **edges).select("item"))

    check_ticks(backend, flow, table)


def test_a_row_goes_when_its_moment_comes(backend: Backend) -> None:
    while_valid(
        backend,
        """
        tick | clock | offers                         | out
        1    | 1     | a 0 3; b 0 1; c 0 null         | + a
        2    | 2     |                                |
        3    | 3     | d 0 9                          | - a; + d
        4    |       | - b 0 1; - d 0 9; e 0 3        | - d
        5    | 9     |                                |
    """,
        until=col.end,
    )


def test_a_row_comes_when_its_moment_comes(backend: Backend) -> None:
    while_valid(
        backend,
        """
        tick | clock | offers                   | out
        1    | 1     | a 3 0; b 1 0; c null 0   | + b
        2    | 2     | a 3 0                    |
        3    | 3     |                          | + a; + a
        4    | 4     | - a 3 0                  | - a
    """,
        since=col.start,
    )


def test_a_row_comes_and_goes(backend: Backend) -> None:
    while_valid(
        backend,
        """
        tick | clock | offers | out
        1    | 1     | a 2 4  |
        2    | 2     |        | + a
        3    | 1     |        |
        4    | 7     |        | - a
    """,
        since=col.start,
        until=col.end,
    )


def test_before_the_clock_shows_anything_no_moment_has_come(backend: Backend) -> None:
    while_valid(
        backend,
        """
        tick | clock | offers | out
        1    |       | a 0 4  | + a
        2    | 5     |        | - a
    """,
        until=col.end,
    )


class Due(NamedTuple):
    item: int
    at: date


DAYS = st.integers(0, 5).map(lambda n: date(2020, 1, 1) + timedelta(days=n))
TICKS = st.lists(
    st.tuples(
        st.lists(DAYS, max_size=1), st.lists(st.tuples(st.integers(0, 2), DAYS, st.booleans()), max_size=4)
    ),
    max_size=8,
)


@given(st.sampled_from(Presence), TICKS)
def test_the_answer_is_that_of_a_filter_by_the_latest_time(presence: Presence, ticks: Any) -> None:
    flow = hr.Flow("due")
    clock, rows = flow.source("clock", date), flow.table("rows", Due)
    flow.sink("out", rows.filter_by_clock(clock, presence, col.at, flow.nodes[0].location))
    engine, answer, there = hr.Engine(flow), Counter[Any](), Counter[Any]()
    now = date.min
    for times, changes in ticks:
        given = [hr.Change(Due(item, at), 1 if comes else -1) for item, at, comes in changes]
        for change in engine.tick(clock=times, rows=given)["out"]:
            answer[change.row] += change.weight
        for change in given:
            there[change.row] += change.weight
        now = max([now, *times])
        holds = {
            Presence.SINCE: lambda at, now=now: now >= at,
            Presence.AFTER: lambda at, now=now: now > at,
            Presence.BEFORE: lambda at, now=now: now < at,
            Presence.UNTIL: lambda at, now=now: now <= at,
        }[presence]
        wanted = {row: count for row, count in there.items() if count and holds(row.at)}
        assert {row: count for row, count in answer.items() if count} == wanted


def test_what_is_no_time_is_refused() -> None:
    flow = hr.Flow("due")
    clock, rows = flow.source("clock", int), flow.table("rows", Due)
    with pytest.raises(WrongType, match="which is date, with a clock"):
        rows.valid(clock, until=col.at)
    with pytest.raises(WrongType, match="needs a moment"):
        rows.valid(clock)
