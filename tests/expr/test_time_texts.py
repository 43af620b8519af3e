"""Texts of times are those that are made of the whole time, whatever was made of others before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.expr.text_casts import TextCache, format_date, format_timestamp, iso_of, second_of
from headrace.expr.time_patterns import format_pattern

ROUND = st.sampled_from([0, 1, 10, 999, 1_000, 120_000, 500_000, 999_000, 999_999])
FRACTIONS = ROUND | st.integers(0, 999_999)
TIMES = st.builds(
    lambda time, micros: time.replace(microsecond=micros),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
    FRACTIONS,
)


@given(TIMES)
def test_a_text_is_that_of_the_whole_time(value: datetime) -> None:
    plain = value.replace(tzinfo=None)
    whole = plain.isoformat(" ")
    shown = whole.rstrip("0") if plain.microsecond else whole
    assert format_timestamp(value) == shown
    assert second_of(value) == plain.isoformat(" ", "seconds")
    assert format_date(value) == value.date().isoformat()
    assert iso_of(value) == plain.isoformat(timespec="milliseconds")


PATTERNS = [
    "yyyy-MM-dd", "HH:mm:ss", "yyyy-MM-dd HH:mm:ss.SSS", "SSSSSS ss yy", "'at' h:mm a, EEEE", "EEE QQQ q D",
    "K k [HH] 'S'", "S", "''", "yyyyMMddHHmm", "MMM d, y 'at' S.SS",
]  # fmt: skip


@given(st.lists(TIMES, min_size=1, max_size=20), st.sampled_from(PATTERNS))
def test_a_pattern_formats_each_time_by_itself(times: list[datetime], pattern: str) -> None:
    together = format_pattern(pattern)
    for value in times:
        format_pattern.cache_clear()
        assert together.format(value) == format_pattern(pattern).format(value)


@pytest.mark.parametrize("format", [format_timestamp, format_pattern("yyyy-MM-dd HH:mm").format])
def test_more_days_than_are_remembered_have_their_own_texts(format: object) -> None:
    assert callable(format)
    first = datetime(1000, 1, 1)
    days = [first + timedelta(days=number) for number in range(0, 200_000, 2)]
    assert [format(day)[:10] for day in days] == [day.date().isoformat() for day in days]
    assert format(first)[:10] == "1000-01-01"


def test_old_texts_are_forgotten() -> None:
    texts = TextCache[int](str)
    for number in range(200_000):
        assert texts[number] == str(number)
    assert len(texts) < 100_000


class Event(NamedTuple):
    at: datetime


@given(TIMES, st.integers(1, 22), st.integers(0, 12))
def test_a_part_of_a_text_is_cut_out_of_it(value: datetime, start: int, length: int) -> None:
    flow = hr.Flow("parts")
    events = flow.source("events", Event)
    flow.sink("parts", events.select(part=col.at.cast(str).substring(start, length)))
    moment = value.replace(tzinfo=UTC)
    changes = hr.Engine(flow).tick(events=[Event(moment)])
    assert [row[0] for row in changes["parts"].raw] == [
        format_timestamp(moment)[start - 1 : start - 1 + length]
    ]
