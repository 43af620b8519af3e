"""Casts from and to text against answers that Spark 4.3 gave."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from headrace import col
from headrace.errors import EvaluationError
from headrace.expr.compile_python import compile_rows
from headrace.expr.functions.hashing import MURMUR3, SEED, XXHASH64, HashFamily, hash_values
from headrace.expr.row_classes import schema_of
from headrace.expr.text_casts import format_float, of_float32
from headrace.expr.tree import Expr
from headrace.expr.types import BYTES, FLOAT64, INT32, STR, DecimalType, Int32


class Text(NamedTuple):
    s: str
    x: float


def read(text: str, type: Any) -> Any:
    return compile_rows((col.s.cast(type),), schema_of(Text))((text, 0.0))[0]


def write(number: float) -> str:
    return compile_rows((col.x.cast(str),), schema_of(Text))(("", number))[0]


@pytest.mark.parametrize(
    ("text", "type", "expected"),
    [
        ("  12 ", int, 12),
        ("+12", Int32, 12),
        ("1.5d", float, 1.5),
        ("0x1p3", float, 8.0),
        (" Infinity", float, float("inf")),
        ("1e400", float, float("inf")),
        (".5", float, 0.5),
        ("5.", float, 5.0),
        ("1e3", "decimal(10,2)", Decimal("1000.00")),
        (" 1.005 ", "decimal(10,2)", Decimal("1.01")),
        (" T ", bool, True),
        ("no", bool, False),
        ("2001-1-2", date, date(2001, 1, 2)),
        ("2001", date, date(2001, 1, 1)),
        ("2001-01-02 foo", date, date(2001, 1, 2)),
        ("2001-01-02T", date, date(2001, 1, 2)),
        ("2001-01-02 3:4", datetime, datetime(2001, 1, 2, 3, 4, tzinfo=UTC)),
        ("2001-01-02 03", datetime, datetime(2001, 1, 2, 3, tzinfo=UTC)),
        ("2001-01-02 03:04:05.1234567", datetime, datetime(2001, 1, 2, 3, 4, 5, 123456, UTC)),
        ("2001-01-02T03:04:05+01:30", datetime, datetime(2001, 1, 2, 1, 34, 5, tzinfo=UTC)),
        ("2001-01-02T03:04:05+1:3", datetime, datetime(2001, 1, 2, 2, 1, 5, tzinfo=UTC)),
        ("2001-01-02 03:04:05 Z", datetime, datetime(2001, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2001-01-02 03:04:05UTC", datetime, datetime(2001, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2001-01-02 03:04:05+0130", datetime, datetime(2001, 1, 2, 1, 34, 5, tzinfo=UTC)),
        ("2001-01-02 03:04:05+013015", datetime, datetime(2001, 1, 2, 1, 33, 50, tzinfo=UTC)),
        ("2001-01-02 03:04:05.", datetime, datetime(2001, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("02001-01-02 03", datetime, datetime(2001, 1, 2, 3, tzinfo=UTC)),
        ("2001-01-02 03:04:05.12   +1", datetime, datetime(2001, 1, 2, 2, 4, 5, 120000, UTC)),
        ("2001-01", datetime, datetime(2001, 1, 1, tzinfo=UTC)),
    ],
)
def test_text_is_read_as_spark_reads_it(text: str, type: Any, expected: object) -> None:
    assert repr(read(text, type)) == repr(expected)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("1.", int),
        ("1.0", int),
        ("-", int),
        ("1_0", int),
        ("1e5", int),
        ("\u0661", int),
        ("9223372036854775808", int),
        ("2147483648", Int32),
        ("\uff11", float),
        (".", float),
        ("1e", float),
        ("infinityd", float),
        ("1.0f", "decimal(10,2)"),
        ("nan", "decimal(10,2)"),
        ("123.45", "decimal(4,2)"),
        ("on", bool),
        ("", bool),
        ("2001-01-02foo", date),
        ("2001-02-29", date),
        ("2001-01-02 24:00:00", datetime),
        ("2001-01-02 03:04:60", datetime),
        ("2001-01-02 03:04:05z", datetime),
        ("2001-01-02 03:04:05+19:00", datetime),
        ("2001-01-02T", datetime),
        ("T12:00", datetime),
        ("2001-01-02 foo", datetime),
        ("2001-01-02 03:04Z", datetime),
        ("2001-01-02 03:04+01:00", datetime),
        ("2001-01-02 03:04:", datetime),
        ("2001-01-02 03:04:05+", datetime),
        ("2001-01-02 03:04:05+1:", datetime),
        ("2001-01-02 03:04:05+001:00", datetime),
        ("2001-01-02 03:04:05+100", datetime),
    ],
)
def test_text_that_spark_refuses_raises(text: str, type: Any) -> None:
    with pytest.raises(EvaluationError):
        read(text, type)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (1e20, "1.0E20"),
        (5e-324, "4.9E-324"),
        (0.002, "0.002"),
        (1e7, "1.0E7"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (123456.7, "123456.7"),
        (12345678.9, "1.23456789E7"),
        (-0.0, "-0.0"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_floats_are_written_as_java_writes_them(number: float, shown: str) -> None:
    assert write(number) == shown


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        (col.s.substring(0, 2), "ab"),
        (col.s.substring(-5, 3), "a"),
        (col.s.substring(-2, 9), "bc"),
        (col.s.substring(2, -1), ""),
        (col.s.substring(2, 1), "b"),
        (col.s.substring(col.x.cast(int) + 4, 2), ""),
        (col.s.replace("", "x"), "abc"),
        (col.s.replace("b", ""), "ac"),
        (col.s.like("a%"), True),
        (col.s.like("_b_"), True),
        (col.s.like("b%"), False),
        (col.s.like("a\\%"), False),
        (col.s.split_part("b", 1), "a"),
        (col.s.split_part("b", -1), "c"),
        (col.s.split_part("b", 3), ""),
        (col.s.split_part("", 1), "abc"),
        (col.s.split_part("", 2), ""),
        ((col.s + "  ").trim().upper(), "ABC"),
    ],
    ids=str,
)
def test_parts_of_text_are_those_of_spark(expr: Expr, shown: str) -> None:
    assert compile_rows((expr,), schema_of(Text))(("abc", 0.0)) == (shown,)


def test_the_hash_is_spark_s_xxhash64() -> None:
    def hashed(*typed: tuple[Any, Any], family: HashFamily = XXHASH64) -> int:
        return hash_values(family.bits, tuple(family.of_type(t) for t, _ in typed), *(v for _, v in typed))

    assert hashed((INT32, 1), (STR, "a")) == 8205864924878002737
    assert hashed((DecimalType(10, 2), Decimal("1.50"))) == -6873856301616164681
    assert hashed((DecimalType(30, 2), Decimal("1.50"))) == -194698251525976593
    assert hashed((FLOAT64, float("nan")), (FLOAT64, -0.0), (FLOAT64, 0.0)) == -6413057423365419780
    assert hashed((BYTES, None)) == SEED
    assert hashed((STR, "Spark"), family=MURMUR3) == 228093765


@pytest.mark.parametrize("type", [float, DecimalType(38, 10), int], ids=str)
@pytest.mark.parametrize("start", ["", "0x", "1.", "1e"])
def test_a_long_text_that_is_almost_a_number_is_refused_at_once(start: str, type: Any) -> None:
    # With two ways to match digits, this takes hours.
    with pytest.raises(EvaluationError):
        read(start + "1" * 1_000_000 + "x", type)


def test_a_float_has_its_shortest_digits_whatever_the_java() -> None:
    assert of_float32(123456792.0) == "1.2345679E8"
    assert of_float32(16777216.0) == "1.6777216E7"
    assert format_float(2e23) == "2.0E23"
