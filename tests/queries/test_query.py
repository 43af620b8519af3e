"""Queries planned by Catalyst: after every tick the answer is DuckDB's over the same rows."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import pytest

import headrace as hr
from headrace import sql
from headrace.errors import EvaluationError, UnsupportedQuery
from headrace.operators.endpoints import SourceOperator
from headrace.operators.join.join import How, Join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Item(NamedTuple):
    id: int
    kind: str | None
    price: int | None


class Sale(NamedTuple):
    item: int | None
    count: int


KINDS = ["a", "ab", "b", None]
NUMBERS = [None, *range(9)]
COLUMNS = {"items": "id BIGINT, kind VARCHAR, price BIGINT", "sales": "item BIGINT, count BIGINT"}
QUERIES = {
    "filter": "SELECT id, price * 2 AS twice FROM items WHERE kind LIKE 'a%' OR price > 5",
    "join": "SELECT i.id, s.count FROM items i JOIN sales s ON i.id = s.item AND s.count > i.price",
    "left": "SELECT i.id, s.count FROM items i LEFT JOIN sales s ON i.id = s.item AND s.count > 2",
    "right": "SELECT i.kind, s.count FROM items i RIGHT JOIN sales s ON i.id = s.item",
    "full": "SELECT i.kind, s.count FROM items i FULL JOIN sales s ON i.id = s.item",
    "no key": "SELECT i.id, s.count FROM items i LEFT JOIN sales s ON i.price < s.count",
    "product": "SELECT i.id, s.count FROM items i, sales s WHERE i.price < s.count",
    "itself": "SELECT a.id, b.id AS other FROM items a JOIN items b ON a.kind = b.kind AND a.id < b.id",
    "exists": "SELECT id FROM items WHERE EXISTS (SELECT 1 FROM sales WHERE item = id AND count > 1)",
    "not exists": "SELECT id FROM items WHERE NOT EXISTS (SELECT 1 FROM sales WHERE item = id)",
    "groups": "SELECT kind, count(*) AS n, count(price) AS known, sum(price) AS total, min(price) AS least,"
    " avg(price) AS mean, sum(price) FILTER (WHERE id > 3) AS late FROM items GROUP BY kind",
    "having": "SELECT kind, max(price) - min(price) AS span FROM items GROUP BY kind HAVING count(*) > 1",
    "everything": "SELECT count(*) AS n, sum(price) AS total FROM items WHERE price > 3",
    "distinct": "SELECT DISTINCT kind, price > 3 AS dear FROM items",
    "count distinct": "SELECT item, count(DISTINCT count) AS n FROM sales GROUP BY item",
    "union": "SELECT id FROM items UNION ALL SELECT count FROM sales",
    "scalar": "SELECT id FROM items WHERE price > (SELECT avg(count) FROM sales)",
    "limit": "SELECT id, price FROM items ORDER BY price DESC NULLS LAST, id LIMIT 3",
    "limit by another column": "SELECT id FROM items ORDER BY price DESC NULLS LAST, id, kind LIMIT 3",
    "ranks": "SELECT id, kind, rank() OVER w AS r, dense_rank() OVER w AS d, percent_rank() OVER w AS p,"
    " cume_dist() OVER w AS c FROM items WINDOW w AS (PARTITION BY kind ORDER BY price DESC NULLS LAST)",
    "places": "SELECT id, kind, price, row_number() OVER w AS n, ntile(2) OVER w AS t, lag(price) OVER w"
    " AS a, lead(price, 2, 0) OVER w AS b, nth_value(id, 2) OVER w AS v FROM items WINDOW w AS"
    " (PARTITION BY kind ORDER BY id, price NULLS FIRST)",
    "running": "SELECT item, count, sum(count) OVER w AS s, min(count) OVER w AS l, count(*) OVER w AS n,"
    " last_value(count) OVER w AS z FROM sales WINDOW w AS (PARTITION BY item ORDER BY count)",
    "frames": "SELECT item, count, sum(item) OVER (ORDER BY count, item NULLS FIRST ROWS BETWEEN 2 PRECEDING"
    " AND CURRENT ROW) AS s, avg(count) OVER (ORDER BY count RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a,"
    " max(item) OVER (PARTITION BY item) AS m FROM sales",
    "best of each": "SELECT id, kind FROM (SELECT *, row_number() OVER (PARTITION BY kind ORDER BY price DESC"
    " NULLS LAST, id) AS n FROM items) WHERE n <= 2",
    "rollup": "SELECT kind, id, count(*) AS n FROM items GROUP BY ROLLUP (kind, id)"
    " HAVING count(*) > 0",  # of nothing, Spark has no total
    "several distinct": "SELECT count(DISTINCT kind) AS k, count(DISTINCT price) AS p FROM items",
    "intersect": "SELECT id FROM items INTERSECT SELECT item FROM sales",
    "except": "SELECT item FROM sales EXCEPT SELECT id FROM items",
    "offset": "SELECT id, price FROM items ORDER BY id, price NULLS FIRST LIMIT 3 OFFSET 2",
    "intersect all": "SELECT id FROM items INTERSECT ALL SELECT item FROM sales",
    "except all": "SELECT item FROM sales EXCEPT ALL SELECT id FROM items",
    "the only": "SELECT id, (SELECT count FROM sales WHERE item = 99) AS n FROM items",
    "or exists": "SELECT id FROM items WHERE price > 6 OR EXISTS (SELECT 1 FROM sales WHERE item = id)",
    "null is null": "SELECT i.id, s.count FROM items i JOIN sales s ON i.price IS NOT DISTINCT FROM s.item",
    "not in": "SELECT id FROM items WHERE price NOT IN (SELECT item FROM sales)",
    "correlated": "SELECT id FROM items WHERE price = (SELECT max(count) FROM sales WHERE item = id)",
    "values": "SELECT v.x, i.id FROM items i JOIN (VALUES (1, 'a'), (2, NULL)) AS v(x, y) ON v.x = i.id",
    "case": "SELECT id, CASE WHEN price IS NULL THEN -1 WHEN price > 4 THEN 1 ELSE 0 END AS sign FROM items",
}


def changes(choice: random.Random, ticks: int) -> Iterator[dict[str, list[tuple[Any, int]]]]:
    """Rows that come and go; in the end all are gone."""
    there: dict[str, list[Any]] = {"items": [], "sales": []}
    for tick in range(ticks):
        new = {
            "items": [
                Item(
                    choice.randrange(8),
                    choice.choice(["a", "ab", "b", None]),
                    choice.choice([None, *range(9)]),
                )
                for _ in range(choice.randrange(4))
            ],
            "sales": [
                Sale(choice.choice([None, *range(8)]), choice.randrange(9))
                for _ in range(choice.randrange(5))
            ],
        }
        made: dict[str, list[tuple[Any, int]]] = {}
        for name, rows in there.items():
            rows += new[name]
            choice.shuffle(rows)
            gone = len(rows) if tick == ticks - 1 else choice.randrange(1 + len(rows) // 2)
            made[name] = [(row, 1) for row in new[name]] + [(row, -1) for row in rows[:gone]]
            del rows[:gone]
        yield made


@pytest.mark.parametrize("name", QUERIES)
def test_after_every_tick_the_answer_is_that_over_all_rows(spark: SparkSession, name: str) -> None:
    flow = sql(QUERIES[name], tables={"items": Item, "sales": Sale}, spark=spark)
    engine, answer = hr.Engine(flow), Counter[Any]()
    there = {"items": Counter[Any](), "sales": Counter[Any]()}
    database = duckdb.connect()
    for tick in changes(random.Random(name), 9):
        made = engine.tick(**{table: [hr.Change(*change) for change in rows] for table, rows in tick.items()})
        for *row, weight in made["answer"].raw:
            answer[tuple(row)] += weight
        for table, columns in COLUMNS.items():
            for row, weight in tick[table]:
                there[table][row] += weight
            database.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
            rows = [list(row) for row in there[table].elements()]
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        expected = Counter(database.execute(QUERIES[name]).fetchall())
        assert +answer == expected, name


def test_what_a_query_says_twice_runs_once(spark: SparkSession) -> None:
    counted = "SELECT kind, count(*) AS n FROM items GROUP BY kind"
    text = f"SELECT a.kind FROM ({counted}) a JOIN ({counted}) b ON a.n = b.n"
    kinds = [node.operator.kind for node in sql(text, tables={"items": Item}, spark=spark).graph().nodes]
    assert kinds.count("aggregate") <= 2


def test_relations_that_a_filter_makes_small_are_joined_first(spark: SparkSession) -> None:
    """Sales meet few items before they meet other sales; pairs of rows are tested after all joins."""
    text = (
        "SELECT i.price FROM sales s, sales t, items i WHERE s.count = t.item AND t.count = i.id"
        " AND i.kind = 'a' AND EXISTS (SELECT 1 FROM sales o WHERE o.item = s.item AND o.count <> s.count)"
    )
    flow = sql(text, tables={"items": Item, "sales": Sale}, spark=spark)
    graph = hr.Engine(flow).program.graph
    joins = [node for node in graph.nodes if isinstance(node.operator, Join)]

    def sources(node: int) -> set[str]:
        operator, inputs = graph.nodes[node].operator, graph.nodes[node].inputs
        return {operator.name} if isinstance(operator, SourceOperator) else set().union(*map(sources, inputs))

    assert [(node.operator.how, *map(sources, node.inputs)) for node in joins] == [
        (How.INNER, {"sales"}, {"items"}),
        (How.INNER, {"sales"}, {"sales", "items"}),
        (How.SEMI, {"sales", "items"}, {"sales"}),
    ]


def test_a_subquery_of_several_rows_is_no_value(spark: SparkSession) -> None:
    text = "SELECT id, (SELECT count FROM sales) AS n FROM items"
    engine = hr.Engine(sql(text, tables={"items": Item, "sales": Sale}, spark=spark))
    (change,) = engine.tick(items=[Item(1, "a", 2)], sales=[Sale(1, 7)])["answer"]
    assert change.row == (1, 7)
    with pytest.raises(EvaluationError, match="more than one row"):
        engine.tick(sales=[Sale(2, 9)])


def test_a_correlated_subquery_of_several_rows_is_no_value(spark: SparkSession) -> None:
    text = "SELECT id, (SELECT count FROM sales WHERE item = id GROUP BY count) AS n FROM items"
    engine = hr.Engine(sql(text, tables={"items": Item, "sales": Sale}, spark=spark))
    changes = engine.tick(
        items=[Item(1, "a", 2), Item(2, "a", 2)], sales=[Sale(1, 7), Sale(1, 7), Sale(3, 1)]
    )
    assert sorted(change.row for change in changes["answer"]) == [(1, 7), (2, None)]
    with pytest.raises(EvaluationError, match="more than one row"):
        engine.tick(sales=[Sale(1, 9)])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT nothing FROM items", "cannot plan"),
        ("SELEC id FROM items", "cannot plan"),
        ("SELECT space(2147483647) AS n FROM items", r"cannot plan[^$]*java.lang.OutOfMemoryError: \w+"),
        ("SELECT theta_sketch_agg(price) AS s FROM items", "ThetaSketchAgg"),
        ("SELECT sentences(kind) AS s FROM items", "uses sentences"),
        (f"SELECT id FROM range({-(2**63)}, {2**63 - 1})", "makes 18,446,744,073,709,551,615 rows itself"),
        (f"SELECT id FROM range({2**63 - 1}, {-(2**63)}, -3)", "makes 6,148,914,691,236,517,205 rows itself"),
        ("SELECT rand() AS s FROM items", "answers otherwise each time"),
        ("SELECT date_trunc(kind, current_timestamp()) AS s FROM items", "no constant"),
    ],
)
def test_what_has_no_incremental_form_is_refused_by_name(spark: SparkSession, text: str, what: str) -> None:
    with pytest.raises(UnsupportedQuery, match=what):
        sql(text, tables={"items": Item, "sales": Sale}, spark=spark)


@pytest.mark.parametrize(
    ("text", "why", "fix"),
    [
        ("SELECT nope FROM items", "cannot be resolved", "correct the query"),
        ("SELECT * FROM missing", "cannot be found", "give the table in tables= or sources="),
        ("SELECT * FROM items TABLESAMPLE (10 PERCENT)", "draws another sample", "REPEATABLE (1)"),
        ("SELECT count_min_sketch(id, 0.5d, 0.5d, 1) FROM items", "", "let Spark compute it into a table"),
    ],
)
def test_a_refusal_says_a_way_out_and_shows_no_plan(
    spark: SparkSession, text: str, why: str, fix: str
) -> None:
    with pytest.raises(UnsupportedQuery) as refused:
        sql(text, tables={"items": Item}, spark=spark)
    assert why in refused.value.why
    assert fix in refused.value.fix
    assert "'Project" not in str(refused.value)


def test_commands_are_refused_and_not_run(spark: SparkSession) -> None:
    spark.sql("SELECT 1 AS one").createOrReplaceTempView("kept")
    with pytest.raises(UnsupportedQuery, match=r"plans to Drop|cannot plan"):
        sql("DROP VIEW kept", tables={"items": Item}, spark=spark)
    assert spark.table("kept").count() == 1


def test_the_active_session_stays(spark: SparkSession) -> None:
    from pyspark.sql import SparkSession as Sessions

    before = Sessions.getActiveSession()
    sql("SELECT id FROM items", tables={"items": Item}, spark=spark)
    assert Sessions.getActiveSession() is (before or spark)


def test_an_element_beyond_a_list_raises(spark: SparkSession) -> None:
    for place in (-1, 7):
        flow = sql(f"SELECT array(price, id)[{place}] AS x FROM items", tables={"items": Item}, spark=spark)
        with pytest.raises(EvaluationError):
            hr.Engine(flow).tick(items=[Item(1, "a", 2)])


def test_a_query_that_is_nested_too_deeply_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UnsupportedQuery, match=r"nested too deeply|cannot plan"):
        sql(f"SELECT id{' + price' * 700} AS x FROM items", tables={"items": Item}, spark=spark)
