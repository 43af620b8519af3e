"""Partial aggregates on Arrow columns give what the rows give one by one. No Spark but at the end."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import Flow, col, io
from penstock.io.arrow import rows_to_table
from penstock.spark.placing.combining import insert_partial_operators
from penstock.spark.placing.native import grouping_behind, native_parts
from penstock.spark.ticks.arrow_partials import Grouping
from penstock.spark.ticks.intake import Taken, read_inputs
from penstock.spark.ticks.plan import Input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sale(NamedTuple):
    shop: str | None
    pieces: int | None
    price: int
    day: date
    at: datetime | None


def sums(sales: Any) -> Any:
    return sales.group_by("shop").agg(
        n=ps.count(),
        known=ps.count(col.pieces),
        pieces=ps.sum(col.pieces),
        mean=ps.mean(col.price + 1),
        price=ps.sum(col.price),
    )


def extremes(sales: Any) -> Any:
    return sales.group_by("day", late=col.price > 5).agg(
        first=ps.min(col.at), last=ps.max(col.at), dearest=ps.max(col.price), n=ps.count()
    )


def everything(sales: Any) -> Any:
    return sales.group_by().agg(n=ps.count(), price=ps.sum(col.price))


def grouping(build: Any, *, append: bool) -> Grouping:
    flow = Flow("sales")
    flow.sink("out", build(flow.source("sales", Sale) if append else flow.table("sales", Sale)))
    found = grouping_behind(native_parts(insert_partial_operators(flow.graph()), ["sales"])["sales"])
    assert found is not None
    return found


DAYS = st.sampled_from([date(2024, 2, 29), date(1969, 12, 31)])
MOMENTS = st.none() | st.datetimes(timezones=st.just(UTC), min_value=datetime(1900, 1, 1))
NUMBERS = st.integers(-3, 9) | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**62, -(2**63)])
SALES = st.tuples(st.sampled_from(["a", "", None]), st.none() | NUMBERS, NUMBERS, DAYS, MOMENTS)
WEIGHTS = st.integers(-2, 3) | st.sampled_from([2**61, -(2**63)])


def columns_of(found: Grouping, rows: list[tuple[Any, ...]]) -> Any:
    """Rows of sales as the columns that a grouping reads, weights kept."""
    by_name = {"key 0": 0, "argument 1": 1, "argument 2": 2, "argument 3": 2}
    assert [f.name for f in found.rows.fields] == list(by_name)[: len(found.rows.fields)]
    picked = [tuple(row[at] for at in by_name.values()) + row[5:] for row in rows]
    return rows_to_table(picked, found.rows, weighted=not found.append)


@given(st.lists(SALES, max_size=12))
def test_sums_of_rows_that_only_come(rows: list[tuple[Any, ...]]) -> None:
    found = grouping(sums, append=True)
    table = columns_of(found, rows)
    assert Counter(found.groups(table)) == Counter(found._row_by_row(table))


@given(st.lists(st.tuples(SALES, WEIGHTS), max_size=12))
def test_sums_of_rows_that_come_and_go(rows: list[tuple[tuple[Any, ...], int]]) -> None:
    found = grouping(sums, append=False)
    table = columns_of(found, [(*row, weight) for row, weight in rows])
    assert Counter(found.groups(table)) == Counter(found._row_by_row(table))


@given(st.lists(SALES, max_size=12))
def test_extremes_and_several_keys(rows: list[tuple[Any, ...]]) -> None:
    found = grouping(extremes, append=True)
    assert [f.name for f in found.rows.fields] == ["key 0", "key 1", "argument 2", "argument 3"]
    table = rows_to_table([(r[3], r[2] > 5, r[4], r[2]) for r in rows], found.rows)
    assert Counter(found.groups(table)) == Counter(found._row_by_row(table))


@given(st.lists(NUMBERS, max_size=5))
def test_the_group_of_everything_is_there_while_it_has_rows(prices: list[int]) -> None:
    found = grouping(everything, append=True)
    table = rows_to_table([(price,) for price in prices], found.rows)
    assert found.groups(table) == ([(len(prices), sum(prices))] if prices else [])


def test_a_sum_that_could_leave_int64_is_not_left_to_arrow() -> None:
    found = grouping(everything, append=True)
    table = rows_to_table([(2**62,), (2**62,), (-(2**62),)], found.rows)
    assert found.groups(table) == [(3, 2**62)]


def test_rows_of_which_only_the_number_is_asked_come_without_columns() -> None:
    found = grouping(lambda sales: sales.group_by().agg(n=ps.count()), append=True)
    assert found.rows.fields == ()
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([0, 0, -1], pa.int32()),
            pa.nulls(3, pa.string()),
            pa.nulls(3, pa.int64()),
            pa.array([{}, {}, None], pa.struct([])),
        ],
        names=["tag", "path", "place", "row_0"],
    )
    taken = Taken()
    pieces = list(read_inputs([batch, batch], (Input("sales", found.rows, True, None, found),), taken))
    assert [piece.rows for piece in pieces] == [[(4,)]]
    assert taken.rows == {"sales": 4}


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.group_by("shop").agg(mean=ps.mean(col.price / 2.0)),
        lambda s: s.group_by("shop").agg(last=ps.max(col.shop)),
        lambda s: s.top_k(1, by=col.price),
    ],
)
def test_what_arrow_does_otherwise_is_left_to_rows(build: Any) -> None:
    flow = Flow("sales")
    flow.sink("out", build(flow.source("sales", Sale)))
    assert grouping_behind(native_parts(insert_partial_operators(flow.graph()), ["sales"])["sales"]) is None


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_a_dataframe_is_grouped_on_its_way_to_python(spark: SparkSession, tmp_path: Path, way: Any) -> None:
    flow = Flow("sales")
    sales = flow.source("sales", Sale).filter(col.price > 0)
    flow.sink("out", sales.group_by("shop").agg(n=ps.count(), pieces=ps.sum(col.pieces), d=ps.max(col.day)))
    rows = [
        (None if n % 7 == 0 else f"s{n % 5}", None if n % 3 else n, n % 11, date(2024, 1, 1 + n % 28), None)
        for n in range(500)
    ]
    schema = "shop string, pieces long, price long, day date, at timestamp"
    progress: list[Any] = []
    changes: list[Any] = []
    ps.spark.run(
        flow,
        spark,
        sources={"sales": ps.spark.Frame(spark.createDataFrame(rows, schema))},
        sinks={"out": changes},
        way=way,
        on_tick=progress.append,
    )
    expected: list[Any] = []
    ps.run(flow, sources={"sales": io.Rows([[Sale(*row) for row in rows]])}, sinks={"out": expected})
    assert sorted(changes, key=repr) == sorted(expected, key=repr)
    assert [p.rows_in for p in progress] == [sum(row[2] > 0 for row in rows)]


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_the_rows_of_a_dataframe_are_counted(spark: SparkSession, way: Any) -> None:
    flow = Flow("counted")
    flow.sink("out", flow.source("sales", Sale).filter(col.price > 3).group_by().agg(n=ps.count()))
    schema = "shop string, pieces long, price long, day date, at timestamp"
    frame = spark.createDataFrame([("a", 1, n, date(2024, 1, 1), None) for n in range(10)], schema)
    changes: list[Any] = []
    ps.spark.run(flow, spark, sources={"sales": ps.spark.Frame(frame)}, sinks={"out": changes}, way=way)
    assert [tuple(change.row) for change in changes] == [(6,)]
