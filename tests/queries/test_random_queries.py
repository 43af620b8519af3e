"""Random queries under random changes: in the end the answer is that of Spark's batch query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock as ps
from tests.queries.random_queries import TABLES, QueryWriter, random_row
from tests.queries.spark_answers import check_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = {"l": "id BIGINT NOT NULL, a BIGINT, s STRING", "r": "id BIGINT NOT NULL, b BIGINT, t STRING"}


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


@pytest.mark.seeds(24, together=6)
def test_the_answer_is_that_of_spark(spark: SparkSession, seeds: range) -> None:
    for seed in seeds:
        check_query(spark, seed)


@pytest.mark.verify
@pytest.mark.seeds(200, together=50)
def test_the_answer_is_that_of_spark_many(spark: SparkSession, seeds: range) -> None:
    for seed in seeds:
        check_query(spark, 1_000 + seed)
