"""Sketches of Spark SQL: the estimate is Spark's, of every type of values, also after rows are taken back."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import pytest

import headrace as hr
from headrace.expr.hll_sketch import HllSketch, coupon_of, hll_sketch, rounded_estimate, union_of_bytes
from tests.queries.spark_answers import check_answer, frame_of

pytest.importorskip("pyspark.sql.functions")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Value(NamedTuple):
    k: int
    tiny: hr.Int8 | None
    short: hr.Int16 | None
    small: hr.Int32 | None
    whole: int | None
    real: hr.Float32 | None
    number: float | None
    price: Annotated[Decimal, hr.DecimalType(12, 2)] | None
    long: Annotated[Decimal, hr.DecimalType(38, 6)] | None
    text: str | None
    data: bytes | None
    yes: bool | None
    day: date | None
    at: datetime | None
    local: hr.TimestampNtz | None
    lasting: timedelta | None
    several: tuple[int | None, ...] | None


class Item(NamedTuple):
    id: int


TABLES = {"data": Value}
VALUES = Value._fields[1:]
_AT = datetime(2024, 2, 28, 12, 30, 1, 77)
_ODD = [0.0, -0.0, float("nan"), -float("nan"), float("inf"), -float("inf"), 0.5, -2.25, 1e30]


def value_of(number: int) -> Value:
    """Return a row with another value in each column for each number that the column's type has."""
    real = _ODD[number] if number < len(_ODD) else float(number)
    return Value(
        number % 3,
        number % 256 - 128,
        number % 65536 - 32768,
        -number,
        number * 2**40,
        real,
        real if number < 9 else number / 3,
        Decimal(number) / 100,
        Decimal(number * 10**20 + number % 11).scaleb(-6),
        f"{number} äß\N{PILE OF POO}" * (number % 5),
        number.to_bytes(9, "little")[: number % 10],
        number % 2 == 0,
        (_AT - timedelta(days=number * 7)).date(),
        (_AT + timedelta(seconds=number)).replace(tzinfo=UTC),
        _AT - timedelta(hours=number),
        timedelta(microseconds=number),
        (number, None, number % 7),
    )


def draw(choice: random.Random, table: str) -> Any:
    row = value_of(choice.randrange(40))
    return row._replace(**{name: None for name in VALUES if choice.random() < 0.2})


