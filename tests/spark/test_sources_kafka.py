"""Kafka through Spark's connector: what it is told, what records mean, what is said where it is missing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import Flow, io
from headrace.errors import BadInput, BadRow, HeadraceError
from headrace.expr.row_classes import schema_of
from headrace.io import Debezium, Kafka, KafkaTopic
from headrace.io.sink import SinkRequest, open_sink
from headrace.spark import Frame, run
from headrace.spark.sources.record_frames import (
    TopicWriter,
    connector_is_there,
    package,
    rows_of_records,
    to_weighted_rows,
)
from headrace.spark.ticks.failures import decoded_errors
from tests.io.change_records import BOOKS, Book, debezium, now

pytestmark = pytest.mark.spark


class Bid(NamedTuple):
    auction: int
    price: float | None
    tags: list[str]


RECORDS = "key binary, value binary, topic string, partition int, offset long"


def records(spark: Any, values: list[str | None]) -> Any:
    """What the connector's frame looks like."""
    rows = [(None, None if v is None else v.encode(), "t", 0, n) for n, v in enumerate(values)]
    return spark.createDataFrame([(k, None if v is None else bytearray(v), *r) for k, v, *r in rows], RECORDS)


def test_options_are_passed_on_with_servers_and_topics() -> None:
    source = Kafka(["a:1", "b:2"], ["bids", "asks"], options={"maxOffsetsPerTrigger": "9", "subscribe": "x"})
    assert source.connection() == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "subscribe": "bids,asks",
        "maxOffsetsPerTrigger": "9",
    }
    sink = KafkaTopic("a:1", "out", options={"kafka.acks": "all"})
    assert sink.connection() == {"kafka.bootstrap.servers": "a:1", "topic": "out", "kafka.acks": "all"}


def test_values_in_json_become_the_declared_columns(spark: Any) -> None:
    values = ['{"auction": 1, "price": 2.5, "tags": ["x"], "more": 1}', '{"auction": 2, "tags": []}']
    rows = rows_of_records(Kafka("a:1", "bids"), records(spark, values), schema_of(Bid))
    flow = Flow("bids")
    flow.sink("bids", flow.source("bids", Bid))
    memory = io.Memory()
    run(flow, spark, sources={"bids": Frame(rows)}, sinks={"bids": memory}, mode="batch")
    assert sorted(memory.rows()) == [Bid(1, 2.5, ["x"]), Bid(2, None, [])]
    run(flow, spark, sources={"bids": Frame(rows)}, sinks={"bids": memory})
    assert len(memory.rows()) == 4


@pytest.mark.parametrize("value", ["no json", '{"auction": 1, "tags": [null]}', None])
def test_a_value_that_is_no_row_fails_the_tick(spark: Any, value: str | None) -> None:
    rows = rows_of_records(Kafka("a:1", "bids"), records(spark, [value]), schema_of(Bid))
    flow = Flow("bids")
    flow.sink("bids", flow.source("bids", Bid))
    with pytest.raises(BadRow, match=r"a record cannot be parsed|of its DataFrame (is|holds a) null"):
        run(flow, spark, sources={"bids": Frame(rows)}, sinks={"bids": io.Memory()})


def test_tombstones_are_nothing_to_debezium(spark: Any) -> None:
    from headrace.io.change_data import record_schema
    from headrace.spark.sources.record_frames import without_tombstones

    source = Debezium(Kafka("a:1", "books"), epoch="millis")
    values = [json.dumps(r) for r in debezium(BOOKS)]
    found = records(spark, [values[0], None, *values[1:]])
    rows = rows_of_records(source.records, found, record_schema(source, schema_of(Book)))
    changes = to_weighted_rows(source, without_tombstones(rows), "books", schema_of(Book))
    flow = Flow("books")
    flow.sink("books", flow.table("books", Book))
    memory = io.Memory()
    with decoded_errors():
        run(flow, spark, sources={"books": Frame(changes)}, sinks={"books": memory})
    assert sorted(memory.rows()) == sorted(now(BOOKS))


def test_avro_needs_a_schema() -> None:
    for wrong in ({"value": "avro"}, {"avro": "{}"}, {"value": "xml"}):
        with pytest.raises(BadInput, match="the values of topic 't'"):
            Kafka("a:1", "t", **wrong)  # type: ignore[arg-type]


