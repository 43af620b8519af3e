"""Random queries under random changes: in the end the answer is that of Spark's batch query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.queries import query
from tests.queries.plan_counts import PROPERTY, QUERIES, kinds_met
from tests.queries.random_queries import TABLES, QueryWriter, random_row
from tests.queries.spark_answers import check_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = {
    "l": "id BIGINT NOT NULL, a BIGINT, s STRING",
    "r": "id BIGINT NOT NULL, b BIGINT, t STRING",
    "v": "id BIGINT NOT NULL, i INT, n BIGINT, x DOUBLE, d DECIMAL(10,2), s STRING, u STRING, r BINARY,"
    " day DATE, t TIMESTAMP, b BOOLEAN, ss ARRAY<STRING>",
}


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch, record_property: Any) -> Iterator[Counter[str]]:
    """Counts of the kinds of nodes in the plans of a test, which `make fuzz` sums up."""
    met: Counter[str] = Counter()
    plan_query = query.plan_query

    def counted(*arguments: Any) -> Any:
        planned = plan_query(*arguments)
        met.update(kinds_met(planned.listed))
        met[QUERIES] += 1
        return planned

    monkeypatch.setattr(query, "plan_query", counted)
    yield met
    record_property(PROPERTY, dict(met))


def check_query(spark: SparkSession, seed: int) -> str:
    """Check one query, and return its text."""
    text = QueryWriter(seed).query()
    try:
        flow = ps.sql(text, tables=TABLES, spark=spark)
        check_answer(spark, flow, lambda _: spark.sql(text), DDL, random_row, seed)
    except BaseException as error:
        error.add_note(text)
        raise
    return text


@pytest.mark.usefixtures("kinds")
@pytest.mark.seeds(24, together=6)
def test_the_answer_is_that_of_spark(spark: SparkSession, seeds: range) -> None:
    for seed in seeds:
        check_query(spark, seed)


@pytest.mark.usefixtures("kinds")
@pytest.mark.verify
@pytest.mark.seeds(200, together=50)
def test_the_answer_is_that_of_spark_many(spark: SparkSession, seeds: range) -> None:
    for seed in seeds:
        check_query(spark, 1_000 + seed)
