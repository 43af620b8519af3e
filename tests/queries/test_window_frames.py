"""Frames of windows by distance, of every type that has some: the answer is Spark's."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import pytest

import headrace as hr
from tests.queries.spark_answers import check_answer
from tests.queries.window_spellings import DISTANCES, ORDERS, frames

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Reading(NamedTuple):
    n: int | None
    i: hr.Int32 | None
    x: float | None
    f: hr.Float32 | None
    d: Annotated[Decimal, hr.DecimalType(10, 2)] | None
    day: date | None
    t: datetime | None
    local: hr.TimestampNtz | None
    span: timedelta | None
    v: int | None


START = datetime(2020, 2, 28, tzinfo=UTC)
FLOATS = (0.0, -0.0, 0.5, 1.0, 1.5, -2.0, float("nan"), float("inf"), float("-inf"))


def draw(choice: random.Random, table: str) -> Reading:
    moment = START + timedelta(days=choice.randrange(-40, 40), hours=6 * choice.randrange(4))
    moment += timedelta(minutes=choice.choice([0, 0, 5, 10]), microseconds=choice.choice([0, 0, 0, 1]))

    def or_null(value: Any) -> Any:
        return None if choice.random() < 0.15 else value

    return Reading(
        or_null(choice.randrange(-3, 4)),
        or_null(choice.randrange(-3, 4)),
        or_null(choice.choice(FLOATS)),
        or_null(choice.choice((*FLOATS, 0.1, 0.6, 0.7, 0.8, 1e-40, 3e38))),
        or_null(Decimal(choice.randrange(-300, 300, 50)) / 100),
        or_null(moment.date()),
        or_null(moment),
        or_null(moment.replace(tzinfo=None)),
        or_null(moment - START),
        or_null(choice.randrange(5)),
    )


def query(column: str, near: str, other: str) -> str:
    """Return the query of all frames of one column."""
    windows = [f"ORDER BY {column} {order} {frame}" for order in ORDERS for frame in frames(near, other)]
    listed = ", ".join(
        f"{function} OVER ({window}) AS {name}{at}"
        for at, window in enumerate(windows)
        for name, function in (("s", "sum(v)"), ("n", "count(*)"))
    )
    return f"SELECT {column}, v, {listed} FROM readings"


@pytest.mark.parametrize(
    ("column", "near", "other"),
    [
        pytest.param(column, *pair, marks=[] if at == 0 or "MONTH" in pair[1] else [pytest.mark.verify])
        for column, pairs in DISTANCES.items()
        for at, pair in enumerate(pairs)
    ],
)
def test_the_answer_is_that_of_spark(spark: SparkSession, column: str, near: str, other: str) -> None:
    tables, text = {"readings": Reading}, query(column, near, other)
    flow = hr.sql(text, tables=tables, spark=spark)
    check_answer(spark, flow, lambda _: spark.sql(text), tables, draw, seed=len(text), between=3)
