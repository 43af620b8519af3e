"""A flow that remembers nothing is one Python stage behind native columns: no shuffle, no cell, no state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace import Flow, col, io
from headrace.spark.explanation import physical_plan
from headrace.spark.placing.pushdown import insert_partial_operators, native_parts
from headrace.spark.placing.stages import cut_stages
from headrace.spark.ticks.plan import TickPlan, compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Bid(NamedTuple):
    auction: int
    price: int


def doubled(bid: Any) -> Bid:
    return Bid(bid.auction, bid.price * 2)


def without_state() -> Flow:
    flow = Flow("without state")
    dear = flow.source("bids", Bid).filter(col.price > 5).select(col.auction, price=col.price + 1)
    flow.sink("out", dear.map(doubled))
    flow.sink("few", dear.filter(col.auction < 3))
    return flow


def test_it_is_one_stage_that_keeps_nothing() -> None:
    plan = compiled(
        TickPlan(cut_stages(insert_partial_operators(without_state().graph()), 4), (), {}, "", False)
    )
    assert [stage.slots for stage in plan.stages] == [{}]
    assert plan.plan.stages.exchanges == ()


def test_its_filters_and_selects_are_native_up_to_where_two_read() -> None:
    (chain,) = native_parts(without_state().graph(), ["bids"]).values()
    assert [node.operator.kind for node in chain] == ["source", "filter", "select"]


def test_its_job_has_one_python_stage_and_no_exchange(spark: SparkSession) -> None:
    plan = physical_plan(without_state(), spark, shards=4, sinks={})
    tree = plan.split("\n\n")[0]
    assert tree.count("MapInArrow") == 1
    assert "Exchange" not in tree


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_it_writes_files_and_no_state(spark: SparkSession, tmp_path: Path, way: Any) -> None:
    rows = [(n, n % 10) for n in range(100)]
    hr.spark.run(
        without_state(),
        spark,
        sources={"bids": hr.spark.Frame(spark.createDataFrame(rows, "auction long, price long"))},
        sinks={"out": io.Changelog(tmp_path / "out"), "few": io.Changelog(tmp_path / "few")},
        checkpoint=tmp_path / "checkpoint",
        way=way,
    )
    assert not list((tmp_path / "checkpoint").glob("state/*/*"))
    written = spark.read.parquet(str(tmp_path / "out")).select("auction", "price").collect()
    assert sorted(map(tuple, written)) == sorted((n, 2 * (p + 1)) for n, p in rows if p > 5)
