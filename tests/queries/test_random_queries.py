"""Random queries under random changes: the answer is that of Spark's batch query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headrace.queries import query
from tests.queries.plan_counts import PROPERTY, QUERIES, kinds_met
from tests.queries.random_checks import QueryChecker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def checker(spark: SparkSession) -> QueryChecker:
    return QueryChecker(spark)


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch, record_property: Any) -> Iterator[Counter[str]]:
    """Counts of the kinds of nodes in the plans of a test, which `make fuzz` sums up."""
    met: Counter[str] = Counter()

    def counted(plan: Any) -> Any:
        def with_counts(*arguments: Any) -> Any:
            planned = plan(*arguments)
            met.update(kinds_met(planned.listed))
            met[QUERIES] += 1
            return planned

        return with_counts

    for name in ("plan_query", "plan_frame"):
        monkeypatch.setattr(query, name, counted(getattr(query, name)))
    yield met
    record_property(PROPERTY, dict(met))


@pytest.mark.usefixtures("kinds")
@pytest.mark.seeds(48, together=12, verify_from=24)
def test_the_answer_is_that_of_spark(checker: QueryChecker, seeds: range) -> None:
    for seed in seeds:
        checker.check(seed)


@pytest.mark.usefixtures("kinds")
@pytest.mark.verify
@pytest.mark.seeds(400, together=50)
def test_the_answer_is_that_of_spark_many(checker: QueryChecker, seeds: range) -> None:
    for seed in seeds:
        checker.check(1_000 + seed)


FOUND = {
    "a limit with an offset per row, by columns that are not handed on": "SELECT l.id, m FROM l"
    " LEFT JOIN LATERAL (SELECT concat(t, '!') AS m FROM r WHERE r.id = a ORDER BY t NULLS LAST, abs(b), b"
    " LIMIT 2 OFFSET 1)",
    "parts of distinct aggregates that differ in nulls within their types": "SELECT id % 3 AS k,"
    " count(DISTINCT array_intersect(xs, array(0.0D, double('nan')))) AS x,"
    " count(DISTINCT concat(ns, ms)) AS y FROM lists GROUP BY id % 3",
}
"""Queries whose answers were wrong, or which were refused."""


@pytest.mark.parametrize("name", FOUND)
def test_the_answer_of_what_was_found_is_that_of_spark(checker: QueryChecker, name: str) -> None:
    for seed in range(1, 4):
        checker.check_text(FOUND[name], seed)
