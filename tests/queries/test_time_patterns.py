"""Patterns of times, to read and to write: each letter alone, all pairs, and some more are as on Spark."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import pytest

PySparkException = pytest.importorskip("pyspark.errors").PySparkException

from headrace.errors import EvaluationError
from headrace.expr.time_patterns import format_pattern, parse_pattern
from tests.queries.spark_answers import create_view, equal, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Reading(NamedTuple):
    id: int
    pattern: str
    text: str


class Writing(NamedTuple):
    id: int
    pattern: str
    at: datetime


NUMBERS = {
    "M": (1, 2), "L": (1, 2), "d": (1, 2), "D": (1, 2, 3), "H": (1, 2), "k": (1, 2), "K": (1, 2), "h": (1, 2),
    "m": (1, 2), "s": (1, 2),
}  # fmt: skip
READ = [
    *("y", "yy", "yyy", "yyyy", "yyyyy", "yyyyyy"),
    *(letter * width for letter, widths in NUMBERS.items() for width in widths),
    *("MMM", "MMMM", "LLL", "LLLL", "S", "SS", "SSS", "SSSSSS", "SSSSSSSSS", "a"),
]
WRITTEN = [*READ, *(letter * width for letter in "QqE" for width in range(1, 5))]
MOMENTS = [
    datetime(2024, 2, 9, 13, 5, 7, 123456, UTC),
    datetime(1999, 12, 31, 0, 59, 0, 500, UTC),
    datetime(7, 5, 1, 12, 0, 59, 0, UTC),
    datetime(9999, 9, 30, 23, 9, 9, 999999, UTC),
]
ODD = {
    "y": ["2024", "0007", "7", "00", "99", "999", "02024", "12024", "+12024", "-0007", "-0", "+2024", "0"],
    "S": ["0", "5", "05", "123", "999999", "123456789", "1234567890", "-1"],
    "a": ["AM", "pm", "Pm", "a", "noon", ""],
    "names": [
        "Jan",
        "may",
        "SEPT",
        "sep",
        "January",
        "MAY",
        "Mai",
        "apr\u0131l",
        "APR\u0130L",
        "\u017fep",
        "5",
    ],
}
NUMBERS_AS_TEXT = [
    *map(str, (0, 1, 9, 11, 12, 13, 23, 24, 25, 28, 29, 30, 31, 32, 59, 60, 99, 100, 365, 366, 367)),
    *("00", "01", "09", "001", "060", "0001", "-1", "+1", "-0", "", " 1", "٣"),
]


def shown(run: str, t: datetime) -> str:
    """What a run of one letter writes."""
    letter, width = run[0], len(run)
    if letter == "y":
        return f"{t.year % 100:02d}" if width == 2 else f"{t.year:0{width}d}"
    if letter == "S":
        return f"{t.microsecond:06d}000"[:width]
    if letter == "a":
        return t.strftime("%p")
    if letter in "ML" and width > 2:
        return t.strftime("%b" if width == 3 else "%B")
    of_year = t.timetuple().tm_yday
    hours = {"H": t.hour, "k": t.hour or 24, "K": t.hour % 12, "h": t.hour % 12 or 12}
    value = {"M": t.month, "L": t.month, "d": t.day, "D": of_year, "m": t.minute, "s": t.second, **hours}
    return f"{value[letter]:0{width}d}"


def odd(run: str) -> list[str]:
    return ODD.get("names" if run[0] in "ML" and len(run) > 2 else run[0], NUMBERS_AS_TEXT)


def alone() -> list[tuple[str, str]]:
    return [(run, text) for run in READ for text in (*(shown(run, t) for t in MOMENTS), *odd(run))]


def pairs() -> list[tuple[str, str]]:
    made: list[tuple[str, str]] = []
    for one in READ:
        for other in READ:
            for between, t in (("-", MOMENTS[0]), ("", MOMENTS[1]), (" ", MOMENTS[3])):
                text = f"{shown(one, t)}{between}{shown(other, t)}"
                made.append((f"{one}{between}{other}", text))
    return made


def drawn(choice: random.Random) -> tuple[str, str]:
    """A pattern of several runs, and a text that follows it for the most part."""
    runs = choice.sample(READ, choice.randrange(2, 6))
    betweens = [choice.choice(["-", " ", "", "", ":", "/", "'T'", "''", "é"]) for _ in runs]
    t = choice.choice(MOMENTS)
    texts = [choice.choice(odd(run)) if choice.random() < 0.15 else shown(run, t) for run in runs]
    pattern = "".join(map("".join, zip(runs, betweens, strict=True)))
    plain = ("'" if each == "''" else each.strip("'") for each in betweens)
    text = "".join(map("".join, zip(texts, plain, strict=True)))
    letters = {"M" if run[0] == "L" else run[0] for run in runs}
    if choice.random() < 0.3 and len(letters) == len(runs):
        at = choice.randrange(len(runs))
        cut = sum(map(len, (*runs[:at], *betweens[:at])))
        pattern = f"{pattern[:cut]}[{pattern[cut:]}{choice.choice(['', ']'])}"
        text = choice.choice([text, "".join(map("".join, zip(texts[:at], betweens[:at], strict=True)))])
    return pattern, choice.choice([text, text, text, text.lower(), text.upper(), text[:-1], text + "1"])


def check(spark: SparkSession, cases: list[tuple[str, str]]) -> None:
    rows = [Reading(id, *case) for id, case in enumerate(cases) if not is_beyond(*case)]
    create_view(spark, rows)
    assert not value_differences(
        spark, rows, ["struct(pattern, text, try_to_timestamp(text, pattern))"], equal
    )


def is_beyond(pattern: str, text: str) -> bool:
    """Whether the time lies outside the years 1 to 9999, which only Spark has."""
    try:
        parse_pattern(pattern).parse(text)
    except EvaluationError:
        return True
    return False


def test_each_letter_alone_reads_what_spark_reads(spark: SparkSession) -> None:
    check(spark, alone())


def test_pairs_of_letters_read_what_spark_reads(spark: SparkSession) -> None:
    check(spark, pairs())


@pytest.mark.seeds(3_000, together=3_000)
def test_several_letters_read_what_spark_reads(spark: SparkSession, seeds: range) -> None:
    check(spark, [drawn(random.Random(seed)) for seed in seeds])


def test_a_year_that_only_spark_has_is_an_error(spark: SparkSession) -> None:
    for text, pattern in (("12024", "y"), ("+12024-1-1", "yyyy-M-d"), ("-5 365", "y D")):
        assert spark.sql(f"SELECT try_to_timestamp('{text}', '{pattern}') IS NOT NULL AS c").collect()[0].c
        with pytest.raises(EvaluationError, match="does not fit timestamp"):
            parse_pattern(pattern).parse(text)


def test_letters_write_what_spark_writes(spark: SparkSession) -> None:
    patterns = [*WRITTEN, *(f"{one}{other}" for one in WRITTEN for other in WRITTEN if one[0] != other[0])]
    cases = [(each, t) for each in patterns for t in (MOMENTS if len(each) < 5 else MOMENTS[1:3])]
    rows = [Writing(id, *case) for id, case in enumerate(cases)]
    create_view(spark, rows)
    assert not value_differences(spark, rows, ["struct(pattern, date_format(at, pattern))"], equal)


REFUSED = ["yyyyyyy", "MMMMM", "ddd", "DDDD", "HHH", "aa", "SSSSSSSSSS", "QQQQQ", "EEEEE", "d]", "b", "' y"]


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_spark_refuses_is_refused(spark: SparkSession, pattern: str) -> None:
    frame = spark.createDataFrame([(pattern,)], "pattern string")
    with pytest.raises(PySparkException):
        frame.selectExpr("date_format(current_timestamp(), pattern)").collect()
    with pytest.raises(EvaluationError):
        format_pattern(pattern)
