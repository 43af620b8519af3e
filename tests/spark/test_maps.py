"""Columns of maps on Spark: batches, also of operators that compare rows, and ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.engine.change import Change
from tests.spark.batch_rows_of import bags_in_one_tick, batch_bags

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

F = hr.functions


class Order(NamedTuple):
    id: int
    counts: dict[str, int] | None
    rates: dict[float, dict[str, float | None]]


ORDERS = [
    Order(1, {"b": 1, "a": 2}, {0.5: {"x": None}}),
    Order(1, {"a": 2, "b": 1}, {0.5: {"x": None}}),
    Order(2, {"b": 1, "a": 2}, {-0.0: {"y": -0.0, "x": 1.0}, float("nan"): {}}),
    Order(2, {"a": 2, "b": 1}, {float("nan"): {}, 0.0: {"x": 1.0, "y": 0.0}}),
    Order(3, None, {}),
    Order(3, {}, {}),
]

FLOWS: dict[str, Callable[[Any], Any]] = {
    "as they are": lambda s: s,
    "filter": lambda s: s.filter(col.counts["a"] > 1),
    "filter by a function": lambda s: s.filter(has_a),
    "select": lambda s: s.select(more=F.map_concat(col.counts, F.map("z", col.id)), rate=col.rates[0.0]["x"]),
    "entries": lambda s: s.select(entry=F.map_entries(col.counts)).explode("entry"),
    "join": lambda s: s.select("id", one=col.counts).join(s.select("id", other=col.rates), on="id"),
    "distinct": lambda s: s.distinct(),
    "distinct maps": lambda s: s.select(rates=col.rates).distinct(),
    "group": lambda s: s.group_by("counts").agg(n=hr.count(), sum=hr.sum(col.id)),
    "group by a part": lambda s: s.group_by(a=col.counts["a"]).agg(n=hr.count_distinct(col.counts)),
    "list of maps": lambda s: s.group_by("id").agg(all=hr.collect(col.counts)),
    "top k": lambda s: s.top_k(2, by=col.id.desc()),
    "top k per map": lambda s: s.top_k(1, by=col.id, per=col.rates),
    "difference": lambda s: s.select(m=col.counts).difference(
        s.filter(col.id == 1).select(m=F.map_from_entries(F.reverse(F.map_entries(col.counts))))
    ),
    "window": lambda s: s.with_columns(n=hr.count().over(partition_by="counts", order_by="id")),
}


def has_a(order: Order) -> bool:
    return "a" in (order.counts or {})


@pytest.mark.parametrize("build", FLOWS.values(), ids=FLOWS)
def test_a_batch_answers_as_a_tick_in_this_process(spark: SparkSession, build: Callable[[Any], Any]) -> None:
    flow = hr.Flow("maps")
    flow.sink("out", build(flow.table("orders", Order)))
    inputs = {"orders": [Change(order, 1) for order in ORDERS]}
    made = bags_in_one_tick(flow, inputs)
    assert batch_bags(spark, flow, inputs) == {name: +bag for name, bag in made.items()}


def test_rows_of_a_table_are_retracted_whatever_the_order_in_their_maps(spark: SparkSession) -> None:
    flow = hr.Flow("maps")
    flow.sink("out", flow.table("orders", Order))
    inputs = {"orders": [Change(ORDERS[0], 1), Change(ORDERS[1], -1), Change(ORDERS[2], 1)]}
    assert sum(batch_bags(spark, flow, inputs)["out"].values()) == 1


class Holder(NamedTuple):
    id: int
    m: dict[str, int | None] | None
    ms: list[dict[str, int | None] | None]


HOLDERS = [
    Holder(1, {"b": None, "a": 2}, [{"b": None}, None]),
    Holder(1, {"a": 2, "b": None}, [{"b": None}, None]),
    Holder(2, None, []),
    Holder(2, {"a": 0, "b": 0}, [{"b": 0}, {}]),
]


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s,
        lambda s: s.select(m=col.m, ms=col.ms),
        lambda s: s.select(text=F.to_json(col.m)),
        lambda s: s.group_by("m", "ms").agg(n=hr.count()),
        lambda s: s.select("ms").distinct(),
    ],
)
def test_a_batch_keeps_nulls_in_maps(spark: SparkSession, build: Callable[[Any], Any]) -> None:
    flow = hr.Flow("maps")
    flow.sink("out", build(flow.table("holders", Holder)))
    found, sources = hr.io.Memory(), {"holders": hr.io.Rows([HOLDERS])}
    hr.spark.run(flow, spark, sources=sources, sinks={"out": found}, mode="batch")
    expected = hr.io.Memory()
    hr.run(flow, sources=sources, sinks={"out": expected})
    assert sorted(map(repr, found.rows())) == sorted(map(repr, expected.rows()))