def test_without_the_connector_it_is_said_which_package_is_missing(spark: Any) -> None:
    if connector_is_there(spark):
        pytest.skip("the connector is on the class path")
    flow = Flow("bids")
    flow.sink("bids", flow.source("bids", Bid))
    assert package(spark.version) == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
    for sources, sinks in (
        ({"bids": Kafka("a:1", "t")}, {"bids": io.Memory()}),
        ({"bids": [Bid(1, 1.0, [])]}, {"bids": KafkaTopic("a:1", "t")}),
    ):
        with pytest.raises(BadInput, match="needs Spark's connector for Kafka") as raised:
            run(flow, spark, sources=sources, sinks=sinks)
        assert f"--packages {package(spark.version)}" in str(raised.value)


def test_in_this_process_topics_are_refused() -> None:
    flow = Flow("bids")
    flow.sink("bids", flow.source("bids", Bid))
    with pytest.raises(BadInput, match="only Spark reads Kafka topics"):
        hr.run(flow, {"bids": Kafka("a:1", "t")}, {})
    with pytest.raises(BadInput, match="a topic of Kafka is written by Spark"):
        hr.run(flow, {"bids": [Bid(1, 1.0, [])]}, {"bids": KafkaTopic("a:1", "t")})


def topic(spark: Any, folder: Path, key: Any = None) -> TopicWriter:
    """A writer that writes records to files instead of to a topic."""
    sink = KafkaTopic("a:1", "t", key=key, options={"path": str(folder / "out")})
    return TopicWriter(sink, SinkRequest("bids", schema_of(Bid), folder / "spool"), spark, form="json")


def written(folder: Path) -> Counter[str]:
    lines = [line for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines()]
    return Counter(lines)


def test_changes_become_records_and_the_last_tick_may_be_told_again(spark: Any, tmp_path: Path) -> None:
    out = topic(spark, tmp_path, key="auction")
    out.recover(0)
    out.prepare(1, [(1, None, ("x",), 1), (2, 0.5, (), -1)])
    assert not (tmp_path / "out").exists()
    out.publish(1)
    out.publish(1)
    found = [json.loads(line) for line in written(tmp_path).elements()]
    assert sorted((json.loads(r["value"]) for r in found), key=lambda v: v["auction"]) == [
        {"auction": 1, "price": None, "tags": ["x"], "weight": 1, "tick": 1},
        {"auction": 2, "price": 0.5, "tags": [], "weight": -1, "tick": 1},
    ]
    assert {r["key"] for r in found} == {'{"auction":1}', '{"auction":2}'}
    out.prepare(2, [(3, None, (), 1)])
    again = topic(spark, tmp_path)
    again.recover(2)
    assert len(written(tmp_path)) == 3
    again.prepare(3, [(4, None, (), 1)])
    topic(spark, tmp_path).recover(2)  # tick 3 was not committed
    assert len(written(tmp_path)) == 3


def test_a_topic_that_is_there_is_read_and_written(spark: Any) -> None:
    import os

    servers = os.environ.get("HEADRACE_KAFKA")
    if not connector_is_there(spark) or servers is None:
        pytest.skip("needs Spark's connector for Kafka and a broker at HEADRACE_KAFKA=HOST:PORT")
    name = f"headrace-{os.getpid()}"
    flow = Flow("bids")
    flow.sink("bids", flow.source("bids", Bid))
    bids = [Bid(n, None, []) for n in range(5)]
    run(flow, spark, sources={"bids": bids}, sinks={"bids": KafkaTopic(servers, name)})
    memory = io.Memory()
    source = Kafka(servers, name, options={"startingOffsets": "earliest"})
    run(flow, spark, sources={"bids": source}, sinks={"bids": memory})
    assert sorted(memory.rows()) == bids


def test_the_sink_of_a_topic_needs_its_columns(tmp_path: Path, spark: Any) -> None:
    drain = SinkRequest("bids", schema_of(Bid), tmp_path)
    with pytest.raises(HeadraceError, match="the key has unknown column 'nothing'"):
        open_sink(KafkaTopic("a:1", "t", key="nothing"), drain)
