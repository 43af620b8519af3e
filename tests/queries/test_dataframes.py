"""DataFrames as flows: fed with rows that come and go, the answer is Spark's over those that are there."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import UnsupportedQuery

F = pytest.importorskip("pyspark.sql.functions")
from pyspark.sql import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession, WindowSpec

pytestmark = pytest.mark.spark

ORDERS = [(n, n % 4, "abc"[n % 3] if n % 5 else None, float(n % 7), n % 6) for n in range(24)]
SHOPS = [(0, "north"), (1, "south"), (2, None), (2, "twice"), (9, "empty")]


def by_shop() -> WindowSpec:
    return Window.partitionBy("shop").orderBy(F.col("price").desc(), "id")


FRAMES: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "join": lambda o, s: o.join(s, "shop").groupBy("name").agg(F.sum("price").alias("total")),
    "left join": lambda o, s: o.join(s, "shop", "left").select("id", "name"),
    "itself": lambda o, s: o.alias("a").join(o.alias("b"), F.col("a.kind") == F.col("b.kind")).select("a.id"),
    "anti": lambda o, s: s.join(o, "shop", "left_anti"),
    "groups": lambda o, s: o.groupBy("kind").agg(F.count("*").alias("n"), F.avg("price"), F.max("id")),
    "JSON": lambda o, s: o.select(
        "id",
        F.from_json(F.to_json(F.struct("id", "kind")), "kind STRING", {"mode": "FAILFAST"}).alias("read"),
        F.json_tuple(F.to_json(F.struct("shop", "price")), "price", "shop").alias("price", "shop"),
    ),
    "conditions": lambda o, s: o.groupBy("shop").agg(
        F.count_if(F.col("price") > 2), F.bool_and(F.col("count") > 0), F.bool_or(F.col("count") > 4)
    ),
    "best": lambda o, s: o.groupBy("shop").agg(F.max_by("id", F.col("price") * 100 - F.col("id"))),
    "lists": lambda o, s: o.groupBy("shop").agg(F.array_size(F.collect_list("kind")).alias("n")),
    "cube": lambda o, s: o.cube("shop", "kind").count(),
    "window": lambda o, s: o.withColumn("n", F.row_number().over(by_shop())).filter("n <= 2").drop("n"),
    "running": lambda o, s: o.withColumn("s", F.sum("price").over(by_shop().rowsBetween(-1, 0))),
    "lag": lambda o, s: o.select("id", (F.col("price") - F.lag("price").over(by_shop())).alias("step")),
    "duplicates": lambda o, s: o.select("shop", "kind").dropDuplicates(["shop", "kind"]),
    "one of each": lambda o, s: o.dropDuplicates(["id"]),
    "distinct": lambda o, s: o.select("kind").distinct(),
    "union": lambda o, s: o.select("shop").unionByName(s.select("shop")),
    "when": lambda o, s: o.select("id", F.when(F.col("price") > 3, "dear").otherwise("cheap").alias("x")),
    "fill": lambda o, s: o.fillna({"kind": "none"}).filter(F.col("kind").isin("none", "a")),
    "limit": lambda o, s: o.orderBy(F.col("price").desc(), "id").limit(5),
    "subtract": lambda o, s: o.select("shop").subtract(s.select("shop")),
    "intersect": lambda o, s: o.select("shop").intersect(s.select("shop")),
    "having": lambda o, s: o.groupBy("shop").agg(F.countDistinct("kind").alias("n")).filter("n > 1"),
    "cross": lambda o, s: o.filter("id < 3").crossJoin(s).select("id", "name"),
}


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ORDERS, "id long, shop int, kind string, price double, count int")


@pytest.fixture(scope="module")
def shops(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(SHOPS, "shop int, name string")


@pytest.mark.parametrize("name", FRAMES)
def test_fed_in_ticks_the_answer_is_that_of_spark(orders: DataFrame, shops: DataFrame, name: str) -> None:
    frame = FRAMES[name](orders, shops)
    engine = hr.Engine(hr.from_dataframe(frame, tables={"orders": orders, "shops": shops}))
    choice = random.Random(name)
    changes: list[tuple[str, tuple[Any, ...], int]] = []
    for table, rows in (("orders", ORDERS), ("shops", SHOPS)):
        changes += [(table, row, 1) for row in rows]
    # Some rows come that go again.
    for row in choice.sample(ORDERS, 8):
        other = (row[0], *row[1:4], 100)
        at = choice.randrange(len(changes))
        changes.insert(at, ("orders", other, 1))
        changes.insert(choice.randrange(at + 1, len(changes) + 1), ("orders", other, -1))
    answer = Counter[Any]()
    while changes:
        tick, changes = changes[:7], changes[7:]
        given = {
            table: [hr.Change(row, weight) for at, row, weight in tick if at == table]
            for table in ("orders", "shops")
        }
        for *row, weight in engine.tick(**given)["answer"].raw:
            answer[tuple(row)] += weight
    assert +answer == Counter(map(tuple, frame.collect()))


def test_what_has_no_form_is_refused_by_name(orders: DataFrame) -> None:
    sample = orders.sample(0.5)
    with pytest.raises(UnsupportedQuery, match="no seed in the text"):
        hr.from_dataframe(sample, tables={"orders": orders})
    with pytest.raises(UnsupportedQuery, match="uses Shuffle"):
        hr.from_dataframe(orders.select(F.shuffle(F.array("shop"))), tables={"orders": orders})


UNREAD = {
    "select": lambda t, u: t.select("id"),
    "filter": lambda t, u: t.filter("id > 0").select("id", "kind"),
    "join": lambda t, u: t.join(u, "id").select("id", t.kind),
    "explode": lambda t, u: t.select("kind", F.explode("ids").alias("one")),
    "union": lambda t, u: t.unionAll(u).select("id"),
    "aggregate": lambda t, u: t.groupBy("kind").agg(F.sum("id").alias("sum")),
    "distinct": lambda t, u: t.select("id", "kind").distinct(),
    "window": lambda t, u: t.select("id", F.row_number().over(Window.orderBy("id", "kind")).alias("n")),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_column_of_a_type_that_flows_have_not_is_left_out_where_it_is_not_read(
    spark: SparkSession, name: str
) -> None:
    rows = [(1, "a", [1, 2]), (2, "b", []), (2, "b", [3]), (0, None, [4])]
    plain = spark.createDataFrame(rows, "id int, kind string, ids array<int>")
    typed = plain.selectExpr("INTERVAL 3 MONTHS AS months", "id", "parse_json('{}') AS v", "kind", "ids")
    typed.write.mode("overwrite").saveAsTable("typed_rows")
    try:
        table, other = (spark.read.table("typed_rows").alias(each) for each in "tu")
        frame = UNREAD[name](table, other)
        flow = hr.from_dataframe(frame, tables={"t": table})
        answer = hr.Engine(flow).tick(t=rows)["answer"]
        found = Counter(tuple(change.row) for change in answer for _ in range(change.weight))
        assert found == Counter(map(tuple, frame.collect()))
    finally:
        spark.sql("DROP TABLE typed_rows")


READ = {
    "all": lambda t: t,
    "the column": lambda t: t.select("months"),
    "computed": lambda t: t.select((F.col("months") * 2).alias("x"), "id"),
    "distinct": lambda t: t.distinct().select("id"),
    "subtract": lambda t: t.exceptAll(t.filter("id > 0")).select("id"),
    "grouped": lambda t: t.groupBy("months").count(),
}


@pytest.mark.parametrize("name", READ)
def test_a_column_of_a_type_that_flows_have_not_is_refused_where_it_is_read(
    spark: SparkSession, name: str
) -> None:
    frame = spark.createDataFrame([(1,)], "id int").selectExpr("INTERVAL 3 MONTHS AS months", "id")
    frame.write.mode("overwrite").saveAsTable("typed_rows")
    try:
        table = spark.read.table("typed_rows")
        with pytest.raises(UnsupportedQuery, match=r"type interval month|MultiplyYMInterval"):
            hr.from_dataframe(READ[name](table), tables={"t": table})
    finally:
        spark.sql("DROP TABLE typed_rows")


def test_a_computed_input_is_refused(orders: DataFrame) -> None:
    some = orders.filter("id > 3")
    with pytest.raises(UnsupportedQuery, match="input 'orders' is computed: Filter"):
        hr.from_dataframe(some.groupBy("kind").count(), tables={"orders": some})


def test_what_is_no_input_is_named(orders: DataFrame, shops: DataFrame) -> None:
    with pytest.raises(UnsupportedQuery, match="none of its inputs"):
        hr.from_dataframe(orders.join(shops, "shop"), tables={"orders": orders})
