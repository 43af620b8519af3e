"""Files of queries: planned by Spark, or without it by the plan that is kept beside them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("google.protobuf")

import headrace as hr
from headrace.cli.load_flow import load_flow
from headrace.compute.errors import BadPlan, CallableRefused
from headrace.errors import BadInput, UnsupportedQuery
from headrace.queries.query_file import QueryFile

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

REVENUE = """\
-- Revenue of each region.
-- source orders: id BIGINT NOT NULL, shop STRING, price BIGINT
-- table shops: shop STRING, region STRING
SELECT region, sum(price) AS revenue, rank() OVER (ORDER BY sum(price) DESC) AS place
FROM orders JOIN shops USING (shop) GROUP BY region
"""


@pytest.fixture
def revenue(tmp_path: Path) -> Path:
    path = tmp_path / "revenue.sql"
    path.write_text(REVENUE)
    return path


def answer(flow: hr.Flow) -> list[tuple[object, ...]]:
    orders = [(1, "a", 5), (2, "b", 7), (3, "a", 4)]
    changes = hr.Engine(flow).tick(orders=orders, shops=[("a", "north"), ("b", "south")])["answer"]
    return sorted(change.row for change in changes)


ANSWER = [("north", 9, 1), ("south", 7, 2)]


@pytest.mark.spark
def test_a_plan_that_is_kept_needs_no_spark(
    spark: SparkSession, revenue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = QueryFile.read(revenue)
    planned = query.plan()
    assert answer(planned) == ANSWER
    assert {str(node.location) for node in planned.nodes} == {"revenue.sql:4"}
    hr.save_flow(planned, query.kept_plan, query=query.text)
    monkeypatch.setattr(QueryFile, "plan", lambda self: pytest.fail("it was planned again"))
    assert answer(load_flow(str(revenue))) == ANSWER
    assert answer(load_flow(str(query.kept_plan))) == ANSWER
    kept = json.loads(query.kept_plan.read_text())
    assert kept["query"] == REVENUE
    assert kept["sources"] == {
        "orders": "(id: int64, shop: str?, price: int64?)",
        "shops": "(shop: str?, region: str?)",
    }


@pytest.mark.spark
def test_a_plan_of_another_text_is_made_again(spark: SparkSession, revenue: Path) -> None:
    query = QueryFile.read(revenue)
    hr.save_flow(query.plan(), query.kept_plan, query=query.text)
    revenue.write_text(REVENUE.replace("SELECT region", "SELECT upper(region) AS region"))
    assert answer(load_flow(str(revenue))) == [("NORTH", 9, 1), ("SOUTH", 7, 2)]


@pytest.mark.spark
def test_columns_that_cannot_be_read_are_named(spark: SparkSession, revenue: Path) -> None:
    revenue.write_text("-- source orders: id NUMBERS\nSELECT id FROM orders")
    with pytest.raises(UnsupportedQuery, match=r"columns of 'orders' in .*: id NUMBERS"):
        load_flow(str(revenue))


def test_a_query_without_tables_says_how_to_declare_them(revenue: Path) -> None:
    revenue.write_text("SELECT 1")
    with pytest.raises(UnsupportedQuery, match="does not say what its tables are"):
        load_flow(str(revenue))


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: "{",
        lambda kept: "[]",
        lambda kept: "[" * 100_000,
        lambda kept: json.dumps({**kept, "format": 2}),
        lambda kept: json.dumps({**kept, "plan": "?"}),
        lambda kept: json.dumps({**kept, "plan": kept["plan"][:-8]}),
        lambda kept: json.dumps({key: value for key, value in kept.items() if key != "plan"}),
        lambda kept: json.dumps({**kept, "plan": 7}),
    ],
)
def test_a_damaged_plan_is_refused(tmp_path: Path, damage: object) -> None:
    flow = hr.Flow("saved")
    flow.sink("out", flow.source("numbers", int).filter(hr.col.value > 1))
    path = tmp_path / "saved.plan"
    hr.save_flow(flow, path)
    assert len(hr.Engine(hr.load_flow(path)).tick(numbers=[1, 2])["out"]) == 1
    path.write_text(damage(json.loads(path.read_text())))  # type: ignore[operator]
    with pytest.raises(BadPlan):
        hr.load_flow(path)


def test_a_flow_with_functions_is_not_saved(tmp_path: Path) -> None:
    flow = hr.Flow("functions")
    flow.sink("out", flow.source("numbers", int).map(lambda n: n + 1, returns=int))
    with pytest.raises(CallableRefused):
        hr.save_flow(flow, tmp_path / "functions.plan")


def test_without_protobuf_a_plan_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = hr.Flow("saved")
    flow.sink("out", flow.source("numbers", int))
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    for attempt in (
        lambda: hr.save_flow(flow, tmp_path / "a.plan"),
        lambda: hr.load_flow(tmp_path / "a.plan"),
    ):
        with pytest.raises(BadInput, match=r"a plan needs google.protobuf(.|\n)*headrace\[serve\]"):
            attempt()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.plan"
    with file.open("wb") as opened:
        opened.truncate(1 << 30)
    with pytest.raises(BadPlan, match="too large for a plan"):
        hr.load_flow(file)
