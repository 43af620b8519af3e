"""Columns of intervals on Spark: batches and streams answer as ticks in this process do."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.engine.change import Change
from headrace.expr.types import INTERVALS
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.aggregate.counts import DistinctAggregate
from headrace.operators.aggregate.sums import Mean, NullOnError, Sum
from tests.spark.batch_rows_of import bags_in_one_tick, batch_bags

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

F = hr.functions
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Trip(NamedTuple):
    id: int
    city: str
    start: datetime
    end: datetime | None
    pause: timedelta | None
    booked: date
    stops: list[timedelta]


START = datetime(2024, 3, 30, 23, tzinfo=UTC)
TRIPS = [
    Trip(1, "Ulm", START, START + 2 * HOUR, HOUR, date(2024, 3, 30), [HOUR, timedelta(microseconds=-1)]),
    Trip(2, "Ulm", START, START + 3 * HOUR, None, date(2024, 1, 1), []),
    Trip(3, "Bonn", START + DAY, None, -HOUR, date(2024, 3, 31), [DAY]),
    Trip(4, "Bonn", START - DAY, START, HOUR, date(2024, 3, 30), [HOUR]),
    Trip(5, "Köln", START, START, timedelta(microseconds=-(2**63)), date(9999, 12, 31), []),
    Trip(5, "Köln", START, START, timedelta(microseconds=2**63 - 1), date(1, 1, 1), []),
    Trip(6, "Ulm", START, START + HOUR, timedelta(), date(2024, 2, 29), [-DAY, DAY]),
]
TRIPS += TRIPS[:2]

_SMALL = col.pause.between(-DAY, DAY)
FLOWS: dict[str, Callable[[Any], Any]] = {
    "as they are": lambda s: s,
    "differences": lambda s: s.select(
        took=col.end - col.start, since=col.booked - hr.date("2024-01-01"), mixed=col.start - col.booked
    ),
    "sums": lambda s: s.filter(_SMALL).select(
        a=col.start + col.pause, b=col.pause * 3 - HOUR, c=col.pause / 7, d=col.pause // HOUR, e=-col.pause
    ),
    "other units": lambda s: s.select(
        units=hr.struct(**{f"u{at}": col.pause.cast(type) for at, type in enumerate(INTERVALS)})
    ),
    "units of keys": lambda s: s.group_by(days=col.booked - hr.date("2024-01-01")).agg(n=hr.count()),
    "casts": lambda s: s.select(
        text=col.pause.cast(str), seconds=col.pause.cast(int), back=col.id.cast(timedelta)
    ),
    "group": lambda s: (
        s.filter(_SMALL)
        .group_by("city")
        .agg(
            total=hr.sum(col.pause),
            mean=hr.mean(col.pause),
            least=hr.min(col.pause),
            most=hr.max(col.end - col.start),
            last=hr.last(col.pause, by=col.id),
            all=hr.collect(col.pause),
            different=hr.count_distinct(col.pause),
            once=hr.sum(col.pause, distinct=True),
            middle=hr.median(col.pause),
            parts=hr.percentile(col.pause, (0.3, 0.9)),
            halves=hr.mean(col.pause / 2, distinct=True),
        )
    ),
    "all": lambda s: s.group_by().agg(
        most=hr.max(col.pause), least=hr.min(col.pause), total=hr.sum(col.end - col.start)
    ),
    "key": lambda s: s.group_by("pause").agg(n=hr.count(), ids=hr.collect(col.id)),
    "distinct": lambda s: s.select("pause", stops=col.stops).distinct(),
    "join": lambda s: s.select("id", "pause").join(
        s.select(other=col.id, took=col.end - col.start), on=hr.left.pause == hr.right.took
    ),
    "difference of tables": lambda s: s.select(x=col.pause).difference(s.select(x=col.end - col.start)),
    "top k": lambda s: s.top_k(2, by=col.pause.desc(), per="city"),
    "elements": lambda s: s.explode("stops").select(stop=col.stops * 2, m=F.map("a", col.stops)),
    "window": lambda s: s.filter(_SMALL).with_columns(
        n=hr.count().over(partition_by="city", order_by="pause", range=(-HOUR, HOUR)),
        before=hr.lag(col.pause).over(partition_by="city", order_by=["pause", "id"]),
    ),
}


@pytest.mark.parametrize("build", FLOWS.values(), ids=FLOWS)
def test_a_batch_answers_as_a_tick_in_this_process(spark: SparkSession, build: Callable[[Any], Any]) -> None:
    flow = hr.Flow("trips")
    flow.sink("out", build(flow.table("trips", Trip)))
    inputs = {"trips": [Change(trip, 1) for trip in TRIPS]}
    made = bags_in_one_tick(flow, inputs)
    assert batch_bags(spark, flow, inputs) == {name: +bag for name, bag in made.items()}


class Span(NamedTuple):
    key: str
    span: timedelta | None


_MICROSECOND = timedelta(microseconds=1)
_MOST = _MICROSECOND * (2**63 - 1)
SPANS = {
    "beyond": [_MOST, _MOST, -_MOST, -_MOST, DAY],
    "least": [-_MOST - _MICROSECOND] * 3 + [_MOST, _MOST],
    "halves": [_MICROSECOND, timedelta(), -_MICROSECOND, 2 * _MICROSECOND, None],
    "half below": [-_MICROSECOND, timedelta()],
    "third": [_MOST, _MOST, _MOST - _MICROSECOND],
    "none": [None],
}


def test_totals_that_leave_the_range_on_their_way_are_exact_in_a_batch(spark: SparkSession) -> None:
    flow = hr.Flow("spans")
    spans = flow.table("spans", Span)
    plain = {"mean": Mean(col.span), "tried": NullOnError(Mean(col.span)), "sum": NullOnError(Sum(col.span))}
    totals: dict[str, Aggregation] = {**plain}
    once = {f"{name}_once": DistinctAggregate(each) for name, each in plain.items()}
    flow.sink("means", spans.group_by("key").agg(**totals, **once))
    sums = {"all": hr.sum(col.span), "once": hr.sum(col.span, distinct=True)}
    flow.sink("sums", spans.filter(~col.key.is_in("least", "third")).group_by("key").agg(**sums))
    inputs = {"spans": [Change(Span(key, each), 1) for key, spans in SPANS.items() for each in spans]}
    made = bags_in_one_tick(flow, inputs)
    assert batch_bags(spark, flow, inputs) == {name: +bag for name, bag in made.items()}


def test_a_stream_answers_as_ticks_in_this_process_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    flow = hr.Flow("trips")
    trips = flow.table("trips", Trip)
    for name, build in FLOWS.items():
        flow.sink(name, build(trips))
    ticks = [[*map(hr.insert, TRIPS[:4])], [hr.delete(TRIPS[0]), *map(hr.insert, TRIPS[4:])]]
    expected: dict[str, Counter[Any]] = {name: Counter() for name in FLOWS}
    hr.run(flow, sources={"trips": hr.io.Rows(ticks)}, sinks=added_to(expected))
    found: dict[str, Counter[Any]] = {name: Counter() for name in FLOWS}
    for count in (1, 2):  # the second run begins with the state of the first
        sources = {"trips": hr.io.Rows(ticks[:count])}
        hr.spark.run(flow, spark, sources=sources, sinks=added_to(found), checkpoint=tmp_path)
    for name, bag in expected.items():
        assert +found[name] == +bag, name


def added_to(bags: dict[str, Counter[Any]]) -> dict[str, Any]:
    def into(name: str) -> hr.io.Call:
        def add(tick: int, changes: Any) -> None:
            for *row, weight in changes.raw:
                bags[name][tuple(row)] += weight

        return hr.io.Call(add)

    return {name: into(name) for name in bags}
