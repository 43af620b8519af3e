"""Scalar functions in their Spark spelling: a query's answer is Spark's own, on rows with nulls and edges."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import EvaluationError, HeadraceError
from tests.queries.interval_spellings import INTERVALS
from tests.queries.scalar_spellings import APPROXIMATE, EXACT, ROWS, V
from tests.queries.spark_answers import create_view, equal, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


TABLE = {"v": V}


@pytest.fixture(scope="module")
def given(spark: SparkSession) -> None:
    create_view(spark, ROWS)


def differences(spark: SparkSession, expressions: list[str], same: Any) -> list[str]:
    return value_differences(spark, ROWS, expressions, same)


def close(a: Any, b: Any) -> bool:
    """Equal up to the last digits."""
    if a is None or b is None or a != a or b != b:
        return equal(a, b)
    return math.isclose(a, b, rel_tol=1e-13) and math.copysign(1, a) == math.copysign(1, b)


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("group", EXACT)
def test_values_are_those_of_spark(spark: SparkSession, group: str) -> None:
    assert not differences(spark, EXACT[group], equal)


@pytest.mark.usefixtures("given")
def test_values_of_intervals_are_those_of_spark(spark: SparkSession) -> None:
    assert not differences(spark, INTERVALS, equal)


@pytest.mark.usefixtures("given")
def test_values_of_mathematics_are_close_to_those_of_spark(spark: SparkSession) -> None:
    assert not differences(spark, APPROXIMATE, close)


_NOT_RAISED = [
    "coalesce(id, raise_error(concat('no ', s)))",
    "if(id < 0, raise_error(s), array(n))",
    "if(id < 0, raise_error(s), named_struct('a', n))",
    "CASE WHEN id < 0 THEN assert_true(b) END",
    "CASE WHEN id < 0 THEN raise_error(s) END",
    "if(id < 0, raise_error(s), NULL)",
    "assert_true(id > 0)",
    "assert_true(id > 0, s)",
]


@pytest.mark.usefixtures("given")
def test_an_error_that_is_not_reached_is_not_raised(spark: SparkSession) -> None:
    assert not differences(spark, _NOT_RAISED, equal)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("raise_error(concat('no ', id))", "no 1"),
        ("raise_error('never')", "never"),
        ("raise_error(NULL)", "null"),
        ("raise_error(if(id > 1, s, NULL))", "null"),
        ("array(n, raise_error(s))", "a1,b22;c333"),
        ("coalesce(raise_error('first'), ss)", "first"),
        ("assert_true(id > 1)", r"'\(id > 1\)' is not true!"),
        ("assert_true(id > 1, concat(s, '!'))", "a1,b22;c333!"),
        ("assert_true(NULL)", "'NULL' is not true!"),
    ],
)
def test_an_error_has_the_text_that_it_has_on_spark(spark: SparkSession, expression: str, text: str) -> None:
    create_view(spark, ROWS[:1])
    query = f"SELECT {expression} AS c FROM v"
    with pytest.raises(Exception, match=rf"USER_RAISED_EXCEPTION\] {text}"):
        spark.sql(query).collect()
    with pytest.raises(EvaluationError, match=rf"P020 EvaluationError: (\S+: )?{text}"):
        hr.Engine(hr.sql(query, tables=TABLE, spark=spark)).tick(v=ROWS[:1])


def test_an_error_of_a_condition_in_python() -> None:
    flow = hr.Flow("orders")
    rows = flow.source("rows", V)
    positive = hr.functions.assert_true(hr.col.id > 0)
    flow.sink("answer", rows.select(id=hr.col.id, ok=positive))
    engine = hr.Engine(flow)
    with pytest.raises(EvaluationError, match=r"'id > 0' is not true!"):
        engine.tick(rows=[V(-1, *[None] * 11)])


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("regexp_like(s, '[a&&b]')", "intersection"),
        ("date_format(t, 'VV')", "no counterpart"),
        ("format_string('%h', s)", "no counterpart"),
        ("t + CASE WHEN i > 1 THEN make_ym_interval(i) END", "not made of numbers"),
        ("INTERVAL 1 MONTH * n", "MultiplyYMInterval"),
        ("sentences(s)", "BreakIterator"),
        ("from_csv(s, 'a INT')", "uses from_csv"),
        ("to_csv(struct(s), map('sep', ';'))", "to_csv with the option 'sep'"),
        ("to_csv(struct(ss))", r"to_csv does not write list<str>"),
        ("parse_json(s)", "variant"),
        ("uuid()", "otherwise each time"),
        ("monotonically_increasing_id()", "otherwise each time"),
    ],
)
def test_what_has_no_counterpart_is_refused(spark: SparkSession, expression: str, what: str) -> None:
    with pytest.raises(HeadraceError, match=what):
        hr.sql(f"SELECT {expression} AS c FROM v", tables=TABLE, spark=spark)
