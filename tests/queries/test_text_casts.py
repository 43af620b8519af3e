"""Texts that become times, with zones, and decimals, in any script: the value is Spark's, or null."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import pytest

import headrace as hr
from headrace.errors import EvaluationError
from headrace.expr.text_casts import to_timestamp
from tests.queries.spark_answers import create_view, equal, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Text(NamedTuple):
    id: int
    s: str
    zone: str = "UTC"


class Number(NamedTuple):
    id: int
    x: float | None
    y: float | None


ZONES = [
    *("Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe", "US/Pacific", "NZ-CHAT"),
    *("UTC", "GMT", "UT", "Z", "z", "utc", "Zulu", "Etc/GMT+3", "GMT0", "europe/berlin", "UTCx", "ZZ", "ROC"),
    *("PST", "EST", "HST", "MST", "ACT", "IST", "MIT", "XST", "[Europe/Berlin]", "+02:00[Europe/Berlin]"),
    *("+3", "-3", "+03", "+0330", "+03:30", "+3:30", "+3:5", "+03:5", "+3:05:07", "+030507", "+03:05:7"),
    *("+18:00", "+18:01", "-18", "+19", "+3:60", "-00:00", "+", "-", "+٣", "+3 "),
    *("UTC+3", "UTC-3:30", "GMT+0330", "UT+1", "UTC+19", "UTC+", "GMT-3:5", "Z+1", "UTC +1"),
]
DAYS = ("2024-06-30", "2024-03-31", "2024-10-27", "2024-4-7", "1995-12-31", "2050-06-01", "2024-06")
TIMES = ("02:30:00", "2:30:0", "02:15:00.5", "23:59:59.999999", "02:30:00.", "02:30", "2", "0:0:0.1234567")
BLANKS = ("", " ", "  ", "\t", "\n", "\x00", "\x7f", "\x85", "\u00a0")


def drawn(choice: random.Random) -> str:
    before, after = choice.choice(BLANKS), choice.choice((*BLANKS, *[""] * 9))
    moment = f"{choice.choice(DAYS)}{choice.choice(' T')}{choice.choice(TIMES)}"
    return f"{moment}{before}{choice.choice((*ZONES, ''))}{after}"


def check(spark: SparkSession, texts: list[str], expression: str) -> None:
    rows = [Text(id, text) for id, text in enumerate(texts)]
    create_view(spark, rows)
    assert not value_differences(spark, rows, [f"struct(s, {expression})"], equal)


def test_times_with_each_zone_are_those_of_spark(spark: SparkSession) -> None:
    check(spark, [f"2024-06-30 02:30:00 {zone}" for zone in ZONES], "try_cast(s AS timestamp)")


@pytest.mark.seeds(2_000, together=2_000)
def test_texts_of_times_are_read_as_by_spark(spark: SparkSession, seeds: range) -> None:
    check(spark, [drawn(random.Random(seed)) for seed in seeds], "try_cast(s AS timestamp)")


def test_a_zone_means_the_same_to_other_functions(spark: SparkSession) -> None:
    valid = [zone for zone in ZONES if is_time(f"2024-01-01 00:00:00{zone}") and zone.strip() == zone]
    rows = [Text(id, "2024-10-27 01:30:00", zone) for id, zone in enumerate(valid)]
    create_view(spark, rows)
    texts = [f"{name}(CAST(s AS timestamp), zone)" for name in ("from_utc_timestamp", "to_utc_timestamp")]
    assert not value_differences(spark, rows, texts, equal)


def is_time(text: str) -> bool:
    try:
        return isinstance(to_timestamp(text), datetime)
    except EvaluationError:
        return False


@pytest.mark.parametrize("expression", ["try_to_timestamp(s)", "try_cast(s AS TIMESTAMP)"])
@pytest.mark.parametrize("text", ["10:20", "T3", " 10:20:30.5 ", "T10:20:30+01:00"])
def test_a_time_of_the_current_day_raises_and_is_not_null(
    spark: SparkSession, expression: str, text: str
) -> None:
    create_view(spark, [Text(1, text)])
    query = f"SELECT {expression} AS c FROM v"
    assert spark.sql(query).collect()[0].c is not None
    engine = hr.Engine(hr.sql(query, tables={"v": Text}, spark=spark))
    with pytest.raises(EvaluationError, match="time of the current day"):
        engine.tick(v=[hr.insert(Text(1, text))])


def test_what_looks_like_a_time_of_the_current_day_is_that_of_spark(spark: SparkSession) -> None:
    texts = ["10:60", "T", "t3", "T10:20x", "10", "25:00", "10:20:30 Nowhere", ":10", "10:20:30:40", "T3 4"]
    check(spark, texts, "try_to_timestamp(s)")
    check(spark, [*texts, "10:20", "T3"], "try_cast(s AS TIMESTAMP_NTZ)")
    check(spark, [*texts, "10:20", "T3"], "try_cast(s AS DATE)")


def test_a_cast_with_a_zone() -> None:
    assert to_timestamp("2024-06-30 02:30:00 Europe/Berlin") == datetime(2024, 6, 30, 0, 30, tzinfo=UTC)
    assert to_timestamp("2024-06-30 02:30:00 UTC+3") == datetime(2024, 6, 29, 23, 30, tzinfo=UTC)
    with pytest.raises(EvaluationError, match="cannot be read as timestamp"):
        to_timestamp("2024-06-30 02:30:00 Europe/Nowhere")


def test_blanks_around_a_text_are_those_of_spark(spark: SparkSession) -> None:
    texts = [f"{blank}{text}" for blank in BLANKS for text in ("5", "true", "2024-01-01", "1e2")]
    texts += [f"{text}{blank}" for blank in BLANKS for text in ("5", "true", "2024-01-01", "1e2")]
    types = ("int", "bigint", "boolean", "decimal(5,1)", "double", "date", "timestamp")
    check(spark, texts, ", ".join(f"try_cast(s AS {type})" for type in types))


DIGITS = [
    *("\u0663", "\u0967\u0968", "\uff11\uff12.\uff15", "1e\u0662", "\U0001d7cf", "\u00b2", "\u4e00", "1_0"),
    *("\u0663\u066b\u0665", "-\u0663", "\u0663e-1", ".\u0665", "\u0665.", "e1", "1e", "1e99"),
]


def test_digits_of_other_scripts_are_those_of_spark(spark: SparkSession) -> None:
    check(spark, DIGITS, "try_cast(s AS decimal(10,2)), try_cast(s AS int), try_cast(s AS double)")


FLOATS = [None, 0.0, -0.0, 1.5, -2.5, 7.25, -7.0, 2.0, float("nan"), float("inf"), float("-inf")]


def test_casts_of_floats_that_are_no_numbers_and_remainders(spark: SparkSession) -> None:
    pairs = [(x, y) for x in FLOATS for y in FLOATS]
    rows = [Number(id, *pair) for id, pair in enumerate(pairs)]
    create_view(spark, rows)
    safe = "CASE WHEN {b} <> 0 THEN pmod({a}, {b}) END"
    decimals = {name: f"CAST({name} AS decimal({digits}))" for name, digits in (("x", "10,2"), ("y", "5,3"))}
    expressions = [
        *("CAST(x AS decimal(10,2))", "try_cast(x AS decimal(2,1))", "CAST(array(x) AS array<decimal(9,1)>)"),
        *(
            "CAST(x AS decimal(10,2)) + CAST(y AS decimal(10,2))",
            "CAST(map(1, x) AS map<int, decimal(9,1)>)[1]",
        ),
        safe.format(a="x", b="y"),
        safe.format(a=decimals["x"], b=decimals["y"]),
        safe.format(a="id", b="-7L"),
        safe.format(a="CAST(-id AS int)", b="7"),
    ]
    assert not value_differences(spark, rows, expressions, equal)
    flow = hr.sql("SELECT pmod(x, y) AS c FROM v", tables={"v": Number}, spark=spark)
    with pytest.raises(EvaluationError, match="zero"):
        hr.Engine(flow).tick(v=[Number(1, 1.0, 0.0)])
