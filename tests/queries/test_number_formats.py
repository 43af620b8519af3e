"""Formats of `to_number`, `try_to_number` and `to_char`: of a grammar, those of Spark, with its answers."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import pytest

from headrace.errors import EvaluationError
from headrace.expr.text_casts import number_format
from headrace.expr.types import DecimalType
from tests.queries.spark_answers import create_view, equal, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.seeds]

FORMATS = 300
_TOGETHER = 50
_NUMBERS = (
    *("0", "1", "-1", "7.5", "-7.25", "12.345", "-123.4567", "999.9999", "1000", "-1234567.89", "0.0001"),
    *("-0.5", "99999999999999.9999", "-4095.0625"),
)
_TEXTS = (
    *("", " ", "0", "7", "-7", "+7", "7-", "7+", "<7>", "$7", "-$7", "$-7", "7.5", ".5", "7.", "1,234"),
    *(
        "1,234.5",
        "12,34",
        "1234",
        "001",
        "1.23456789",
        "<1,234.50>",
        "<7",
        "7>",
        "--7",
        " 7",
        "7 ",
        "$1,234-",
    ),
    *("x", "1e3", "٣", "1,", ",1", "-", "$", ".", "999999999999"),
)


class Row(NamedTuple):
    id: int
    d: Annotated[Decimal, DecimalType(18, 4)] | None
    u: str | None


def draw_format(choice: random.Random) -> str:
    """Draw a format, mostly a valid one."""

    def maybe(part: float, *texts: str) -> str:
        return choice.choice(texts) if choice.random() < part else ""

    def run(least: int) -> str:
        digits = choice.choice(("9", "0", "09", "90", "9990"))
        return "".join(choice.choice(digits) for _ in range(choice.randrange(least, 5)))

    separator = choice.choice(",Gg")
    whole = separator.join(run(1) for _ in range(choice.choice((0, 1, 1, 1, 2, 3))))
    text = maybe(0.4, "S", "MI", "s", "mI") + maybe(0.3, "$") + whole
    text += maybe(0.6, f".{run(0)}", f"D{run(0)}", f"d{run(1)}") + maybe(0.5, "S", "MI", "PR", "pr")
    if text and choice.random() < 0.2:
        at = choice.randrange(len(text))
        text = text[:at] + choice.choice(("", ",", ".", "$", "S", "x", " ", "9", "PR")) + text[at:]
    return text


def drawn_formats() -> list[str]:
    choice, found = random.Random(0), dict[str, None]()
    while len(found) < FORMATS:
        found.setdefault(draw_format(choice))
    return list(found)


def is_format(text: str) -> bool:
    try:
        number_format(text)
    except EvaluationError:
        return False
    return True


def spark_takes(spark: SparkSession, text: str) -> bool:
    """Return whether Spark's own parser of formats takes one, without planning a query for each."""
    jvm: Any = spark._jvm
    return bool(
        jvm.org.apache.spark.sql.catalyst.util.ToNumberParser(text.upper(), True)
        .checkInputDataTypes()
        .isSuccess()
    )


def test_formats_are_those_that_spark_takes(spark: SparkSession) -> None:
    formats = drawn_formats()
    assert [text for text in formats if is_format(text) != spark_takes(spark, text)] == []
    assert FORMATS / 2 < sum(map(is_format, formats)) < FORMATS


def test_numbers_by_formats_are_those_of_spark(spark: SparkSession) -> None:
    numbers = [*map(Decimal, _NUMBERS), None]
    rows = [
        Row(id, numbers[id % len(numbers)], _TEXTS[id] if id < len(_TEXTS) else None)
        for id in range(max(len(numbers), len(_TEXTS) + 1))
    ]
    create_view(spark, rows)
    formats = [text for text in drawn_formats() if is_format(text)]
    wrong: list[str] = []
    for at in range(0, len(formats), _TOGETHER):
        calls = [call for text in formats[at : at + _TOGETHER] for call in calls_of(text)]
        wrong += value_differences(spark, rows, calls, equal)
    assert not wrong


def calls_of(text: str) -> list[str]:
    # Without digits before the point, a number that has some raises.
    given = "u" if number_format(text).groups else "concat('.', substring_index(u, '.', -1))"
    return [
        f"to_char(d, '{text}')",
        f"try_to_number({given}, '{text}')",
        f"try_to_number(to_char(d, '{text}'), '{text}')",
    ]
