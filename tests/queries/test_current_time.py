"""Queries of the current time: rows come and go as it passes, and it is kept with the commits."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.errors import UnsupportedQuery
from headrace.io import Memory, Rows, TickTime
from tests.queries.spark_answers import comparable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

START = datetime(2020, 1, 1, tzinfo=UTC)


class Event(NamedTuple):
    id: int
    ts: datetime | None
    d: date | None


DDL = "id BIGINT NOT NULL, ts TIMESTAMP, d DATE"

QUERIES = {
    "to come": "SELECT id FROM events WHERE ts > current_timestamp()",
    "the last days": "SELECT id, d FROM events WHERE d >= date_sub(current_date(), 3)",
    "the last hours": "SELECT id FROM events WHERE ts BETWEEN now() - INTERVAL 30 HOURS AND now()",
    "a month": "SELECT id FROM events WHERE ts > now() - INTERVAL 1 MONTH",
    "in seconds": "SELECT id FROM events WHERE unix_timestamp(ts) > unix_timestamp(now()) - 3600 * 30",
    "today": "SELECT id, d FROM events WHERE d = current_date()",
    "before today": "SELECT id, d FROM events WHERE d < current_date() AND id > 1",
    "ages": "SELECT id, datediff(current_date(), d) AS age FROM events WHERE d <= current_date()",
    "groups": "SELECT id, count(*) AS n, max(ts) AS t FROM events"
    " WHERE ts <= now() AND d >= date_add(current_date(), -4) GROUP BY id",
    "join": "SELECT a.id FROM events a JOIN events b ON a.id = b.id AND a.ts > now()",
    "outer join": "SELECT a.id, b.d FROM events a LEFT JOIN events b ON a.id = b.id AND b.ts > now()",
    "in an aggregate": "SELECT id, count_if(d > current_date()) AS n FROM events GROUP BY id",
    "alone": "SELECT current_date() AS day, count(*) AS n FROM events",
    "in a subquery": "SELECT id FROM events WHERE EXISTS"
    " (SELECT 1 FROM events o WHERE o.id = events.id AND o.d = current_date())",
    "or": "SELECT id FROM events WHERE datediff(current_date(), d) < 3 OR d IS NULL",
}
FILTERS = (
    "to come",
    "in seconds",
    "the last hours",
    "the last days",
    "today",
    "before today",
    "groups",
    "in a subquery",
)
"""Queries in which time costs the rows that come and go, and nothing else."""


def event(choice: random.Random) -> Event:
    later, days = timedelta(hours=choice.randrange(200)), timedelta(days=choice.randrange(9))
    return Event(
        choice.randrange(4),
        choice.choice([None, *[START + later] * 5]),
        choice.choice([None, *[START.date() + days] * 5]),
    )


@pytest.mark.parametrize("name", QUERIES)
def test_after_every_tick_the_answer_is_that_of_its_time(spark: SparkSession, name: str) -> None:
    from pyspark.sql.types import StructType

    choice, answer, there = random.Random(name), Counter[Any](), list[Event]()
    flow = hr.sql(QUERIES[name], tables={"events": Event}, spark=spark)
    kinds = [node.operator.kind for node in flow.graph().nodes]
    assert (("temporal_filter" in kinds) and "initialize" not in kinds) or name not in FILTERS
    engine = hr.Engine(flow)
    for day in range(4):
        now = START + timedelta(days=2 * day, hours=choice.randrange(12))
        new = [event(choice) for _ in range(choice.randrange(6))]
        there += new
        gone = [there.pop(choice.randrange(len(there))) for _ in range(min(len(there), choice.randrange(3)))]
        changes = [hr.insert(row) for row in new] + [hr.delete(row) for row in gone]
        for change in engine.tick(events=changes, now=now)["answer"]:
            answer[comparable(change.row)] += change.weight
        frame = spark.createDataFrame([tuple(row) for row in there], StructType.fromDDL(DDL)).coalesce(1)
        frame.createOrReplaceTempView("events")
        moment = f"timestamp_seconds({int(now.timestamp())})"
        text = QUERIES[name].replace("current_timestamp()", moment).replace("now()", moment)
        text = text.replace("current_date()", f"DATE'{now:%Y-%m-%d}'")
        assert +answer == Counter(comparable(row) for row in spark.sql(text).collect())


def test_a_month_before_a_later_time_may_be_earlier(spark: SparkSession) -> None:
    text = "SELECT id FROM events WHERE ts > now() - INTERVAL 1 MONTH"
    engine = hr.Engine(hr.sql(text, tables={"events": Event}, spark=spark))
    row = Event(1, datetime(2020, 2, 29, 11, tzinfo=UTC), None)
    assert engine.tick(events=[row], now=datetime(2020, 3, 30, 12, tzinfo=UTC))["answer"] == []
    assert len(engine.tick(now=datetime(2020, 3, 31, 10, tzinfo=UTC))["answer"]) == 1


def test_before_there_is_a_time_nothing_is_due(spark: SparkSession) -> None:
    flow = hr.sql("SELECT id FROM events WHERE ts <= now()", tables={"events": Event}, spark=spark)
    engine = hr.Engine(flow)
    assert engine.tick(events=[Event(1, START, None)])["answer"] == []
    assert [change.row.id for change in engine.tick(now=START)["answer"]] == [1]


def test_a_time_without_a_zone_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UnsupportedQuery, match=r"localtimestamp\(\), a time without a zone"):
        hr.sql("SELECT localtimestamp() AS t FROM events", tables={"events": Event}, spark=spark)


# -- runs --------------------------------------------------------------------------------------

SOON = "SELECT id FROM events WHERE ts <= current_timestamp()"


def at(*times: datetime) -> TickTime:
    """A clock that shows these times."""
    left = iter(times)
    return TickTime("1s", lambda: next(left))


def test_a_run_has_a_time_and_ends(spark: SparkSession) -> None:
    rows = [Event(1, START, None), Event(2, datetime.now(UTC) + timedelta(days=9), None)]
    found = Memory()
    flow = hr.sql(SOON, sources={"events": Event}, spark=spark)
    hr.run(flow, sources={"events": rows}, sinks={"answer": found})
    assert [row.id for row in found.rows()] == [1]


@pytest.mark.parametrize("on", ["here", "spark"])
def test_the_next_run_goes_on_from_the_time_of_the_last(spark: SparkSession, tmp_path: Path, on: str) -> None:
    flow = hr.sql(SOON, sources={"events": Event}, spark=spark)
    later = START + timedelta(days=1)
    events = Rows([[Event(1, START, None), Event(2, later, None)]])
    changes: list[Any] = []

    def run(time: datetime) -> None:
        given: dict[str, Any] = {
            "sources": {"events": events, "tick_time": at(time)},
            "sinks": {"answer": lambda tick, rows: changes.extend(rows)},
            "checkpoint": tmp_path / on,
        }
        if on == "here":
            hr.run(flow, **given)
        else:
            hr.spark.run(flow, spark=spark, **given)

    for time in (START, START - timedelta(days=9), later):
        run(time)
    assert [(change.row.id, change.weight) for change in changes] == [(1, 1), (2, 1)]


def test_a_batch_has_a_time(spark: SparkSession) -> None:
    rows = [Event(1, START, None), Event(2, datetime.now(UTC) + timedelta(days=9), None)]
    found = Memory()
    flow = hr.sql(SOON, sources={"events": Event}, spark=spark)
    hr.spark.run(flow, sources={"events": rows}, sinks={"answer": found}, mode="batch", spark=spark)
    assert [row.id for row in found.rows()] == [1]
