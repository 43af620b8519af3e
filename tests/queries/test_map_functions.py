"""Functions of maps in their Spark spelling: a query's answer is Spark's own, on random rows with nulls."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.expr.annotations import Int32
from penstock.expr.types import DecimalType
from tests.queries.spark_answers import check_answer, create_view, equal, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Pair(NamedTuple):
    a: Int32
    b: str | None


class V(NamedTuple):
    id: int
    i: Int32 | None
    s: str | None
    x: float | None
    day: date | None
    m: dict[str, Int32 | None] | None
    k: dict[str, Int32]
    o: dict[str, int | None] | None
    f: dict[float, float | None] | None
    d: dict[date, Annotated[Decimal, DecimalType(5, 2)]] | None
    mm: dict[Int32, dict[str, int] | None] | None
    ms: list[dict[str, Int32] | None] | None
    ks: list[str]
    pairs: list[Pair]
    pns: list[Pair | None] | None


def rows(seed: int) -> list[V]:
    choice = random.Random(seed)

    def perhaps(draw: Callable[[], Any]) -> Any:
        return draw() if choice.random() < 0.8 else None

    def number() -> int:
        return choice.choice([0, 1, 2, -1, 3])

    def real() -> float:
        return choice.choice([0.0, 1.5, math.nan, -2.0])

    def text() -> str:
        return choice.choice(["", "a", "b", "c", "a:1", "é"])

    def day() -> date:
        return date(2024, 1, choice.randrange(28, 32))

    def mapping(key: Callable[[], Any], value: Callable[[], Any]) -> dict[Any, Any]:
        return {key(): value() for _ in range(choice.randrange(4))}

    def numbers() -> dict[str, int]:
        return mapping(text, number)

    def pairs(pair: Callable[[], Any]) -> list[Any]:
        # Keys that differ, so that a map can be made of them.
        return [pair() and Pair(at, perhaps(text)) for at in range(choice.randrange(3))]

    return [
        V(
            id,
            perhaps(number),
            perhaps(text),
            perhaps(real),
            perhaps(day),
            perhaps(lambda: mapping(text, lambda: perhaps(number))),
            numbers(),
            perhaps(lambda: mapping(text, lambda: perhaps(number))),
            perhaps(lambda: mapping(real, lambda: perhaps(real))),
            perhaps(lambda: mapping(day, lambda: Decimal(number()) / 4)),
            perhaps(lambda: mapping(number, lambda: perhaps(numbers))),
            perhaps(lambda: [perhaps(numbers) for _ in range(choice.randrange(3))]),
            list(numbers()),
            pairs(lambda: True),
            perhaps(lambda: pairs(lambda: perhaps(lambda: True))),
        )
        for id in range(60)
    ]


EXPRESSIONS = {
    "parts": [
        "m['a']",
        "m[s]",
        "m.a",
        "k['a']",
        "f[x]",
        "f[-0.0D]",
        "f[double('nan')]",
        "d[day]",
        "mm[i]['a']",
        "mm[id]",
        "element_at(m, s)",
        "element_at(k, 'b')",
        "try_element_at(m, s)",
        "element_at(f, i)",
        "try_element_at(ms, 1)['a']",
        "map('a', i, 'b', id)[s]",
        "map_keys(m)",
        "map_keys(f)",
        "map_values(m)",
        "map_values(k)",
        "map_values(mm)",
        "map_entries(m)",
        "map_entries(d)",
        "get(map_entries(m), 0).value",
        "map_contains_key(m, s)",
        "map_contains_key(f, x)",
        "map_contains_key(map('a', 1), s)",
        "map_contains_key(d, date'2024-01-29')",
        "size(m)",
        "cardinality(k)",
        "size(map())",
        "m IS NULL",
        "m IS NOT NULL",
    ],
    "made of others": [
        "map('a', i)",
        "map(id, s, id + 1, 'x')",
        "map(coalesce(x, 0), x)",
        "map('b', 1, 'a', id)",
        "map('b', 1, 'a', 2.5)",
        "map(id, m)",
        "map(1, 'a', 2, null)",
        "map(struct(id, s), array(x))",
        "map(array(x), 1)",
        "map(-0.0D, id, 1, -0.0D)",
        "map(1, map('a', array(date'2024-01-01')))",
        "map_from_arrays(ks, transform(ks, e -> length(e)))",
        "map_from_arrays(map_keys(m), map_values(m))",
        "map_from_arrays(array(id, -1), array(s, 'x'))",
        "map_from_entries(pairs)",
        "map_from_entries(pns)",
        "map_from_entries(map_entries(m))",
        "map_from_entries(array(struct(id, s)))",
        "map_concat(m, map('z', i))",
        "map_concat(map('y', 1), k, map('z', 2L))",
        "map_concat(map(id, m), map(-1, k))",
        "map_concat(f, map(7, 1))",
        "str_to_map(s)",
        "str_to_map(s || ',p:2,q')",
        "str_to_map('a=1;b=2;' || id, ';', '=')",
        "str_to_map('x:1;y.2', '[;|]', '[:.]')",
        "str_to_map('a:1', ',', s)",
        "coalesce(m, map('q', 9))",
        "if(id % 2 = 0, m, k)",
        "CASE WHEN id > 9 THEN m ELSE map() END",
        "array(m, k)",
        "struct(m, id)",
        "struct(m, id).m['a']",
        "transform(ms, e -> e['a'])",
        "filter(ms, e -> map_contains_key(e, 'a'))",
        "transform(ks, e -> map(e, id))",
        "aggregate(pairs, map(-1, 'x'), (t, e) -> map_concat(t, map(e.a, e.b)))",
        "aggregate(map_entries(k), 0, (t, e) -> t + e.value)",
        "concat(ms, array(k))",
        "flatten(array(ms, array(k)))",
        "slice(ms, 1, 1)",
        "array_compact(ms)",
        "array_repeat(m, 2)",
        "array_sort(map_keys(m))",
    ],
    "casts": [
        "cast(m AS MAP<STRING, BIGINT>)",
        "cast(k AS MAP<STRING, STRING>)",
        "cast(d AS MAP<STRING, DOUBLE>)",
        "cast(mm AS MAP<BIGINT, MAP<STRING, STRING>>)",
        "cast(f AS MAP<STRING, STRING>)",
        "cast(ms AS ARRAY<MAP<STRING, DOUBLE>>)",
        "cast(null AS MAP<STRING, INT>)",
        "cast(map() AS MAP<STRING, INT>)",
        "cast(map_filter(f, (k, v) -> k > 0 AND v = 1.5) AS MAP<STRING, DECIMAL(10, 2)>)",
    ],
    "functions of entries": [
        "transform_keys(m, (k, v) -> k || '!')",
        "transform_keys(k, (k, v) -> struct(k, v, id))",
        "transform_keys(f, (k, v) -> k + 1)",
        "transform_values(m, (k, v) -> v + i)",
        "transform_values(m, (k, v) -> k || cast(v AS STRING))",
        "transform_values(mm, (k, v) -> transform_values(v, (k2, v2) -> v2 * k))",
        "transform_values(mm, (k, v) -> size(v))",
        "map_filter(m, (k, v) -> v > 0)",
        "map_filter(m, (k, v) -> k = s)",
        "map_filter(f, (k, v) -> k = v)",
        "map_filter(mm, (k, v) -> exists(map_keys(v), e -> e = s))",
        "map_zip_with(m, o, (k, a, b) -> coalesce(a, 0) + coalesce(b, 0))",
        "map_zip_with(m, k, (k, a, b) -> struct(k, a, b))",
        "map_zip_with(f, map(0, 'a', 7, s), (k, a, b) -> a > k OR b = s)",
        "map_zip_with(mm, mm, (k, a, b) -> a['a'] + b['b'])",
    ],
}


@pytest.mark.parametrize("group", EXPRESSIONS)
@pytest.mark.seeds(2)
def test_values_are_those_of_spark(spark: SparkSession, group: str, seed: int) -> None:
    drawn = rows(seed)
    create_view(spark, drawn)
    assert not value_differences(spark, drawn, EXPRESSIONS[group], equal)


TABLES = {"t": "id BIGINT, s STRING, m MAP<STRING, INT>, o MAP<STRING, BIGINT>", "u": "id BIGINT, s STRING"}


class T(NamedTuple):
    id: int
    s: str | None
    m: dict[str, Int32 | None] | None
    o: dict[str, int | None] | None


class U(NamedTuple):
    id: int
    s: str | None


def draw(choice: random.Random, table: str) -> Any:
    def mapping() -> dict[str, int | None] | None:
        keys = [key for key in "abc" if choice.random() < 0.5]
        choice.shuffle(keys)
        return None if choice.random() < 0.2 else {key: choice.choice([None, 1, 2, 3]) for key in keys}

    row = U(choice.randrange(6), choice.choice([None, "a", "b", "c"]))
    return T(*row, mapping(), mapping()) if table == "t" else row


# Spark 4.3 takes null values of maps that it groups by for zeros.
_PRESENT = "map_filter(m, (k, v) -> v IS NOT NULL)"

QUERIES = {
    "explode": "SELECT id, explode(m) FROM t",
    "outer": "SELECT id, explode_outer(m) AS (k, v) FROM t",
    "lateral view": "SELECT id, k, v FROM t LATERAL VIEW explode(m) AS k, v WHERE v > 1",
    "lateral view outer": "SELECT id, k, v FROM t LATERAL VIEW OUTER explode(m) e AS k, v",
    "sum of values": "SELECT k, sum(v) FROM t LATERAL VIEW explode(m) AS k, v GROUP BY k",
    "positions": "SELECT id, posexplode(map('b', id, 'a', m['a'])) FROM t",
    "outer positions": "SELECT id, posexplode_outer(map_filter(m, (k, v) -> k = 'a')) FROM t",
    "inline": "SELECT id, inline(map_entries(m)) FROM t",
    "inline outer": "SELECT id, inline_outer(map_entries(m)) FROM t",
    "filter": "SELECT id, m FROM t WHERE m['a'] = 1 OR element_at(o, s) > 1",
    "join": "SELECT t.id, t.m, u.s, t.m[u.s] FROM t JOIN u ON t.id = u.id",
    "outer join": "SELECT u.id, t.m, t.o FROM u LEFT JOIN t ON t.id = u.id AND t.m['a'] = 1",
    "by a value": "SELECT t.id, u.s FROM t JOIN u ON t.m['a'] = u.id",
    "semi join": "SELECT id, m FROM t WHERE id IN (SELECT id FROM u)",
    "union": "SELECT id, m FROM t UNION ALL SELECT id, map(s, 1) FROM u WHERE s IS NOT NULL",
    "list of maps": "SELECT s, size(collect_list(m)), count(m) FROM t GROUP BY s",
    "map of a group": "SELECT s, map_from_entries(collect_set(struct(id, 'x'))) FROM t GROUP BY s",
    "groups": f"SELECT {_PRESENT} AS g, count(*) FROM t GROUP BY g",
    "groups of map": "SELECT map('b', id, 'a', id % 2) AS g, count(*) FROM t GROUP BY g",
    "groups with nested ones": f"SELECT struct(s, array({_PRESENT})) AS g, sum(id) FROM t GROUP BY g",
    "different ones": "SELECT s, count(DISTINCT m) FROM t GROUP BY s",
    "least of values": "SELECT s, min(m['a']), max_by(id, m['b']) FROM t GROUP BY s",
    "of equal ones": f"SELECT id, first(g) FROM (SELECT id, {_PRESENT} AS g FROM t) GROUP BY id, g",
    "before": "SELECT id, s, lag(m['a']) OVER (PARTITION BY id ORDER BY s, m['a'], m['b'], m['c']) FROM t",
    "first rows": "SELECT id, size(m) FROM t ORDER BY id, m['a'], m['b'], size(m) LIMIT 3",
    "values": "SELECT * FROM VALUES (1, map('a', 1)), (2, map('b', null)) AS v(id, m)",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.seeds(2)
def test_maps_pass_through_queries(spark: SparkSession, name: str, seed: int) -> None:
    used = {table: columns for table, columns in TABLES.items() if f" {table}" in QUERIES[name]}
    flow = ps.sql(QUERIES[name], tables={"t": T, "u": U}, spark=spark)
    check_answer(spark, flow, lambda _: spark.sql(QUERIES[name]), used, draw, seed)


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT DISTINCT m FROM t", "SET_OPERATION_ON_MAP_TYPE"),
        ("SELECT m FROM t UNION SELECT m FROM t", "SET_OPERATION_ON_MAP_TYPE"),
        ("SELECT id FROM t ORDER BY m LIMIT 2", "INVALID_ORDERING_TYPE"),
        ("SELECT max(m) FROM t", "INVALID_ORDERING_TYPE"),
        ("SELECT collect_set(m) FROM t", "collect_set"),
        ("SELECT a.id FROM t a JOIN t b ON a.m = b.m", "INVALID_ORDERING_TYPE"),
        ("SELECT id FROM t WHERE m IN (m)", "INVALID_ORDERING_TYPE"),
        ("SELECT xxhash64(m) FROM t", "HASH_MAP_TYPE"),
        ("SELECT map(m, 1) FROM t", "INVALID_MAP_KEY_TYPE"),
        ("SELECT try_cast(m AS MAP<STRING, BOOLEAN>) FROM t", "try_cast does not convert maps"),
        ("SELECT cast(m AS STRING) FROM t", "cannot be cast to str"),
        ("SELECT mode(m) FROM t", "no order"),
    ],
)
def test_what_has_no_counterpart_is_refused(spark: SparkSession, query: str, what: str) -> None:
    with pytest.raises(PenstockError, match=what):
        ps.sql(query, tables={"t": T}, spark=spark)


RAISING = [
    "map(s, 1, 'a', 2)",
    "map(nullif(s, 'a'), 1)",
    "map_from_arrays(array(s, s), array(1, 2))",
    "map_from_arrays(array(s), array(1, 2))",
    "map_from_arrays(array(nullif(s, 'a')), array(1))",
    "map_from_entries(array(named_struct('a', s, 'b', 1), named_struct('a', 'a', 'b', 2)))",
    "map_from_entries(array(struct(nullif(s, 'a'), 1)))",
    "map_concat(m, o)",
    "str_to_map(s || ',a:2')",
    "transform_keys(m, (k, v) -> 'x')",
    "transform_keys(m, (k, v) -> nullif(k, 'a'))",
    "transform_values(m, (k, v) -> v / 0)",
    "cast(transform_keys(m, (k, v) -> s || k) AS MAP<INT, INT>)",
    "map(0.0D, 1, id - 1 + -0.0D, 2)",
]


@pytest.mark.parametrize("text", RAISING)
def test_what_raises_on_spark_raises(spark: SparkSession, text: str) -> None:
    from pyspark.errors import PySparkException

    row = T(1, "a", {"a": 1, "b": None}, {"a": 5})
    spark.createDataFrame([tuple(row)], TABLES["t"]).createOrReplaceTempView("t")
    with pytest.raises(PySparkException):
        spark.sql(f"SELECT {text} AS c FROM t").collect()
    engine = ps.Engine(ps.sql(f"SELECT {text} AS c FROM t", tables={"t": T}, spark=spark))
    with pytest.raises(PenstockError, match="P020"):
        engine.tick(t=[row])


def test_casts_to_keys_that_become_equal_raise() -> None:
    # Spark keeps such a map with a key twice.
    engine = ps.Engine(_cast_flow())
    assert engine.tick(rows=[{"1": 2}])["out"][0].row.m == {1: 2}
    with pytest.raises(PenstockError, match="the key 1 comes twice in a map"):
        engine.tick(rows=[{"1": 2, "01": 3}])


def _cast_flow() -> ps.Flow:
    flow = ps.Flow("casts")
    rows = flow.source("rows", dict[str, int])
    flow.sink("out", rows.select(m=ps.col.value.cast(dict[int, int])))
    return flow


def test_functions_with_wrong_parameters_are_refused() -> None:
    f, flow = ps.functions, ps.Flow("wrong")
    rows = flow.table("rows", T)
    for expr, what in (
        (f.transform_values(ps.col.m, lambda k: k), "a function of 2 arguments"),
        (f.map_filter(ps.col.m, lambda k, v: v), "gives int32, not bool"),
        (f.map("a", 1, "b"), "keys and values by turns"),
        (f.map(ps.col.m, 1), "cannot have the keys"),
        (f.map_keys(ps.col.s), "map_keys needs a map, got str"),
        (f.map_from_entries(f.map_keys(ps.col.m)), "a list of structs of two fields"),
        (f.map_contains_key(ps.col.m, 1), "do not go together"),
        (ps.col.m == ps.col.m, "cannot compare map"),
        (ps.col.m < ps.col.m, "has no order"),
        (f.array_distinct(ps.array(ps.col.m)), "cannot compare map"),
        (ps.hash(ps.col.m), "hash does not take map"),
        (ps.greatest(ps.col.m, ps.col.m), "has no order"),
    ):
        with pytest.raises(PenstockError, match=what):
            rows.select(x=expr)
