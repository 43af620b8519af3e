"""Functions of maps in their Spark spelling: a query's answer is Spark's own, on random rows with nulls."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.expr.types import Int32
from tests.queries.map_spellings import EXPRESSIONS, rows
from tests.queries.spark_answers import check_answer, create_view, equal, frame_of, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("group", EXPRESSIONS)
@pytest.mark.seeds(2, verify_from=1)
def test_values_are_those_of_spark(spark: SparkSession, group: str, seed: int) -> None:
    drawn = rows(seed)
    create_view(spark, drawn)
    assert not value_differences(spark, drawn, EXPRESSIONS[group], equal)


class T(NamedTuple):
    id: int
    s: str | None
    m: dict[str, Int32 | None] | None
    o: dict[str, int | None] | None


class U(NamedTuple):
    id: int
    s: str | None


TABLES = {"t": T, "u": U}


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
@pytest.mark.seeds(2, verify_from=1)
def test_maps_pass_through_queries(spark: SparkSession, name: str, seed: int) -> None:
    flow = hr.sql(QUERIES[name], tables=TABLES, spark=spark)
    check_answer(spark, flow, lambda _: spark.sql(QUERIES[name]), TABLES, draw, seed)


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
        ("SELECT mode(m) FROM t", "no order"),
    ],
)
def test_what_has_no_counterpart_is_refused(spark: SparkSession, query: str, what: str) -> None:
    with pytest.raises(HeadraceError, match=what):
        hr.sql(query, tables={"t": T}, spark=spark)


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
    frame_of(spark, T, [row]).createOrReplaceTempView("t")
    with pytest.raises(PySparkException):
        spark.sql(f"SELECT {text} AS c FROM t").collect()
    engine = hr.Engine(hr.sql(f"SELECT {text} AS c FROM t", tables={"t": T}, spark=spark))
    with pytest.raises(HeadraceError, match="P020"):
        engine.tick(t=[row])


def test_casts_to_keys_that_become_equal_raise() -> None:
    # Spark keeps such a map with a key twice.
    engine = hr.Engine(_cast_flow())
    assert engine.tick(rows=[{"1": 2}])["out"][0].row.m == {1: 2}
    with pytest.raises(HeadraceError, match="the key 1 comes twice in a map"):
        engine.tick(rows=[{"1": 2, "01": 3}])


def _cast_flow() -> hr.Flow:
    flow = hr.Flow("casts")
    rows = flow.source("rows", dict[str, int])
    flow.sink("out", rows.select(m=hr.col.value.cast(dict[int, int])))
    return flow


def test_functions_with_wrong_parameters_are_refused() -> None:
    f, flow = hr.functions, hr.Flow("wrong")
    rows = flow.table("rows", T)
    for expr, what in (
        (f.transform_values(hr.col.m, lambda k: k), "a function of 2 arguments"),
        (f.map_filter(hr.col.m, lambda k, v: v), "gives int32, not bool"),
        (f.map("a", 1, "b"), "keys and values by turns"),
        (f.map(hr.col.m, 1), "cannot have the keys"),
        (f.map_keys(hr.col.s), "map_keys needs a map, got str"),
        (f.map_from_entries(f.map_keys(hr.col.m)), "a list of structs of two fields"),
        (f.map_contains_key(hr.col.m, 1), "do not go together"),
        (hr.col.m == hr.col.m, "cannot compare map"),
        (hr.col.m < hr.col.m, "cannot compare map"),
        (f.array_distinct(hr.array(hr.col.m)), "cannot compare map"),
        (hr.hash(hr.col.m), "hash does not take map"),
        (hr.greatest(hr.col.m, hr.col.m), "cannot compare map"),
    ):
        with pytest.raises(HeadraceError, match=what):
            rows.select(x=expr)
