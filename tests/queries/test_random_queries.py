"""Random queries under random changes: in the end the answer is that of Spark's batch query."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from tests.queries.random_queries import TABLES, QueryWriter, random_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def changes(choice: random.Random) -> tuple[list[dict[str, list[ps.Change[Any]]]], dict[str, list[Any]]]:
    """Ticks in which rows come and go, and the rows that are there in the end."""
    there: dict[str, list[Any]] = {table: [] for table in TABLES}
    ticks: list[dict[str, list[ps.Change[Any]]]] = []
    for _ in range(5):
        tick: dict[str, list[ps.Change[Any]]] = {}
        for table, rows in there.items():
            new = [random_row(choice, table) for _ in range(choice.randrange(5))]
            rows += new
            choice.shuffle(rows)
            gone = choice.randrange(1 + len(rows) // 2)
            tick[table] = [ps.insert(row) for row in new] + [ps.delete(row) for row in rows[:gone]]
            del rows[:gone]
        ticks.append(tick)
    return ticks, there


def check_query(spark: SparkSession, seed: int) -> str:
    """Check one query, and return its text."""
    from pyspark.sql.types import StructType

    text = QueryWriter(seed).query()
    engine, answer = ps.Engine(ps.sql(text, tables=TABLES, spark=spark)), Counter[Any]()
    ticks, there = changes(random.Random(seed))
    for tick in ticks:
        given = {table: rows for table, rows in tick.items() if table in engine.program.graph.sources}
        for *row, weight in engine.tick(**given)["answer"].raw:
            answer[tuple(row)] += weight
        assert min(answer.values(), default=0) >= 0, text
    ddl = {"l": "id BIGINT NOT NULL, a BIGINT, s STRING", "r": "id BIGINT NOT NULL, b BIGINT, t STRING"}
    for table, rows in there.items():
        frame = spark.createDataFrame([tuple(row) for row in rows], StructType.fromDDL(ddl[table]))
        frame.coalesce(1).createOrReplaceTempView(table)
    expected = Counter(tuple(row) for row in spark.sql(text).collect())
    assert +answer == expected, text
    return text


@pytest.mark.seeds(24, together=6)
def test_the_answer_is_that_of_spark(spark: SparkSession, seeds: range) -> None:
    for seed in seeds:
        check_query(spark, seed)


@pytest.mark.verify
@pytest.mark.seeds(200, together=50)
def test_the_answer_is_that_of_spark_many(spark: SparkSession, seeds: range) -> None:
    for seed in seeds:
        check_query(spark, 1_000 + seed)