ESTIMATES = ", ".join(f"approx_count_distinct({name}) AS {name}" for name in VALUES)
QUERIES = {
    "of every type": f"SELECT k, {ESTIMATES} FROM data GROUP BY k",
    "of all rows": f"SELECT {ESTIMATES} FROM data",
    "of no rows": f"SELECT {ESTIMATES} FROM data WHERE k > 9",
    "as exact as asked": "SELECT approx_count_distinct(whole, 0.3) AS a,"
    " approx_count_distinct(text, 0.39) AS b, approx_count_distinct(whole, 0.01) FILTER (WHERE k > 0) AS c,"
    " count(DISTINCT whole) AS d, max(text) AS e,"
    " approx_count_distinct(struct(k, text)) AS f, approx_count_distinct(DISTINCT k) AS g FROM data",
    "over rows": "SELECT k, approx_count_distinct(small, 0.3) OVER (PARTITION BY k) AS a,"
    " approx_count_distinct(day) OVER (ORDER BY whole ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS b"
    " FROM data",
    "sketches": "SELECT k, hll_sketch_estimate(hll_sketch_agg(small)) AS a,"
    " hll_sketch_estimate(hll_sketch_agg(whole, 9) FILTER (WHERE yes)) AS b,"
    " hll_sketch_estimate(hll_sketch_agg(text, 8)) AS c, hll_sketch_estimate(hll_sketch_agg(data)) AS d,"
    " hll_sketch_estimate(hll_union(hll_sketch_agg(text), hll_sketch_agg(whole))) AS e,"
    " hll_sketch_estimate(hll_union(hll_sketch_agg(text), hll_sketch_agg(data, 9), true)) AS f"
    " FROM data GROUP BY k",
    "sketches of no rows": "SELECT hll_sketch_estimate(hll_sketch_agg(small)) AS a,"
    " hll_sketch_estimate(hll_union_agg(data)) AS b FROM data WHERE k > 9",
    "unions of sketches": "SELECT hll_sketch_estimate(hll_union_agg(s)) AS a,"
    " hll_sketch_estimate(hll_union_agg(t, true)) AS b FROM"
    " (SELECT k, hll_sketch_agg(text) AS s, hll_sketch_agg(text, 10) AS t FROM data GROUP BY k)",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.seeds(2, verify_from=1)
def test_the_estimate_is_that_of_spark(spark: SparkSession, name: str, seed: int) -> None:
    text = QUERIES[name]
    flow = hr.sql(text, tables=TABLES, spark=spark)
    check_answer(spark, flow, lambda _: spark.sql(text), TABLES, draw, seed)


@pytest.mark.parametrize("columnar", ["never", "always"])
def test_the_estimate_of_many_values_is_that_of_spark(spark: SparkSession, columnar: Any) -> None:
    columns = [f"approx_count_distinct({name}, {rsd}) AS {name}_{at}" for name in VALUES for at, rsd in _RSDS]
    text = f"SELECT k, {', '.join(columns)} FROM data GROUP BY k"
    rows = [value_of(number) for number in range(6000)]
    engine = hr.Engine(hr.sql(text, tables=TABLES, spark=spark), columnar=columnar)
    engine.tick(data=[hr.insert(row) for row in (*rows, *rows[:99])])
    changes = engine.tick(data=[hr.delete(row) for row in rows[4000:]])["answer"]
    frame_of(spark, Value, rows[:4000]).createOrReplaceTempView("data")
    expected = sorted(tuple(row) for row in spark.sql(text).collect())
    assert sorted(tuple(change.row) for change in changes if change.weight > 0) == expected


_RSDS = tuple(enumerate((0.3, 0.05)))


@pytest.mark.parametrize("lg_k", [4, 8, 12])
def test_the_estimate_of_a_sketch_with_registers_is_that_of_a_union_of_sparks(
    spark: SparkSession, lg_k: int
) -> None:
    text = "SELECT hll_sketch_estimate(hll_sketch_agg(id, {0})) AS n, hll_sketch_agg(id, {0}) AS s FROM items"
    flow = hr.sql(text.format(lg_k), tables={"items": Item}, spark=spark)
    engine = hr.Engine(flow, columnar="always")
    rows = [Item(number * number) for number in range(9000)]
    engine.tick(items=[hr.insert(row) for row in rows])
    changes = engine.tick(items=[hr.delete(row) for row in rows[5000:]])["answer"]
    (answer,) = (change.row for change in changes if change.weight > 0)
    spark.createDataFrame(rows[:5000], "id BIGINT").repartition(2).createOrReplaceTempView("items")
    # Of two sketches with registers, the union has an estimate that does not depend on the order of rows.
    spark.sql(f"SELECT hll_sketch_agg(id, {lg_k}) AS s FROM items GROUP BY id % 2").createOrReplaceTempView(
        "parts"
    )
    both = f"hll_sketch_estimate(hll_union_agg(s)), (SELECT hll_sketch_agg(id, {lg_k}) FROM items)"
    ((expected, ordered),) = spark.sql(f"SELECT {both} FROM parts").collect()
    assert answer.n == expected
    # Each reads what the other made.
    frame = spark.createDataFrame([(bytearray(answer.s), ordered)], "mine BINARY, its BINARY")
    estimates = "hll_sketch_estimate(mine)", "hll_sketch_estimate(its)", "hll_union(mine, its)"
    ((mine, its, both),) = frame.selectExpr(*estimates).collect()
    assert (mine, its) == (answer.n, rounded_estimate(bytes(ordered)))
    assert rounded_estimate(bytes(both)) == answer.n
    assert union_of_bytes(answer.s, bytes(ordered), False) == answer.s


@pytest.mark.parametrize("kind", ["HLL_4", "HLL_6", "HLL_8"])
def test_sketches_of_every_kind_are_read(spark: SparkSession, kind: str) -> None:
    package: Any = spark._jvm.org.apache.datasketches.hll  # type: ignore[union-attr]
    for lg_k, count in ((4, 7), (4, 8), (5, 3000), (9, 48), (9, 49), (9, 1500)):
        sketch = package.HllSketch(lg_k, package.TgtHllType.valueOf(kind))
        coupons = set[int]()
        for value in range(count):
            sketch.update(value)
            coupons.add(coupon_of(value) or 0)
        for data in (sketch.toCompactByteArray(), sketch.toUpdatableByteArray()):
            read = hll_sketch(bytes(data))
            assert read.estimate() == pytest.approx(sketch.getEstimate(), rel=1e-12)
            made = HllSketch(lg_k, read.coupons, read.has_registers).to_bytes()
            assert made == HllSketch(lg_k, coupons).to_bytes()
