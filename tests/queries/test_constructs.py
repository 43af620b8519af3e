"""Constructs of Spark SQL and functions in Python, one by one: the answer is Spark's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.errors import UnsupportedQuery
from tests.queries.spark_answers import check_answer, empty_frame

F = pytest.importorskip("pyspark.sql.functions")
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Item(NamedTuple):
    id: int
    a: int | None
    s: str | None


class Edge(NamedTuple):
    src: int
    dst: int


class Event(NamedTuple):
    ts: datetime | None
    k: str | None
    v: int | None


TABLES = {"items": Item, "edges": Edge, "events": Event}
START = datetime(2020, 1, 1, tzinfo=UTC)


def draw(choice: random.Random, table: str) -> Any:
    if table == "items":
        return Item(choice.randrange(6), choice.choice([None, 0, 1, 2, 3]), choice.choice([None, *"xyz"]))
    if table == "edges":
        src = choice.randrange(6)
        return Edge(src, src + choice.randrange(1, 4))
    later = timedelta(minutes=choice.randrange(90), seconds=choice.randrange(2))
    return Event(
        choice.choice([None, *[START + later] * 6]), choice.choice([None, *"xy"]), choice.randrange(3)
    )


QUERIES = {
    "pivot": "SELECT * FROM items PIVOT (sum(a) AS m, count(*) AS c FOR s IN ('x' AS u, 'y'))",
    "pivot of several columns": "SELECT * FROM items PIVOT (count(*) FOR (s, a) IN (('x', 1), ('y', 2)))",
    "pivot of lists": "SELECT * FROM items PIVOT (collect_list(a) FOR s IN ('x', NULL))",
    "unpivot": "SELECT * FROM items UNPIVOT (v FOR n IN (id, a))",
    "recursion": "WITH RECURSIVE t(s, d) AS (SELECT src, dst FROM edges UNION ALL SELECT t.s, e.dst FROM t"
    " JOIN edges e ON t.d = e.src) SELECT s, d, count(*) AS n FROM t GROUP BY s, d",
    "recursion of constants": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5)"
    " SELECT n, id FROM t JOIN items ON n = id",
    "recursion to a depth": "WITH RECURSIVE t(s, d, n) AS (SELECT src, dst, 1 FROM edges UNION ALL SELECT"
    " t.s, e.dst, n + 1 FROM t JOIN edges e ON t.d = e.src WHERE n < 3) SELECT DISTINCT s, d, n FROM t",
    "tumbling windows": "SELECT window(ts, '10 minutes') AS w, k, sum(v) AS v FROM events GROUP BY 1, 2",
    "sliding windows": "SELECT window.end AS e, count(*) AS n FROM events"
    " GROUP BY window(ts, '10 minutes', '5 minutes', '2 minutes')",
    "session windows": "SELECT session_window(ts, '10 minutes') AS w, k, sum(v) AS v FROM events"
    " GROUP BY 1, 2",
    "sessions of all": "SELECT session_window.start AS s, session_window.end AS e, count(*) AS n FROM events"
    " GROUP BY session_window(ts, '9 minutes')",
    "joins of a chain from its filtered end": "SELECT one.id, two.dst AS x, last.s FROM items AS one,"
    " edges AS two, edges AS three, items AS last WHERE one.id = two.src AND two.dst = three.src"
    " AND three.dst = last.id AND last.s = 'x'",
    "joins of a star with two filters": "SELECT e.src, one.a, two.s, f.dst FROM edges AS e, edges AS f,"
    " items AS one, items AS two WHERE e.src = one.id AND e.dst = two.id AND e.src = f.src"
    " AND one.s IN ('x', 'y') AND (two.a = 1 OR two.a = 2) AND one.a < two.id",
    "joins of a circle": "SELECT e.src, f.src AS x, i.a FROM edges AS e, edges AS f, items AS i WHERE"
    " e.dst = f.src AND f.dst = i.id AND i.a = e.src AND i.s = 'y'",
    "joins without a condition": "SELECT e.src, i.id, j.s FROM edges AS e, items AS i, items AS j"
    " WHERE i.s = 'x' AND j.id = i.id",
    "joins with rows that others test": "SELECT e.src, i.s FROM edges AS e, items AS i, edges AS f WHERE"
    " e.src = i.id AND f.src = i.id AND i.s = 'x' AND EXISTS (SELECT 1 FROM edges AS o WHERE o.src = e.src"
    " AND o.dst <> e.dst) AND NOT EXISTS (SELECT 1 FROM items AS o WHERE o.id = e.dst AND o.a > e.src)",
    "joins on columns and what may be null": "SELECT i.id, j.id AS x, e.dst FROM items AS i, items AS j,"
    " edges AS e WHERE i.a = j.a AND i.s <=> j.s AND j.id = e.src AND e.dst = 3",
    "subqueries": "SELECT id, (SELECT sum(a) FROM items) AS s, (SELECT count(a) FROM items) AS c FROM items",
    "distinct values by a function": "SELECT upper(s) AS u, count(DISTINCT a) AS x, count(DISTINCT id) AS y,"
    " count_if(a > 1) AS z, sum(try_add(a, id)) AS v FROM items GROUP BY u",
    "distinct values in a subquery": "SELECT id, (SELECT max(x + y) FROM (SELECT upper(s) AS u,"
    " count(DISTINCT a) AS x, count(DISTINCT id) AS y FROM items GROUP BY u)) AS m FROM items",
    "a subquery with distinct values, twice": "SELECT id, m FROM (SELECT id, (SELECT max(x + y) FROM (SELECT"
    " count(DISTINCT a) AS x, count(DISTINCT id) AS y FROM items GROUP BY s)) AS m FROM items) WHERE m > 1",
    "functions of SQL": "SELECT id, tried(a) AS x, escaped(s) AS y FROM items",
    "constants of one text": "SELECT id, array('a,b') AS x, array('a', 'b') AS y,"
    " array(double('NaN')) AS z, array(double('NaN'), 1) AS u, named_struct('größe', 1) AS v FROM items",
    "structs": "SELECT struct(id, a) AS x, named_struct('p', s, 'q', id).q AS y FROM items",
    "groups by structs": "SELECT struct(s, a) AS x, count(*) AS n FROM items GROUP BY 1",
    "arrays": "SELECT id, array(id, a) AS x, array(a, id)[1] AS y FROM items",
    "groups by functions of lists": "SELECT transform(array(id, a), x -> x + 1) AS x, count(*) AS n"
    " FROM items GROUP BY transform(array(id, a), x -> x + 1)",
    "conditions on elements": "SELECT id, s FROM items WHERE exists(array(a, id), x -> x > 2)",
    "joins by elements": "SELECT id, src FROM items JOIN edges ON array_contains(array(a, id), src)",
    "rows of filtered lists": "SELECT id, explode(filter(array(a, id), x -> x > id - 1)) AS e FROM items",
    "constants": "SELECT id, array('a,b', 'c') AS x, named_struct('a', 1, 'b', array(1.5, 2)) AS y, null AS z"
    " FROM items",
    "stack": "SELECT s, stack(2, id, a, id) FROM items",
    "stack of types that differ in nulls": "SELECT id, x, y FROM items LATERAL VIEW stack(3, array('b'), 1,"
    " slice(array('b'), 1, 0), 2, if(a > 1, array('b'), slice(array('c'), 1, 0))) AS x, y",
    "range": "SELECT r.id, a, s FROM range(1, 8, 2) r LEFT JOIN items i ON r.id = i.id",
    "ranges, backwards and empty": "SELECT id FROM range(9, -2, -4) UNION ALL SELECT id FROM range(3, 3)"
    " UNION ALL SELECT a FROM items",
    "counts of a range": "SELECT count(*) AS n, sum(id) AS s FROM range(10000) WHERE id % 3 = 1",
    "texts like any, like all": "SELECT s ILIKE ANY ('X%', '%y', NULL) AS a, s ILIKE ALL ('x%', 'X') AS b,"
    " s NOT ILIKE ANY ('x', '_', 'y%') AS c, s NOT ILIKE ALL ('x_', 'Y') AS d, s LIKE ANY ('x', 'y') AS e,"
    " s LIKE ALL ('_', '%x%', NULL) AS f, s NOT LIKE ALL ('x%', '_y') AS g FROM items",
    "constants of bytes": "SELECT id, X'00FF' AS x, X'' AS y, coalesce(encode(s, 'utf-8'), X'0A') AS z,"
    " concat(encode(s, 'utf-8'), X'41') = X'7841' AS u FROM items WHERE encode(s, 'utf-8') IN (X'78', X'79')",
    "masks": "SELECT id, mask(concat(s, 'A-1é')) AS x, mask(s, 'Q', 'q', 'd', 'o') AS y,"
    " mask('aB1-é😀𐐀𝟏ǅ٣ ß', NULL, 'y', NULL, 'o') AS z FROM items",
    "explode": "SELECT id, explode(array(a, id)) AS e FROM items",
    "posexplode": "SELECT posexplode(array(a, id)) FROM items",
    "inline": "SELECT id, t.* FROM items LATERAL VIEW OUTER"
    " inline(if(a > 1, array(struct(id AS x, a AS y)), array())) t",
    "lateral": "SELECT i.id, m FROM items i, LATERAL (SELECT max(dst) AS m FROM edges WHERE src = i.id)",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.seeds(3, verify_from=1)
def test_the_answer_of_a_query_is_that_of_spark(spark: SparkSession, name: str, seed: int) -> None:
    text = QUERIES[name]
    if name == "functions of SQL":
        body = "try_add(x, 9223372036854775806)"
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION tried(x BIGINT) RETURNS BIGINT RETURN {body}")
        body = "replace(s, 'x', '%') LIKE '!%' ESCAPE '!'"
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION escaped(s STRING) RETURNS BOOLEAN RETURN {body}")
    flow = hr.sql(text, tables=TABLES, spark=spark)
    check_answer(spark, flow, lambda _: spark.sql(text), TABLES, draw, seed)


def test_columns_of_one_name_are_numbered(spark: SparkSession) -> None:
    text = "SELECT id, a, id, a AS id_2, count(*) OVER (PARTITION BY id), s AS a FROM items"
    names = ["id", "a", "id_3", "id_2", "count", "a_2"]
    flow = hr.sql(text.replace("id)", "id) AS count"), tables=TABLES, spark=spark)
    assert [change.row._fields for change in hr.Engine(flow).tick(items=[Item(1, 2, "x")])["answer"]] == [
        tuple(names)
    ]
    check_answer(spark, flow, lambda _: spark.sql(text).toDF(*names), TABLES, draw, 1)


def test_a_range_of_too_many_numbers_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UnsupportedQuery, match="makes 2,000,000 rows itself"):
        hr.sql("SELECT count(*) AS n FROM range(2000000)", spark=spark)


# -- functions in Python -------------------------------------------------------------------------


def plus(x: int | None) -> int | None:
    return None if x is None else x + 1


def later(ts: datetime | None) -> datetime | None:
    return None if ts is None else ts + timedelta(hours=1)


def series_plus(x: pd.Series) -> pd.Series:
    return x.fillna(0).astype("int64") + 1


def in_batches(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in batches:
        yield batch * 2


def array_plus(x: pa.Array) -> pa.Array:
    return pc.add(x, 5)


def mean(x: pd.Series) -> float:
    return x.mean()


def sized(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(a=len(rows))


def counted(key: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame([[key[0], len(rows)]])


def first_of(rows: pa.Table) -> pa.Table:
    return rows.sort_by("id").slice(0, 1).select(["id"])


def widened(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        large = batch[batch["id"] > 1]
        yield pd.DataFrame({"s": large["s"], "n": large["id"] + 1})
        yield pd.DataFrame({"n": batch["id"], "s": batch["s"].fillna("none")})


def shifted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["ts", "v"])
        yield batch.filter(pc.equal(batch["k"], "x")).select(["ts", "v"])


def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        assert str(batch.schema.field("ts").type.tz) == "UTC"
        yield batch.select(["v", "ts"]).rename_columns(["ts", "v"])


def of_large(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        large = batch[batch["id"] > 2]
        yield large if len(large) else pd.DataFrame()


def entries(maps: pd.Series) -> pd.Series:
    return maps.map(lambda m: None if m is None else {**m, "more": len(m)})


def first_entries(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        yield pd.DataFrame({"m": batch["m"], "k": batch["m"].map(lambda m: next(iter(m)))})


def arrow(function: Callable[..., Any], type: str) -> Any:
    return F.udf(function, type, useArrow=True)


def in_two_filters(items: DataFrame, udf: Any) -> DataFrame:
    one, two = (items.filter(udf("id") == value).select("id", "s") for value in (1, 2))
    return one.unionAll(two)


def mapped() -> Any:
    return F.create_map(F.coalesce("s", F.lit("n")), "id")


FRAMES: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "udf": lambda i, e: i.filter(arrow(plus, "bigint")("id") > 2).select(arrow(plus, "bigint")("a")),
    "udf in two filters": lambda i, e: in_two_filters(i, arrow(plus, "bigint")),
    "udf of an udf": lambda i, e: i.select("s", arrow(plus, "bigint")(arrow(plus, "bigint")("a"))),
    "udf of times": lambda i, e: e.select("k", arrow(later, "timestamp")("ts")),
    "pickled udf": lambda i, e: i.select(F.udf(plus, "bigint", useArrow=False)("a")),
    "pandas": lambda i, e: i.select(F.pandas_udf(series_plus, "bigint")("a"), arrow(plus, "bigint")("id")),
    "pandas in batches": lambda i, e: i.select(F.pandas_udf(in_batches, "bigint")("id")),
    "arrow": lambda i, e: i.select(F.arrow_udf(array_plus, "bigint")("a")),
    "aggregate": lambda i, e: i.groupBy("s").agg(F.pandas_udf(mean, "double")("a").alias("m")),
    "apply": lambda i, e: i.groupBy("s").applyInPandas(sized, "id bigint, a bigint, s string"),
    "apply with keys": lambda i, e: i.groupBy("s").applyInPandas(counted, "s string, n bigint"),
    "apply of arrow": lambda i, e: i.groupBy("s").applyInArrow(first_of, "id bigint"),
    "map in batches": lambda i, e: i.filter("id < 5").mapInPandas(widened, "n bigint, s string"),
    "map in batches of arrow": lambda i, e: e.mapInArrow(shifted, "ts timestamp, v bigint").filter("v > 0"),
    "map in batches, twice": lambda i, e: i.mapInPandas(widened, "n bigint, s string").groupBy("s").sum("n"),
    "map in batches of arrow, by position": lambda i, e: e.mapInArrow(renamed, "a bigint, b timestamp"),
    "map in batches, without columns": lambda i, e: i.mapInPandas(of_large, "id bigint, a bigint, s string"),
    "maps": lambda i, e: i.select(
        F.pandas_udf(entries, "map<string, bigint>")(F.create_map(F.coalesce("s", F.lit("n")), "id")).alias(
            "m"
        )
    ).select(F.col("m")["more"], F.array_sort(F.map_keys("m"))),
    "map in batches, of maps": lambda i, e: (
        i.select(F.create_map(F.coalesce("s", F.lit("n")), "id").alias("m"))
        .mapInPandas(first_entries, "m map<string, bigint>, k string")
        .select("k", F.map_values("m"))
    ),
    "pivot": lambda i, e: i.groupBy("s").pivot("a", [1, 2]).sum("id"),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.seeds(2, verify_from=1)
def test_the_answer_of_a_dataframe_is_that_of_spark(spark: SparkSession, name: str, seed: int) -> None:
    frames = {table: empty_frame(spark, TABLES[table]) for table in ("items", "events")}
    make = FRAMES[name]
    flow = hr.from_dataframe(make(frames["items"], frames["events"]), tables=frames)
    check_answer(spark, flow, lambda given: make(given["items"], given["events"]), TABLES, draw, seed)


def test_a_query_calls_registered_functions(spark: SparkSession) -> None:
    spark.udf.register("plus_one", arrow(plus, "bigint"))
    flow = hr.sql("SELECT plus_one(a) AS x FROM items", tables=TABLES, spark=spark)
    assert [change.row.x for change in hr.Engine(flow).tick(items=[Item(1, 2, None)])["answer"]] == [3]


def test_a_function_of_batches_that_waits_for_others_is_refused(spark: SparkSession) -> None:
    frame = empty_frame(spark, Item)
    together = frame.mapInPandas(widened, "n bigint, s string", barrier=True)
    with pytest.raises(UnsupportedQuery) as error:
        hr.from_dataframe(together, tables={"items": frame})
    assert error.value.what == "function 'widened' is called in barrier mode"
    assert error.value.fix == "leave out barrier=True"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT * FROM items TABLESAMPLE (50 PERCENT)", "no seed"),
        ("SELECT changes(a) AS x FROM items", "not deterministic"),
    ],
)
def test_what_cannot_be_taken_back_is_refused(spark: SparkSession, text: str, what: str) -> None:
    spark.udf.register("changes", F.udf(plus, "bigint", useArrow=True).asNondeterministic())
    with pytest.raises(UnsupportedQuery, match=what):
        hr.sql(text, tables=TABLES, spark=spark)
