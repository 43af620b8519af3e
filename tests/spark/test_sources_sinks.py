"""Delta and PostgreSQL as sinks on Spark: written by tasks, once per tick, also after a crash in between."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

import headrace as hr
from headrace import Flow, col, io
from headrace.errors import BadInput
from headrace.spark import run
from headrace.spark.ticks.ticker import DriverSink
from tests.postgres_server import PASSWORD, Postgres

pl = pytest.importorskip("polars", reason="Polars is not installed")
pytest.importorskip("deltalake", reason="deltalake is not installed")
pytestmark = pytest.mark.spark


class Sale(NamedTuple):
    shop: int
    price: int


def totals() -> Flow:
    flow = Flow("totals")
    totals = flow.source("sales", Sale).group_by(col.shop).agg(total=hr.sum(col.price), n=hr.count())
    for name in ("now", "log", "pg_now", "pg_log"):
        flow.sink(name, totals)
    return flow


def sales(batches: int) -> list[list[Sale]]:
    return [[Sale(n % 7, n * b % 5) for n in range(20)] for b in range(batches)]


def expected(batches: int) -> Counter[Any]:
    prices: dict[int, list[int]] = {}
    for batch in sales(batches):
        for sale in batch:
            prices.setdefault(sale.shop, []).append(sale.price)
    return Counter((shop, sum(found), len(found)) for shop, found in prices.items())


def sinks(folder: Path, postgres: Postgres, schema: str) -> dict[str, Any]:
    return {
        "now": io.DeltaTable(folder / "now", "shop"),
        "log": io.DeltaChangelog(folder / "log"),
        "pg_now": io.PostgresTable(postgres.url, "now", "shop", schema),
        "pg_log": io.PostgresChangelog(postgres.url, "log", schema),
    }


def contents(folder: Path, postgres: Postgres, schema: str) -> list[Counter[Any]]:
    """The rows of now as each of the four sinks has them; those of changelogs added up."""
    found: list[Counter[Any]] = []
    for rows in (
        pl.read_delta(str(folder / "now")).rows(),
        pl.read_delta(str(folder / "log")).rows(),
        [tuple(row) for row in postgres.query(f"select * from {schema}.now")],
        [tuple(row) for row in postgres.query(f"select * from {schema}.log")],
    ):
        added: Counter[Any] = Counter()
        for shop, total, n, *weight in rows:
            added[shop, total, n] += weight[0] if weight else 1
        assert min(added.values()) >= 0
        found.append(+added)
    return found


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_each_tick_arrives_once_also_where_the_run_dies_before_it_is_shown(
    way: Any, spark: Any, postgres: Postgres, tmp_path: Path
) -> None:
    schema = way.replace(" ", "_")
    postgres.query(f"create schema {schema}")

    def attempt(batches: int) -> None:
        run(
            totals(), spark, shards=3, checkpoint=tmp_path / "checkpoint", way=way,
            sources={"sales": io.Rows(sales(batches))}, sinks=sinks(tmp_path, postgres, schema),
        )  # fmt: skip

    attempt(1)
    assert contents(tmp_path, postgres, schema) == [expected(1)] * 4
    publish = DriverSink.publish

    def dying(outlet: DriverSink, tick: int) -> None:
        if outlet.name == "log":
            raise OSError("the machine is gone")
        publish(outlet, tick)

    with mock.patch.object(DriverSink, "publish", dying), pytest.raises(OSError, match="the machine is gone"):
        attempt(2)
    seen = contents(tmp_path, postgres, schema)
    assert seen == [expected(2), expected(1), expected(1), expected(1)]
    attempt(3)
    assert contents(tmp_path, postgres, schema) == [expected(3)] * 4
    for file in (tmp_path / "checkpoint").rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes()
    postgres.query(f"drop schema {schema} cascade")


def test_a_batch_writes_all_rows_as_one_tick(spark: Any, postgres: Postgres, tmp_path: Path) -> None:
    postgres.query("create schema batch")
    batch = [sale for part in sales(3) for sale in part]
    run(
        totals(), spark, mode="batch", sources={"sales": batch}, sinks=sinks(tmp_path, postgres, "batch")
    )  # fmt: skip
    assert contents(tmp_path, postgres, "batch") == [expected(3)] * 4
    assert postgres.query("select distinct tick from batch.log") == [[1]]
    postgres.query("drop schema batch cascade")


def test_two_rows_of_a_key_fail_the_tick_before_it_counts(
    spark: Any, postgres: Postgres, tmp_path: Path
) -> None:
    flow = Flow("sales")
    flow.sink("now", flow.source("sales", Sale))
    rows = [Sale(1, 1), Sale(1, 2)]
    for target in (io.DeltaTable(tmp_path / "t", "shop"), io.PostgresTable(postgres.url, "twice", "shop")):
        with pytest.raises(BadInput, match="two rows have the same key"):
            run(
                flow, spark, shards=2, way="stages", checkpoint=tmp_path / type(target).__name__,
                sources={"sales": rows}, sinks={"now": target},
            )  # fmt: skip
    assert pl.read_delta(str(tmp_path / "t")).rows() == []
    assert postgres.query("select * from twice") == []
    postgres.query("drop table twice")


def test_a_function_is_told_the_tick_and_a_tick_whose_end_is_not_known_again(
    spark: Any, tmp_path: Path
) -> None:
    flow = Flow("sales")
    flow.sink("told", flow.source("sales", Sale))
    told: list[tuple[int, list[Any]]] = []

    def tell(tick: int, changes: Any) -> None:
        told.append((tick, sorted(changes.raw)))
        if len(told) == 2:
            raise OSError("the machine is gone")

    for _ in range(2):
        try:
            run(
                flow, spark, checkpoint=tmp_path / "checkpoint", shards=2,
                sources={"sales": io.Rows(sales(3))}, sinks={"told": tell},
            )  # fmt: skip
        except OSError:
            assert [tick for tick, _ in told] == [1, 2]
    assert [tick for tick, _ in told] == [1, 2, 2, 3]
    assert told[1] == told[2]
