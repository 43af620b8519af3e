"""Scalar functions in their Spark spelling: a query's answer is Spark's own, on rows with nulls and edges."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.expr.annotations import Int32
from penstock.expr.function_bases import FixedFunction
from penstock.expr.functions import CATALOGUE
from penstock.expr.types import DecimalType
from tests.queries.spark_answers import create_view, equal, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class V(NamedTuple):
    id: int
    i: Int32 | None
    n: int | None
    x: float | None
    d: Annotated[Decimal, DecimalType(10, 2)] | None
    s: str | None
    u: str | None
    r: bytes | None
    day: date | None
    t: datetime | None
    b: bool | None
    ss: list[str] | None


def moment(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # pyright: ignore[reportArgumentType]


_LATE = moment(2024, 2, 29, 23, 59, 59, 999999)
_SPRING, _AUTUMN = moment(2024, 3, 31, 1, 30), moment(2024, 10, 27, 0, 59, 59)
_BEFORE, _TEXT = moment(1969, 12, 31, 12, 0, 0, 1), "Robert 2024-03-05 07:08:09"
ROWS = [
    V(1, 1, 10, 0.5, Decimal("1.25"), "a1,b22;c333", "b", b"ab", date(2024, 2, 29), _LATE, True, ["x", "y"]),
    V(
        2,
        -2,
        -255,
        -2.5,
        Decimal("-99.99"),
        "Straße 12\n",
        "a,b,c",
        b"\xff",
        date(1969, 12, 31),
        _BEFORE,
        False,
        [],
    ),
    V(3, *[None] * 11),
    V(
        4,
        3,
        2**40,
        1e10,
        Decimal("0.00"),
        "",
        "",
        b"",
        date(2001, 1, 1),
        moment(2001, 1, 1, 0, 30),
        True,
        [""],
    ),
    V(
        5,
        0,
        0,
        0.0,
        Decimal("12345678.90"),
        _TEXT,
        "Rupert",
        b"Man" * 30,
        date(1582, 10, 15),
        _SPRING,
        False,
        ["p"],
    ),
    V(
        6,
        20,
        7,
        math.nan,
        Decimal("2.50"),
        "😀x a1b2",
        "x",
        b"\0",
        date(2020, 12, 31),
        moment(1900, 1, 1, 5),
        None,
        None,
    ),
    V(
        7,
        7,
        -1,
        math.inf,
        Decimal("2.35"),
        "ABC abc\r\nabc",
        "abc",
        b"z",
        date(9999, 12, 31),
        _AUTUMN,
        True,
        ["q"],
    ),
    V(
        8,
        12,
        99,
        -1.0,
        Decimal("-0.05"),
        "%41+b%20c~*",
        "%",
        b"{}",
        date(2021, 1, 3),
        moment(2021, 1, 3),
        True,
        ["r"],
    ),
]
TABLE = {"v": V}

EXACT: dict[str, list[str]] = {
    "regular expressions": [
        "s RLIKE '[0-9]+'",
        "s RLIKE u",
        "regexp_like(s, '(?i)ABC$')",
        r"regexp_like(s, r'\bb\d+')",
        r"regexp_extract(s, r'([a-z])(\d+)', 2)",
        r"regexp_extract(s, r'([a-z])(\d+)')",
        r"regexp_extract_all(s, r'([a-z])(\d+)', 1)",
        r"regexp_extract_all(s, r'\d', 0)",
        r"regexp_replace(s, r'(\w)(\d)', '$2-$1')",
        "regexp_replace(s, '[aeiou]', '_', 3)",
        r"regexp_replace(s, r'\s+', '')",
        "regexp_count(s, 'a')",
        r"regexp_substr(s, r'\d+')",
        r"regexp_instr(s, r'\d')",
        "s ILIKE '%ABC%'",
        "s ILIKE u",
        "split(s, '[,;]')",
        "split(s, '')",
        "split(s, ' ', 2)",
        "str_to_map(s, ';', ',')",
        "split(s, 'a', 0)",
        "regexp_replace(s, '.', '-', 2)",
        "s LIKE ANY ('a%', '%c')",
        "s LIKE '%1/%2%' ESCAPE '/'",
        "s LIKE concat('%', left(u, 0), 'a%') ESCAPE '/'",
        "s NOT LIKE '|%41|%2%' ESCAPE '|' OR u LIKE 'aa%' ESCAPE 'a'",
        "u LIKE replace(u, '%', '/%') ESCAPE '/'",
        "like(u, '/%', '/')",
        "s ILIKE '%B20/%%' ESCAPE '/'",
        "s LIKE '%%41________' ESCAPE '%'",
    ],
    "text": [
        "concat_ws('-', s, u)",
        "concat_ws('-', s, ss, u)",
        "concat_ws(u, 'a', 'b')",
        "concat_ws('-', i, s)",
        "position('a' IN s)",
        "left(s, 2)",
        "right(s, 2)",
        "right(s, i)",
        "overlay(s PLACING 'xyz' FROM 2 FOR 1)",
        "overlay(s PLACING 'xyz' FROM 2)",
        "overlay(s, u, i)",
        "format_string('%d|%5d|%-5d|%05d|%,d|%+d|%x|%X|%o', i, i, i, i, n, n, n, i, i)",
        "format_string('%s %s %b %% %n%10s|%-5s|%.2s', s, i, b, u, u, u)",
        "format_string('%.2f %8.1f %e %.3e %,.2f %S', x, x, x, x, x, u)",
        "format_string('%2$s %1$s %s', s, u)",
        "printf('%s', x)",
        "format_number(x, 2)",
        "format_number(n, 0)",
        "format_number(d, 1)",
        "format_number(d, i)",
        "chr(n)",
        "char(n)",
        "space(i)",
        "elt(1, s, u)",
        "elt(CASE WHEN i > 0 THEN 2 ELSE 1 END, s, u)",
        "find_in_set('b', u)",
        "char_length(s)",
        "soundex(s)",
        "soundex(u)",
        "luhn_check('79927398713')",
        "luhn_check(s)",
        "ucase(s)",
        "ltrim(s)",
        "rtrim(s)",
        "btrim(s)",
        "rpad(s, 30, '-')",
        "initcap(u)",
        "reverse(u)",
        "repeat(u, 2)",
        "substring_index(s, ' ', 1)",
        "ascii(u)",
        "levenshtein(s, u)",
        "octet_length(s)",
        "bit_length(s)",
        "lcase(u)",
        "substr(s, 2)",
        "instr(s, 'b')",
        "locate('b', s, 2)",
        "lpad(s, 5)",
        "translate(s, 'ab', 'x')",
        "split_part(s, ' ', 1)",
        "split_part(u, ',', CASE WHEN i > 0 THEN i ELSE -2 END)",
        "split_part(s, u, -1)",
    ],
    "encodings": [
        "sha2(s, 256)",
        "sha2(s, 512)",
        "sha2(r, 0)",
        "sha2(r, i)",
        "md5(s)",
        "sha1(r)",
        "crc32(s)",
        "xxhash64(s, i, x, day)",
        "base64(r)",
        "base64(s)",
        "unbase64(base64(r))",
        "unbase64(CASE WHEN id > 0 THEN 'QUJD RA==' END)",
        "hex(n)",
        "hex(i)",
        "hex(s)",
        "hex(r)",
        "unhex(hex(r))",
        "unhex(s)",
        "unhex(CASE WHEN id > 0 THEN 'abc' END)",
        "bin(n)",
        "conv(s, 16, 10)",
        "conv(CAST(n AS STRING), 10, 16)",
        "conv(CAST(n AS STRING), 10, -2)",
        "conv('zz', 36, 10)",
        "encode(s, 'utf-8')",
        "decode(encode(s, 'utf-8'), 'UTF-8')",
        "url_encode(s)",
        "url_decode(url_encode(s))",
        "try_url_decode(u)",
    ],
    "JSON": [
        "get_json_object(s, '$')",
        "json_array_length(concat('[', i, ',', n, ']'))",
        "json_object_keys(concat('{\"', s, '\":1}'))",
    ],
    "numbers": [
        "bround(x, 1)",
        "bround(d, 1)",
        "bround(n, -1)",
        "round(x, CAST(NULL AS INT))",
        "bround(x, NULL)",
        "bround(i)",
        *(f"{name}(d, {digits})" for name in ("ceil", "floor") for digits in (0, 1, 2, 5, -1, -3)),
        *(f"{name}(n, {digits})" for name in ("ceil", "floor") for digits in (1, -2)),
        "floor(i, -1)",
        "ceil(CASE WHEN abs(x) < 1e9 THEN x END, 3)",
        "floor(CAST(d AS DECIMAL(38, 20)), 7)",
        "ceil(CAST(d AS DECIMAL(38, 20)), -35)",
        "rint(x)",
        "factorial(i)",
        "sign(d)",
        "sign(x)",
        "positive(i)",
        "negative(x)",
        "shiftleft(i, 2)",
        "shiftleft(n, i)",
        "shiftright(n, 2)",
        "shiftright(i, 33)",
        "shiftrightunsigned(n, 1)",
        "shiftrightunsigned(i, 1)",
        "n << 2",
        "width_bucket(x, 0, 10, 5)",
        "width_bucket(x, 10, 0, 5)",
        "nanvl(x, 1.0D)",
        "radians(x)",
        "pi() + x",
        "greatest(i, n)",
        "mod(n, 7)",
        "pmod(n, 7)",
        "signum(x)",
        "n & 7",
        "n | i",
        "n ^ 5",
        "~n",
        "CAST(bit_count(n) AS INT)",
    ],
    "conditions": [
        "nullif(i, 1)",
        "nvl(i, 1)",
        "nvl2(i, 1, 2)",
        "if(b, 1, 2)",
        "ifnull(i, 2)",
        "decode(i, 1, 'a', 3, 'b', 'c')",
        "zeroifnull(i)",
        "nullifzero(i)",
        "equal_null(i, n)",
        "isnull(s)",
        "isnotnull(s)",
        "coalesce(s, u, 'none')",
    ],
    "null on error": [
        "try_add(i, 2147483640)",
        "try_add(n, i)",
        "try_add(n, 9223372036854775800)",
        "try_add(n, 1) IS NULL AND i + 0 < 5",
        "try_add(d, CAST('99999999.99' AS DECIMAL(10,2)))",
        "try_add(x, x)",
        "try_subtract(n, -9223372036854775800)",
        "try_multiply(n, 9223372036854775807)",
        "try_multiply(CAST(d AS DECIMAL(38,2)), CAST(1e36 AS DECIMAL(38,0)))",
        "try_divide(10, i)",
        "try_divide(d, CAST(0 AS DECIMAL(3,1)))",
        "try_divide(x, x)",
        "try_divide(CAST(1 / 0.5 AS INT), 0)",
        "try_mod(n, i)",
        "try_mod(d, d)",
        "try_cast(s AS INT)",
        "try_cast(u AS DOUBLE)",
        "try_cast(s AS DATE)",
        "try_cast(substring(s, 8) AS TIMESTAMP)",
        "try_cast(x AS DECIMAL(3,2))",
        "try_cast(n AS INT)",
        "try_cast(u AS BOOLEAN)",
        "try_cast(t AS DATE)",
        "try_cast(t AS STRING)",
        "coalesce(try_cast(u AS INT), -1) = try_add(i, i)",
    ],
    "time patterns": [
        "date_format(t, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
        "date_format(t, 'yy/M/d h:m:s a')",
        "date_format(t, 'EEE, d MMM yyyy')",
        "date_format(t, 'EEEE MMMM DDD QQQ QQQQ q')",
        "date_format(t, \"k K HH 'o''clock' SSS D\")",
        "date_format(day, 'y-MM')",
        "from_unixtime(n % 100000000000)",
        "from_unixtime(n % 100000000000, 'yyyyMMdd')",
        "to_date(date_format(t, 'dd/MM/yyyy'), 'dd/MM/yyyy')",
        "to_timestamp(date_format(t, 'yyyyMMddHHmmss'), 'yyyyMMddHHmmss')",
        "to_timestamp(date_format(t, 'd MMM yyyy h:mm a'), 'd MMM yyyy h:mm a')",
        "to_timestamp(date_format(t, 'yyyy DDD SSSSSS'), 'yyyy DDD SSSSSS')",
        "try_to_timestamp(substring(s, 8), 'yyyy-MM-dd HH:mm:ss')",
        "try_to_timestamp(substring(s, 8, 10), 'yyyy-MM-dd')",
        "try_to_date(substring(s, 8, 7), 'yyyy-MM')",
        "unix_timestamp(t)",
        "unix_timestamp(day)",
        "unix_timestamp(date_format(t, 'yyyy-MM-dd HH:mm:ss'))",
        "to_unix_timestamp(date_format(t, 'yyyy-MM-dd'), 'yyyy-MM-dd')",
        "to_date(CAST(day AS STRING))",
    ],
    "time": [
        "months_between(t, day)",
        "months_between(day, t, false)",
        "next_day(to_date('2024-02-28'), 'MO')",
        "next_day(CASE WHEN id <> 7 THEN day END, 'thu')",
        "date_trunc('hour', t)",
        "date_trunc('WEEK', t)",
        "date_trunc('MON', t)",
        "date_trunc('millisecond', t)",
        "date_trunc('microsecond', t)",
        "trunc(day, 'month')",
        "trunc(day, 'quarter')",
        "trunc(day, 'yy')",
        *(
            f"extract({unit} FROM t)"
            for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "DOW_ISO", "DOY", "HOUR")
        ),
        *(f"extract({unit} FROM t)" for unit in ("MINUTE", "SECOND", "YEAROFWEEK")),
        "date_part('week', day)",
        "weekofyear(day)",
        "dayname(day)",
        "monthname(day)",
        "second(t)",
        "unix_micros(t)",
        "unix_millis(t)",
        "unix_seconds(t)",
        "timestamp_micros(n)",
        "timestamp_millis(n)",
        "timestamp_seconds(i)",
        "from_utc_timestamp(t, 'Europe/Zurich')",
        "to_utc_timestamp(t, 'America/New_York')",
        "from_utc_timestamp(t, '+05:30')",
        "datediff(day, to_date('2000-01-01'))",
        *(
            f"timestampdiff({unit}, t, timestamp'2024-02-29 12:00:00')"
            for unit in ("MICROSECOND", "SECOND", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
        ),
        *(
            f"timestampadd({unit}, i, t)"
            for unit in ("SECOND", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
        ),
        "dateadd(DAY, 1, t)",
        "make_timestamp(2024, abs(i) % 12 + 1, 1, 2, 3, 4.5)",
        "try_make_timestamp(2024, i, 31, 2, 3, 60)",
        "make_date(2024, abs(i) % 12 + 1, 1)",
        "t + INTERVAL 1 DAY",
        "t - INTERVAL '2:30' HOUR TO MINUTE",
        "t + INTERVAL 1 MONTH",
        "t + make_interval(0, 0, 0, 0, 0, 10, 0)",
        "t + make_interval(-1, 1, 1, -3, 4, -5, 6.5)",
        "CASE WHEN id <> 7 THEN t END - make_interval(0, 1, 0, 1)",
        "CASE WHEN id <> 7 THEN day END + make_interval(0, 1, 0, 1)",
        "CASE WHEN id <> 7 THEN day END - make_interval(0, 1, 0, 1)",
        "t - INTERVAL '1-2' YEAR TO MONTH",
        "CASE WHEN id <> 7 THEN day END + INTERVAL 1 DAY",
        "day - INTERVAL 1 MONTH",
        "CASE WHEN id <> 7 THEN day END + INTERVAL 1 HOUR",
        "day - 3",
        "last_day(t)",
        "date_add(to_date('2024-01-31'), i)",
        "date_sub(to_date('2024-01-31'), i)",
        "add_months(to_date('2024-01-31'), i)",
        "date_from_unix_date(i)",
    ],
}
APPROXIMATE = [
    *(
        f"{name}(x)"
        for name in (
            *(
                "exp",
                "expm1",
                "ln",
                "log",
                "log10",
                "log2",
                "log1p",
                "cbrt",
                "sin",
                "cos",
                "tan",
                "cot",
                "sec",
            ),
            *("csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt"),
        )
    ),
    *(
        "degrees(x)",
        "log(2, x)",
        "log(x, 3)",
        "log(1, n)",
        "power(x, 2)",
        "pow(x, x)",
        "pow(n, i)",
        "power(x, 0.5)",
    ),
    *(
        "atan2(x, 1)",
        "atan2(i, x)",
        "hypot(x, 3)",
        "e() * x",
        "atan2(x * 0, -1 - x * x)",
        "pow(0.0D, -1)",
        "pow(x, -x)",
        "ln(n)",
        "exp(i)",
    ),
]


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
def test_values_of_mathematics_are_close_to_those_of_spark(spark: SparkSession) -> None:
    assert not differences(spark, APPROXIMATE, close)


WITHOUT_A_NAME = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "second_with_fraction"}
"""Operators, and a field of `extract`."""


def test_every_fixed_function_has_its_spelling_here() -> None:
    written = " ".join(text for group in (*EXACT.values(), APPROXIMATE) for text in group)
    functions = {name for name, function in CATALOGUE.items() if isinstance(function, FixedFunction)}
    assert {name for name in functions if name not in written.lower()} == WITHOUT_A_NAME


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("regexp_like(s, '[a&&b]')", "intersection"),
        ("date_format(t, 'VV')", "no counterpart"),
        ("format_string('%h', s)", "no counterpart"),
        ("t + make_dt_interval(i)", "no constant"),
        ("uuid()", "otherwise each time"),
        ("monotonically_increasing_id()", "otherwise each time"),
    ],
)
def test_what_has_no_counterpart_is_refused(spark: SparkSession, expression: str, what: str) -> None:
    with pytest.raises(PenstockError, match=what):
        ps.sql(f"SELECT {expression} AS c FROM v", tables=TABLE, spark=spark)
