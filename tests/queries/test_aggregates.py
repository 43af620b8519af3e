"""Aggregate functions of Spark SQL: the answer is Spark's; of statistics, up to Spark's own rounding."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.errors import EvaluationError
from tests.queries.spark_answers import check_answer, empty_frame

pytest.importorskip("pyspark.sql.functions")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Item(NamedTuple):
    id: int
    a: int | None
    s: str | None


class Point(NamedTuple):
    k: int
    x: float | None
    y: float | None


TABLES = {"items": Item}


def draw(choice: random.Random, table: str) -> Any:
    number, text = choice.choice([None, *range(-2, 5)]), choice.choice([None, "a", "b", "cc", ""])
    return Item(choice.randrange(6), number, text)


QUERIES = {
    "sets": "SELECT id, size(collect_set(a)) AS x, size(array_agg(DISTINCT s)) AS y FROM items GROUP BY id",
    "distinct values": "SELECT s, sum(DISTINCT a) AS x, count(*) AS y FROM items GROUP BY s",
    "several kinds of distinct values": "SELECT count(DISTINCT a, s) AS x, sum(DISTINCT id) AS y,"
    " avg(a) AS z, median(a) AS u FROM items GROUP BY id",
    "distinct decimals": "SELECT avg(DISTINCT CAST(a AS DECIMAL(5,2))) AS x FROM items",
    "distinct values with filters": "SELECT count(DISTINCT a) FILTER (WHERE id > 2) AS x,"
    " sum(DISTINCT a) FILTER (WHERE id > 3) AS y FROM items",
    "means of times": "SELECT s, avg(timestamp_seconds(a)) AS x, avg(DISTINCT timestamp_micros(a)) AS y"
    " FROM items GROUP BY s",
    "percentiles": "SELECT s, percentile(a, array(0.1, 0.5)) AS x, percentile(DISTINCT a, 0.3) AS y,"
    " percentile_cont(0.3) WITHIN GROUP (ORDER BY a DESC) AS z FROM items GROUP BY s",
    "discrete percentiles": "SELECT s, percentile_disc(0.3) WITHIN GROUP (ORDER BY a DESC) AS x,"
    " percentile_approx(a, 0.4) AS y, approx_percentile(CAST(a AS INT), array(0.1, 0.5), 100) AS z"
    " FROM items GROUP BY s",
    "modes": "SELECT id, mode(a, true) AS x, mode() WITHIN GROUP (ORDER BY s DESC) AS y"
    " FROM items GROUP BY id",
    "joined text": "SELECT id, listagg(s, ',') WITHIN GROUP (ORDER BY a DESC NULLS FIRST, s DESC) AS x,"
    " string_agg(DISTINCT a, ', ') WITHIN GROUP (ORDER BY a) AS y FROM items GROUP BY id",
    "histograms of few values": "SELECT s, histogram_numeric(a, 7) AS x, histogram_numeric(a * 0.5D, 7) AS z,"
    " histogram_numeric(DISTINCT CAST(a AS INT), 7) FILTER (WHERE id > 2) AS y FROM items GROUP BY s",
    "histograms of decimals and times": "SELECT s, histogram_numeric(CAST(a / 8 AS DECIMAL(9,3)), 7) AS x,"
    " histogram_numeric(CAST(a / 8 AS FLOAT), 7) AS y, histogram_numeric(date_from_unix_date(a), 7) AS z,"
    " histogram_numeric(timestamp_seconds(a), 7) AS u, histogram_numeric(CAST(a AS TINYINT), 7) AS v,"
    " histogram_numeric(CAST(timestamp_micros(a) AS TIMESTAMP_NTZ), 7) AS w FROM items GROUP BY s",
    "bits": "SELECT id, bit_and(a) AS x, bit_or(CAST(a AS INT)) AS y, bit_xor(DISTINCT a) AS z"
    " FROM items GROUP BY id",
    "filters": "SELECT bit_and(a) FILTER (WHERE a > 1) AS x, median(a) FILTER (WHERE a > 1) AS y,"
    " listagg(s) FILTER (WHERE id > 9) AS z FROM items",
    "of no rows": "SELECT collect_set(a) AS x, collect_list(s) AS y, listagg(s) AS z,"
    " approx_count_distinct(a) AS u, bit_or(a) AS v, mode(a) AS w, var_pop(a) AS p FROM items WHERE id > 99",
    "sums that overflow": "SELECT s, try_sum(a + 9223372036854775800) AS x,"
    " try_sum(CAST(a AS DECIMAL(38,36))) AS y,"
    " try_avg(a) AS z, try_avg(a * 1.5) AS u, try_sum(DISTINCT a + 9223372036854775800) AS v,"
    " try_avg(CAST(a AS DOUBLE)) AS w FROM items GROUP BY s",
    "sums that overflow, over partitions": "SELECT id, try_sum(a + 9223372036854775800)"
    " OVER (PARTITION BY s) AS x FROM items",
    "percentiles with frequencies": "SELECT s, percentile(a, 0.4, id) AS x,"
    " percentile(a, array(0.1, 0.7), id) FILTER (WHERE id <> 3) AS y,"
    " percentile(DISTINCT a, 0.3, CAST(id AS INT)) AS z,"
    " percentile(id, 0.5, if(a < 0, null, a)) AS u, percentile(a, 0.5, 3) AS v FROM items GROUP BY s",
    "over partitions": "SELECT id, median(a) OVER (PARTITION BY s) AS x, mode(a, true) OVER (PARTITION BY s)"
    " AS y FROM items",
    "over frames": "SELECT id, bit_xor(a) OVER w AS x, collect_list(a) OVER w AS y, percentile_approx(a, 0.4)"
    " OVER w AS z FROM items WINDOW w AS"
    " (PARTITION BY s ORDER BY a, id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING)",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.seeds(3, verify_from=1)
def test_the_answer_is_that_of_spark(spark: SparkSession, name: str, seed: int) -> None:
    text = QUERIES[name]
    flow = hr.sql(text, tables=TABLES, spark=spark)
    check_answer(spark, flow, lambda _: spark.sql(text), TABLES, draw, seed)


OF_ONE = ("stddev", "stddev_pop", "var_samp", "var_pop", "skewness", "kurtosis")
OF_TWO = ("covar_samp", "covar_pop", "corr", "regr_slope", "regr_intercept", "regr_r2", "regr_count")
STATISTICS = (
    *(f"{name}(x)" for name in OF_ONE),
    *(f"{name}(y, x)" for name in (*OF_TWO, "regr_sxx", "regr_sxy", "regr_syy", "regr_avgx", "regr_avgy")),
    "variance(k)",
    "var_pop(DISTINCT x)",
    "corr(x, k) FILTER (WHERE y > 0)",
)
NAN, INF = math.nan, math.inf
POINTS = {
    "nothing": [],
    "only nulls": [Point(1, None, 1.0), Point(1, 1.0, None)],
    "one row": [Point(1, 2.5, 3.0)],
    "equal values": [Point(1, 2.5, 3.0), Point(1, 2.5, 3.0)],
    "one constant": [Point(1, 2.5, 3.0), Point(2, 2.5, 4.0)],
    "the other constant": [Point(1, 2.5, 3.0), Point(2, 3.5, 3.0)],
    "one NaN": [Point(1, NAN, 3.0)],
    "NaN": [Point(1, NAN, 3.0), Point(1, 1.0, 2.0), Point(1, 2.0, 2.5)],
    "infinite": [Point(1, 2.0, INF), Point(1, 1.0, 2.0), Point(1, 2.0, 2.5)],
    **{
        f"random {seed}": [
            Point(choice.randrange(9), choice.choice([None, choice.gauss()]), choice.uniform(-5, 9))
            for choice in [random.Random(seed)]
            for _ in range(12)
        ]
        for seed in range(3)
    },
}


@pytest.mark.parametrize("name", POINTS)
def test_statistics_are_those_of_spark_up_to_its_rounding(spark: SparkSession, name: str) -> None:
    columns = ", ".join(f"{text} AS c{at}" for at, text in enumerate(STATISTICS))
    text = f"SELECT {columns} FROM points"
    engine = hr.Engine(hr.sql(text, tables={"points": Point}, spark=spark))
    passing = [Point(7, 1e300, -1e-300), Point(8, INF, NAN)]
    engine.tick(points=[hr.insert(row) for row in (*passing, *POINTS[name])])
    changes = engine.tick(points=[hr.delete(row) for row in passing])["answer"]
    (found,) = (change.row for change in changes if change.weight > 0)
    rows = spark.createDataFrame([tuple(row) for row in POINTS[name]], "k BIGINT, x DOUBLE, y DOUBLE")
    rows.coalesce(1).createOrReplaceTempView("points")
    (expected,) = spark.sql(text).collect()
    for what, mine, theirs in zip(STATISTICS, found, expected, strict=True):
        assert is_near(mine, theirs), (what, mine, theirs)


def is_near(one: float | None, other: float | None) -> bool:
    if one is None or other is None or math.isnan(one) or math.isnan(other):
        return repr(one) == repr(other)
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.seeds(5, verify_from=1)
def test_a_histogram_of_many_values_has_as_many_bins_and_rows_as_that_of_spark(
    spark: SparkSession, seed: int
) -> None:
    choice = random.Random(seed)
    rows = [Point(choice.randrange(300), choice.gauss(), float(choice.randrange(50))) for _ in range(400)]
    text = "SELECT histogram_numeric(x, 9) AS a, histogram_numeric(y, 20) AS b, histogram_numeric(k, 2) AS c"
    mine, theirs = histograms(spark, f"{text} FROM points", rows)
    for one, other in zip(mine, theirs, strict=True):
        assert len(one) == len(other)
        assert sum(y for _, y in one) == sum(y for _, y in other) == len(rows)
        assert [x for x, _ in one] == sorted(x for x, _ in one)


@pytest.mark.seeds(3, verify_from=1)
def test_a_histogram_is_that_of_spark_where_that_reads_different_values_in_order(
    spark: SparkSession, seed: int
) -> None:
    choice = random.Random(seed)
    rows = [Point(k, choice.uniform(-5, 5), -(2.0 ** (k % 60)) * choice.random()) for k in range(200)]
    # No two gaps are equal, of which Spark takes any.
    rows = [row._replace(k=int(row.x * 2**50)) for row in sorted(rows, key=lambda row: row.x)]
    text = "SELECT histogram_numeric(x, 7) AS a, histogram_numeric(k, 30) AS b FROM points"
    mine, theirs = histograms(spark, text, rows)
    assert mine == theirs


def histograms(spark: SparkSession, text: str, rows: list[Point]) -> tuple[list[Any], list[Any]]:
    """Histograms of rows, those of a flow after deletes, and Spark's."""
    engine = hr.Engine(hr.sql(text, tables={"points": Point}, spark=spark))
    passing = [Point(1000, 1000.0, -1000.0), Point(-1000, -1000.0, 0.5)]
    engine.tick(points=[hr.insert(row) for row in (*rows[::-1], *passing)])
    changes = engine.tick(points=[hr.delete(row) for row in passing])["answer"]
    (found,) = (change.row for change in changes if change.weight > 0)
    given = spark.createDataFrame([tuple(row) for row in rows], "k BIGINT, x DOUBLE, y DOUBLE").coalesce(1)
    given.createOrReplaceTempView("points")
    (expected,) = spark.sql(text).collect()
    return (
        [[tuple(each) for each in histogram] for histogram in found],
        [[tuple(each) for each in histogram] for histogram in expected],
    )


def test_a_negative_frequency_stops_the_tick(spark: SparkSession) -> None:
    flow = hr.sql("SELECT percentile(a, 0.5, id) AS x FROM items", tables=TABLES, spark=spark)
    with pytest.raises(EvaluationError, match="negative: -1"):
        hr.Engine(flow).tick(items=[Item(-1, 1, None)])


def test_functions_in_a_view_are_null_where_they_fail(spark: SparkSession) -> None:
    empty_frame(spark, Item).createOrReplaceTempView("items")
    text = "SELECT try_add(a, 1) AS x, try_cast(s AS INT) AS y, s LIKE '/%' ESCAPE '/' AS z FROM items"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW tried AS {text}")
    flow = hr.sql("SELECT * FROM tried", tables=TABLES, spark=spark)
    (change,) = hr.Engine(flow).tick(items=[Item(1, 2**63 - 1, "%")])["answer"]
    assert change.row == (None, None, True)
