"""Positions of unsupported constructs in the text of a query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from headrace import from_dataframe, sql
from headrace.errors import UnsupportedQuery
from headrace.queries.query_file import load_query
from tests.golden import MESSAGES, assert_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Item(NamedTuple):
    id: int
    price: int | None
    kind: str | None


def shown(spark: SparkSession, text: str) -> str:
    """The line of the text that the error shows, without the file, and what it points to."""
    with pytest.raises(UnsupportedQuery) as told:
        sql(text, tables={"items": Item}, spark=spark)
    caller, step = told.value.where
    assert caller.location.function == "shown"
    return step.line()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT id,\n  upper(to_xml(struct(kind))) AS x\nFROM items",
            "  <query>:2   upper(to_xml(struct(kind))) AS x      <- to_xml(struct(kind))",
        ),
        (
            "SELECT id, approx_top_k(price)\n  AS t FROM items\nGROUP BY id",
            "  <query>:1   SELECT id, approx_top_k(price)      <- approx_top_k(price)",
        ),
        (
            "SELECT '\u2028 \U0001f409' AS u,\r\n to_xml(struct(kind)) AS m FROM items",
            "  <query>:2   to_xml(struct(kind)) AS m FROM items      <- to_xml(struct(kind))",
        ),
        ("SELECT *\nFROM items\n  TABLESAMPLE (10 PERCENT)", "  <query>:3   TABLESAMPLE (10 PERCENT)"),
        (
            "SELECT id FROM items\nWHERE price > (\n  SELECT max(length(to_xml(struct(id))))\n  FROM items)",
            "  <query>:3   SELECT max(length(to_xml(struct(id))))      <- to_xml(struct(id))",
        ),
        (
            "SELECT id FROM items WHERE\n  kind LIKE 'ä%' AND to_xml(struct('ö', id)) = '☂'",
            "  <query>:2   kind LIKE 'ä%' AND to_xml(struct('ö', id)) = '☂'      <- to_xml(struct('ö', id))",
        ),
    ],
)
def test_the_piece_of_text_is_shown(spark: SparkSession, text: str, expected: str) -> None:
    assert shown(spark, text) == expected


def test_two_errors_show_their_own_text(spark: SparkSession) -> None:
    first, second = (
        "SELECT\n to_xml(struct(kind)) AS x FROM items",
        "SELECT\n to_xml(struct(kind)) AS y FROM items",
    )
    with pytest.raises(UnsupportedQuery) as one:
        sql(first, tables={"items": Item}, spark=spark)
    with pytest.raises(UnsupportedQuery):
        sql(second, tables={"items": Item}, spark=spark)
    assert "AS x" in one.value.where[1].line()


def test_the_text_of_a_view_is_not_that_of_the_query(spark: SparkSession) -> None:
    spark.createDataFrame([], "id INT, kind STRING").createOrReplaceTempView("items")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW parsed AS SELECT id, to_xml(struct(kind)) AS x FROM items")
    with pytest.raises(UnsupportedQuery) as told:
        sql("SELECT id, x\nFROM\n parsed WHERE x > 'a'", tables={"items": Item}, spark=spark)
    assert not any("to_xml(" in step.line() for step in told.value.where[1:])


def test_a_file_is_named_with_its_line(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "sampled.sql"
    file.write_text("-- table items: id BIGINT\nSELECT id\nFROM items TABLESAMPLE (5 PERCENT)\n")
    with pytest.raises(UnsupportedQuery) as told:
        load_query(file)
    assert_golden(MESSAGES / "unsupported_query.txt", f"{told.value}\n")


def test_a_dataframe_has_no_text(spark: SparkSession) -> None:
    items = spark.createDataFrame([], "id INT")
    with pytest.raises(UnsupportedQuery, match="no seed in the text") as told:
        from_dataframe(items.sample(0.5), tables={"items": items})
    (step,) = told.value.where
    assert step.location.function == "test_a_dataframe_has_no_text"
