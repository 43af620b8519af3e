"""A sample by hash: the same on every engine, in every run, and of rows that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import HeadraceError, UnsupportedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Visit(NamedTuple):
    user: int
    page: str


VISITS = [Visit(user, page) for user in range(400) for page in ("home", "cart")]


def _sampled(**options: Any) -> set[Visit]:
    flow = hr.Flow("sampled")
    flow.sink("kept", flow.source("visits", Visit).sample_by_hash(**options))
    return {change.row for change in hr.Engine(flow).tick(visits=VISITS)["kept"]}


def test_about_a_fraction_of_the_keys_is_kept_with_all_their_rows() -> None:
    kept = _sampled(fraction=0.25, by="user")
    users = {visit.user for visit in kept}
    assert kept == {visit for visit in VISITS if visit.user in users}
    assert 70 <= len(users) <= 130


def test_a_smaller_sample_is_part_of_a_larger_one_and_seeds_choose_others() -> None:
    small, large = _sampled(fraction=0.1), _sampled(fraction=0.4)
    assert small < large
    assert _sampled(fraction=0.4, seed=1) != large
    assert (_sampled(fraction=0), _sampled(fraction=1)) == (set(), set(VISITS))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"fraction": 1.5}, "a fraction from 0 to 1, got 1.5"),
        ({"fraction": -0.1}, "a fraction from 0 to 1, got -0.1"),
        ({"fraction": float("nan")}, "a fraction from 0 to 1, got nan"),
        ({"fraction": True}, "a fraction from 0 to 1, got True"),
        ({"fraction": "10 %"}, "a fraction from 0 to 1, got '10 %'"),
        ({"fraction": 0.5, "seed": 0.5}, "a whole number as seed, got 0.5"),
        ({"fraction": 0.5, "seed": 2**63}, "a whole number as seed"),
        ({"fraction": 0.5, "by": "usr"}, "no column 'usr'"),
        ({"fraction": 0.5, "by": [1]}, "needs an expression, got 1"),
        ({"fraction": 0.5, "by": hr.max(col.user)}, "needs an expression, got the aggregate"),
    ],
)
def test_a_mistake_is_refused_where_it_stands(options: dict[str, Any], what: str) -> None:
    visits = hr.Flow("mistaken").table("visits", Visit)
    with pytest.raises(HeadraceError, match=what) as refused:
        visits.sample_by_hash(**options)
    assert refused.value.where[0].location.file == __file__
    assert refused.value.fix


def test_a_column_of_any_type_has_no_hash() -> None:
    with pytest.raises(HeadraceError, match="has no hash that is the same everywhere"):
        hr.Flow("any").source("things", object).sample_by_hash(0.5)


def _sampled_by_sql(spark: SparkSession, text: str) -> list[Any]:
    """The answer of a query to all visits but those of user 7, which are taken back."""
    query = hr.sql(text, tables={"visits": Visit}, spark=spark)
    engine = hr.Engine(query)
    view = dict.fromkeys(change.row for change in engine.tick(visits=VISITS)["answer"])
    for row, weight in engine.tick(visits=[hr.delete(visit) for visit in VISITS if visit.user == 7])[
        "answer"
    ]:
        if weight < 0:
            del view[row]
        else:
            view[row] = None
    return sorted(tuple(row) for row in view)


KEPT = [visit for visit in VISITS if visit.user != 7]


@pytest.mark.spark
@pytest.mark.parametrize(
    "table",
    [
        "visits TABLESAMPLE (20 PERCENT) REPEATABLE (3)",
        "visits tablesample (bucket 1 out of 5) repeatable(3) AS v",
        "(SELECT * FROM visits WHERE user >= 0) TABLESAMPLE (20 PERCENT) REPEATABLE (3)",
    ],
)
def test_a_sample_in_sql_is_one_of_whole_rows_whatever_is_read(spark: SparkSession, table: str) -> None:
    sample = _sampled(fraction=0.2, by=("user", "page"), seed=3) - {v for v in VISITS if v.user == 7}
    assert len(KEPT) / 10 < len(sample) < len(KEPT) / 3
    assert _sampled_by_sql(spark, f"SELECT * FROM {table}") == sorted(sample)
    homes = sorted((visit.user,) for visit in sample if visit.page == "home")
    assert _sampled_by_sql(spark, f"SELECT user FROM {table} WHERE page = 'home'") == homes
    assert _sampled_by_sql(spark, f"SELECT count(*) AS n FROM {table}") == [(len(sample),)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT * FROM visits TABLESAMPLE (5 PERCENT)", "no seed in the text of the query"),
        (
            "SELECT * FROM visits TABLESAMPLE (5 PERCENT /* REPEATABLE (1) */)",
            "no seed in the text of the query",
        ),
        (
            "SELECT * FROM (SELECT page FROM visits GROUP BY page) TABLESAMPLE (5 PERCENT) REPEATABLE (1)",
            "rows of Aggregate",
        ),
    ],
)
def test_a_sample_in_sql_that_does_not_follow_rows_is_refused(
    spark: SparkSession, text: str, what: str
) -> None:
    with pytest.raises(UnsupportedQuery, match=what) as refused:
        hr.sql(text, tables={"visits": Visit}, spark=spark)
    assert refused.value.fix


@pytest.mark.spark
def test_a_sample_in_a_view_has_the_seed_of_the_views_text(spark: SparkSession) -> None:
    spark.createDataFrame([], "user BIGINT, page STRING").createOrReplaceTempView("visits")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW some AS"
        " SELECT * FROM visits TABLESAMPLE (20 PERCENT) REPEATABLE (3)"
    )
    frame = spark.table("visits")
    query = hr.from_dataframe(spark.sql("SELECT user FROM some"), tables={"visits": frame})
    sample = _sampled(fraction=0.2, by=("user", "page"), seed=3)
    changes = hr.Engine(query).tick(visits=VISITS)["answer"]
    found = [change.row.user for change in changes for _ in range(change.weight)]
    assert sorted(found) == sorted(visit.user for visit in sample)
