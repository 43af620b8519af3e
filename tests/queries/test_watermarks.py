"""Queries with watermarks: the answer is Spark's over the rows on time, and what has passed is forgotten."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.errors import UnsupportedQuery
from headrace.operators.join.interval_join import IntervalJoin
from tests.event_time.test_state import entries
from tests.queries.spark_answers import comparable

F = pytest.importorskip("pyspark.sql.functions")

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Bid(NamedTuple):
    id: int
    at: datetime | None
    price: int | None


DDL = "id BIGINT NOT NULL, at TIMESTAMP, price BIGINT"
START = datetime(2020, 1, 1, tzinfo=UTC)
DELAY = timedelta(seconds=30)
BIDS = "bids WATERMARK at DELAY OF INTERVAL 30 SECONDS"

QUERIES = {
    "tumbling": f"SELECT window(at, '1 minute') AS w, id, sum(price) AS s FROM {BIDS} GROUP BY 1, 2",
    "sliding": f"SELECT window.end AS e, count(DISTINCT id) AS n FROM {BIDS}"
    " GROUP BY window(at, '1 minute', '25 seconds', '7 seconds')",
    "sessions": f"SELECT session_window(at, '20 seconds') AS w, id, count(*) AS n FROM {BIDS} GROUP BY 1, 2",
    "sessions of all": f"SELECT session_window.end AS e FROM {BIDS} GROUP BY session_window(at, '5 seconds')",
    "truncated": f"SELECT date_trunc('minute', at) AS m, max(price) AS p FROM {BIDS} WHERE at > '2020-01-01'"
    " GROUP BY 1",
    "days": f"SELECT to_date(at) AS day, count(*) AS n FROM {BIDS} GROUP BY 1",
    "windows alone": f"SELECT DISTINCT window(at, '1 minute') AS w FROM {BIDS}",
    "distinct": f"SELECT DISTINCT id, at FROM {BIDS}",
    "of a common table": f"WITH b AS (SELECT * FROM {BIDS}) SELECT id, at, count(*) FROM b GROUP BY 1, 2",
    "other keys": f"SELECT id, count(*) AS n FROM {BIDS} GROUP BY id",
    "join": f"SELECT a.id, a.at, b.price FROM (SELECT * FROM {BIDS}) a JOIN (SELECT * FROM {BIDS}) b"
    " ON a.id = b.id AND a.at BETWEEN b.at AND b.at + INTERVAL 1 MINUTE",
}


def random_ticks(seed: int) -> list[list[Bid]]:
    """Bids whose times rise, some of them late."""
    choice, now = random.Random(seed), START
    ticks: list[list[Bid]] = []
    for _ in range(12):
        tick: list[Bid] = []
        for _ in range(choice.randrange(6)):
            now += timedelta(seconds=choice.choice([0, 1, 5, 10, 40]))
            back = timedelta(seconds=choice.choice([0, 0, 3, 20, 45]))
            at = choice.choice([now - back] * 9 + [None])
            tick.append(Bid(choice.randrange(3), at, choice.choice([None, 1, 2, 3])))
        ticks.append(tick)
    return ticks


def on_time(ticks: list[list[Bid]]) -> list[Bid]:
    """The rows that come before the watermark of those before them has passed their time."""
    latest, kept = START - DELAY, list[Bid]()
    for bid in (bid for tick in ticks for bid in tick if bid.at is not None):
        assert bid.at is not None
        if bid.at >= latest - DELAY:
            kept.append(bid)
        latest = max(latest, bid.at)
    return kept


def answer_of(flow: hr.Flow, ticks: list[list[Bid]]) -> Counter[Any]:
    engine, answer = hr.Engine(flow), Counter[Any]()
    for tick in ticks:
        for change in engine.tick(bids=tick)["answer"]:
            answer[comparable(change.row)] += change.weight
        assert min(answer.values(), default=0) >= 0
    return +answer


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.seeds(3, verify_from=1)
def test_the_answer_is_that_of_spark_over_the_rows_on_time(spark: SparkSession, name: str, seed: int) -> None:
    flow = hr.sql(QUERIES[name], sources={"bids": Bid}, spark=spark)
    ticks = random_ticks(seed)
    # Of a relation that is no stream Spark leaves the watermark out.
    spark.createDataFrame(on_time(ticks), DDL).coalesce(1).createOrReplaceTempView("bids")
    expected = Counter(comparable(row) for row in spark.sql(QUERIES[name]).collect())
    assert answer_of(flow, ticks) == expected


@pytest.mark.parametrize("name", QUERIES)
def test_what_has_passed_is_forgotten(spark: SparkSession, name: str) -> None:
    flow = hr.sql(QUERIES[name], sources={"bids": Bid}, spark=spark)
    state: dict[str, Any] = {slot.name: {} for slot in hr.Engine(flow).program.slots}
    engine = hr.Engine(flow, state=state)
    sizes: list[int] = []
    for minute in range(60):
        at = START + timedelta(minutes=minute)
        engine.tick(bids=[Bid(minute, at, 1), Bid(minute + 1, at, 2)])
        sizes.append(entries(state))
    assert (max(sizes[5:]) > 2 * max(sizes[:10])) == (name == "other keys"), sizes


def test_watermarks_of_tables_mean_nothing_as_of_what_is_no_stream_for_spark(spark: SparkSession) -> None:
    flow = hr.sql(QUERIES["tumbling"], tables={"bids": Bid}, spark=spark)
    assert all(node.operator.kind != "watermark" for node in flow.nodes)


def test_over_a_streaming_dataframe_that_is_a_table_too(stream: DataFrame) -> None:
    frame = stream.withWatermark("at", "30 seconds").groupBy(F.window("at", "1 minute")).count()
    flow = hr.from_dataframe(frame, tables={"bids": stream})
    assert all(node.operator.kind != "watermark" for node in flow.nodes)
    bid = Bid(1, START, 2)
    engine = hr.Engine(flow)
    assert len(engine.tick(bids=[bid])["answer"]) == 1
    assert len(engine.tick(bids=[hr.delete(bid)])["answer"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM bids WHERE price IN (SELECT max(price) FROM bids) -- no watermark here",
        "SELECT id AS watermark, 'WATERMARK' AS w FROM bids WHERE price IN (SELECT max(price) FROM bids)",
    ],
)
def test_the_word_alone_makes_no_stream_of_a_source(spark: SparkSession, text: str) -> None:
    engine = hr.Engine(hr.sql(text, sources={"bids": Bid}, spark=spark))
    assert len(engine.tick(bids=[Bid(1, START, 2)])["answer"]) == 1


def test_a_watermark_below_a_common_table_expression_is_one(spark: SparkSession) -> None:
    text = "WITH timed AS (SELECT * FROM bids WATERMARK at DELAY OF INTERVAL 10 SECONDS) SELECT id FROM timed"
    flow = hr.sql(text, sources={"bids": Bid}, spark=spark)
    assert any(node.operator.kind == "watermark" for node in flow.nodes)


def test_a_watermark_on_windows_is_refused(spark: SparkSession) -> None:
    text = "SELECT * FROM (SELECT window(at, '1 minute') AS w FROM bids) WATERMARK w DELAY OF INTERVAL 1 DAY"
    with pytest.raises(UnsupportedQuery, match="which is no timestamp"):
        hr.sql(text, sources={"bids": Bid}, spark=spark)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return spark.readStream.schema(DDL).parquet(str(tmp_path))


def test_a_streaming_dataframe_is_planned_as_it_is(stream: DataFrame) -> None:
    timed = stream.withWatermark("at", "30 seconds")
    frame = timed.groupBy(F.window("at", "1 minute").alias("w"), "id").agg(F.sum("price").alias("s"))
    flow = hr.from_dataframe(frame, sources={"bids": stream})
    ticks = random_ticks(1)
    same = hr.sql(QUERIES["tumbling"], sources={"bids": Bid}, spark=stream.sparkSession)
    assert answer_of(flow, ticks) == answer_of(same, ticks)


@pytest.mark.parametrize("keys", [["id", "at"], ["id"], ["id", "at", "price"]])
def test_one_row_of_each_key_is_kept(stream: DataFrame, keys: list[str]) -> None:
    frame = stream.withWatermark("at", "30 seconds").dropDuplicates(keys)
    flow, ticks = hr.from_dataframe(frame, sources={"bids": stream}), random_ticks(2)
    at = [Bid._fields.index(key) for key in keys]
    answer = answer_of(flow, ticks)
    assert set(answer.values()) == {1}
    assert answer.keys() <= {comparable(bid) for bid in on_time(ticks)}
    found = Counter(tuple(row[i] for i in at) for row in answer)
    assert found == Counter({tuple(comparable(bid)[i] for i in at) for bid in on_time(ticks)})


def test_duplicates_within_the_delay_are_dropped(stream: DataFrame) -> None:
    frame = stream.withWatermark("at", "30 seconds").dropDuplicatesWithinWatermark(["id"])
    engine = hr.Engine(hr.from_dataframe(frame, sources={"bids": stream}))
    seconds = [0, 10, 29, 31, 5]
    rows = [Bid(1, START + timedelta(seconds=s), s) for s in seconds]
    assert [change.row.price for row in rows for change in engine.tick(bids=[row])["answer"]] == [0, 31]


def test_a_join_on_event_time_stays_before_others(spark: SparkSession) -> None:
    text = (
        f"SELECT a.id, c.price FROM (SELECT * FROM {BIDS}) a, (SELECT * FROM {BIDS}) b, bids c"
        " WHERE a.id = b.id AND a.at = b.at AND a.price = c.price AND c.id = 2"
    )
    nodes = hr.sql(text, sources={"bids": Bid}, spark=spark).graph().nodes
    assert any(isinstance(node.operator, IntervalJoin) for node in nodes)
