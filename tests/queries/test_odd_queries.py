"""Queries that people rarely write and Spark takes: the answer is Spark's after each change."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

import headrace as hr
from headrace.errors import UnsupportedQuery
from tests.queries.spark_answers import check_answer, one_in_four

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Row(NamedTuple):
    a: int | None
    b: int | None


TABLES = {"t": Row, "u": Row}


def draw(choice: random.Random, table: str) -> Row:
    return Row(choice.choice([None, 0, 1, 2, 3]), choice.choice([None, 0, 1, 2, 3]))


FIRST_BRANCHES = {
    "explode": "SELECT explode(array(a, b)) FROM t UNION ALL SELECT b FROM u",
    "posexplode": "SELECT posexplode(array(a, b)) FROM t UNION ALL SELECT 7, b FROM u",
    "inline": "SELECT inline(array(struct(a, b))) FROM t UNION ALL SELECT a, b FROM u",
    "stack": "SELECT stack(2, a, b) FROM t UNION ALL SELECT a FROM u",
    "EXCEPT ALL": "(SELECT a FROM t EXCEPT ALL SELECT b FROM u) UNION ALL SELECT a FROM t",
    "INTERSECT ALL": "(SELECT a FROM t INTERSECT ALL SELECT b FROM u) UNION ALL SELECT a FROM t",
    "a column twice": "SELECT x, y FROM (SELECT a AS x, a AS y FROM t UNION ALL SELECT a, b FROM u)",
    "a column twice, second": "SELECT x, y FROM (SELECT a AS x, b AS y FROM t UNION ALL SELECT a, a FROM u)",
    "no columns": "SELECT count(*) AS n FROM (SELECT a FROM t UNION ALL SELECT b FROM u)",
    "distinct of a generator": "SELECT DISTINCT explode(array(a, b)) AS e FROM t",
}

RECURSIONS = {
    "without a column list": "WITH RECURSIVE r AS (SELECT a AS n FROM t UNION ALL SELECT n + 1 FROM r"
    " WHERE n < 3) SELECT * FROM r",
    "an anchor column twice": "WITH RECURSIVE r(n, k) AS (SELECT a, a FROM t UNION ALL SELECT n + 1, k FROM r"
    " WHERE n < 3) SELECT * FROM r",
    "joined with itself": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT r1.n + 1 FROM r r1"
    " JOIN r r2 ON r1.n = r2.n WHERE r1.n < 3) SELECT * FROM r",
    "all joined with itself": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT r1.n + 1 FROM r r1"
    " CROSS JOIN r r2 WHERE r1.n < 2) SELECT * FROM r",
    "three times": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT r1.n + r2.n + r3.n + 1 FROM r r1"
    " JOIN r r2 ON r1.n = r2.n JOIN r r3 ON r2.n = r3.n WHERE r1.n + r3.n < 3) SELECT * FROM r",
    "closure by doubling": "WITH RECURSIVE r(n, m) AS (SELECT a, b FROM t UNION ALL SELECT r1.n, r2.m FROM"
    " r r1"
    " JOIN r r2 ON r1.m = r2.n AND r1.n < r2.m) SELECT n, m, count(*) AS c FROM r GROUP BY n, m",
    "IN itself": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT r1.n + 1 FROM r r1 WHERE r1.n < 3"
    " AND r1.n IN (SELECT n FROM r)) SELECT * FROM r",
    "DISTINCT of a round": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT DISTINCT n + 1 FROM r"
    " WHERE n < 3) SELECT n FROM r",
    "EXCEPT": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL (SELECT n + 1 FROM r WHERE n < 3 EXCEPT"
    " SELECT b FROM u)) SELECT n FROM r",
    "INTERSECT itself": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL (SELECT n + 1 FROM r WHERE n < 3"
    " INTERSECT SELECT n + 1 FROM r WHERE n > 0)) SELECT n FROM r",
    "UNION within": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL (SELECT n + 1 FROM r WHERE n < 3 UNION"
    " SELECT n + 2 FROM r WHERE n < 2)) SELECT * FROM r",
    "generator": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT explode(array(n + 1, n + 2))"
    " FROM r"
    " WHERE n < 3) SELECT n FROM r",
    "outer join": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT n + 1 FROM r LEFT JOIN u ON n"
    " = u.a"
    " WHERE n < 3) SELECT n FROM r",
    "of a recursion": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT n + 1 FROM r WHERE n < 3),"
    " q(m)"
    " AS (SELECT n FROM r UNION ALL SELECT m + 10 FROM q WHERE m < 5) SELECT * FROM q",
    "ended by a limit": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"
    " LIMIT 7",
    "ended by a limit and an offset": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
    " SELECT n FROM r LIMIT 4 OFFSET 3",
    "of rows ended by a limit": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT n + 1 FROM r)"
    " SELECT count(*) AS c FROM (SELECT n FROM r LIMIT 20)",
    "joined, ended by a limit": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
    " SELECT t.a, n FROM t JOIN (SELECT n FROM r LIMIT 4) ON a = n",
    "to a level": "WITH RECURSIVE r(n) MAX RECURSION LEVEL 4 AS (SELECT 0 UNION ALL SELECT n + 1 FROM r"
    " WHERE n < 3) SELECT n FROM r",
}

WITHOUT_TABLES = {
    "join of constants": "SELECT t.a, k FROM t JOIN (SELECT 1 AS k UNION ALL SELECT 2) c ON t.a = c.k",
    "generator beside a table": "SELECT a, col FROM t, explode(array(1, 2))",
    "union": "SELECT 1 AS a UNION SELECT 2",
    "aggregate": "SELECT max(x) AS m FROM (SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT NULL)",
    "none": "SELECT 1 AS x WHERE false",
    "counted": "SELECT count(*) AS c FROM (SELECT 1)",
    "counted none": "SELECT count(*) AS c FROM (SELECT 1 WHERE false)",
    "inline": "SELECT inline(array(struct(1 AS p, 2 AS q)))",
    "by a subquery": "SELECT (SELECT count(*) FROM t) AS x WHERE (SELECT count(*) FROM u) > 3",
    "outer join of constants": "SELECT * FROM (SELECT 1 AS x) a FULL JOIN (SELECT 2 AS y) b ON x = y",
    "exists": "SELECT a FROM t WHERE EXISTS (SELECT 1)",
}

UNREAD_AGGREGATES = {
    "EXISTS": "SELECT * FROM t WHERE EXISTS (SELECT max(u.a) FROM u WHERE t.b > 1)",
    "NOT EXISTS": "SELECT * FROM t WHERE NOT EXISTS (SELECT max(u.a) FROM u WHERE t.b > 1)",
    "HAVING": "SELECT 1 AS x FROM t HAVING 1 < 2",
    "HAVING of none": "SELECT 1 AS x FROM t HAVING 1 > 2",
    "a filter that none passes": "SELECT count(DISTINCT a) FILTER (WHERE false) AS x FROM t",
    "of groups": "SELECT count(DISTINCT a) FILTER (WHERE false) AS x FROM t GROUP BY b",
    "count of null": "SELECT count(NULL) AS c, sum(NULL) AS s FROM t",
    "a constant key": "SELECT count(*) AS c FROM t GROUP BY 1 + 1",
    "limited and counted": "SELECT count(*) AS c FROM (SELECT a FROM t LIMIT 2 OFFSET 1)",
    "field of an aggregate": "SELECT max(struct(a, b)).b AS x FROM t",
}

WINDOWS = {
    "in a correlated subquery": "SELECT a, (SELECT max(x) FROM (SELECT u.b, row_number() OVER (ORDER BY"
    " u.b) AS x"
    " FROM u WHERE u.a = t.a)) AS m FROM t",
    "in LATERAL": "SELECT t.a, x FROM t, LATERAL (SELECT sum(b) OVER (ORDER BY b) AS x FROM u WHERE u.a ="
    " t.a)",
    "in IN": "SELECT a FROM t WHERE a IN (SELECT row_number() OVER (ORDER BY b) FROM u WHERE u.a = t.a)",
    "count of null": "SELECT count(NULL) OVER () AS x, sum(a) OVER () AS y FROM t",
    "by a subquery": "SELECT a, rank() OVER (ORDER BY a + (SELECT max(b) FROM u)) AS r,"
    " sum(a + (SELECT count(*) FROM u)) OVER () AS s FROM t",
    "order by a subquery": "SELECT a, b FROM t ORDER BY (SELECT max(b) FROM u) - a, b, a LIMIT 2",
}

SINGLE_VALUES = {
    "of groups": "SELECT a, (SELECT u.a + 1 FROM u WHERE u.a = t.a GROUP BY u.a) AS x FROM t",
    "distinct": "SELECT a, (SELECT DISTINCT u.a * 2 FROM u WHERE u.a = t.a + 1) AS x FROM t WHERE b > 0",
    "in a condition": "SELECT a FROM t WHERE b > (SELECT u.a FROM u WHERE u.a = t.a GROUP BY u.a)",
    "with a count": "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a GROUP BY u.a) AS x FROM t",
}

QUERIES = {
    f"{kind}: {name}": text
    for kind, queries in (
        ("first branch", FIRST_BRANCHES),
        ("recursion", RECURSIONS),
        ("without tables", WITHOUT_TABLES),
        ("unread aggregates", UNREAD_AGGREGATES),
        ("windows", WINDOWS),
        ("single values", SINGLE_VALUES),
    )
    for name, text in queries.items()
}


@pytest.mark.parametrize("name", one_in_four(QUERIES))
def test_the_answer_is_that_of_spark(spark: SparkSession, name: str) -> None:
    text = QUERIES[name]
    flow = hr.sql(text, tables=TABLES, spark=spark)
    check_answer(spark, flow, lambda _: spark.sql(text), TABLES, draw, seed=len(text), between=3)


REFUSED = {
    "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT b FROM u WHERE b IN (SELECT n + 1 FROM r))"
    " SELECT * FROM r": "whose rows are only looked up",
    "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL (SELECT n + 1 FROM r WHERE n < 3 UNION ALL"
    " SELECT b FROM u)) SELECT * FROM r": "through Union",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + k FROM r, (VALUES (1), (2)) AS v(k))"
    " SELECT n FROM r LIMIT 100": "without end",
} | {
    f"WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL {part}) SELECT n FROM r": reason
    for part, reason in {
        "(SELECT n + 1 FROM r WHERE n < 8 EXCEPT SELECT n FROM r)": "leaves out rows by its own",
        "SELECT n + 1 FROM r WHERE n < 8 AND NOT EXISTS (SELECT 1 FROM r r2"
        " WHERE r2.n = r.n + 1)": "leaves out rows by its own",
        "SELECT n + 1 FROM r WHERE n < 8 AND n NOT IN (SELECT n + 1 FROM r)": "leaves out rows by its own",
        "SELECT n + 1 FROM r WHERE n < 8 AND (n > 5 OR n IN (SELECT n FROM r))": "a part of a condition",
        "(SELECT n + 1 FROM r WHERE n < 8 EXCEPT ALL SELECT n FROM r)": "through Aggregate",
        "(SELECT n + 1 FROM r WHERE n < 8 INTERSECT ALL SELECT n + 1 FROM r)": "through Aggregate",
    }.items()
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_recursion_that_has_no_rounds_is_refused(spark: SparkSession, text: str) -> None:
    with pytest.raises(UnsupportedQuery, match=REFUSED[text]):
        hr.sql(text, tables=TABLES, spark=spark)
