"""Single facts about Spark columns: what must raise in both, and that sessions make no difference."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace import col, lit
from headrace.errors import EvaluationError
from headrace.expr.compile_python import CodeScope, compile_rows, predicate_source
from headrace.expr.functions.intervals import to_text
from headrace.expr.row_classes import from_user, schema_of
from headrace.expr.tree import Expr, FunctionCall
from headrace.expr.types import INTERVAL, TIMESTAMP, Int32
from headrace.io.arrow import column_to_values, rows_to_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


pytestmark = pytest.mark.spark


class Row(NamedTuple):
    n: int
    m: int | None
    i: Int32
    x: float
    d: Decimal
    s: str
    t: datetime


ROW = schema_of(Row)
SUMMER = datetime(2001, 7, 1, 3, 30, tzinfo=UTC)
EDGE = Row(2**63 - 1, 0, 2**31 - 1, 0.0, Decimal("1"), "x", SUMMER)


def frame_of(spark: SparkSession, *rows: Row) -> DataFrame:
    return spark.createDataFrame(rows_to_table(from_user(ROW, what="rows")(rows), ROW))


def column_of(expr: Expr) -> Column:
    from headrace.spark.native_expressions import to_column

    return to_column(expr, ROW)


@pytest.mark.parametrize(
    "expr",
    [
        col.n + 1,
        -1 - col.n - 1,
        col.n * 2,
        -(-col.n - 1),
        (-col.n - 1).abs(),
        (-col.n - 1) // -1,
        col.i + 1,
        col.i * 2,
        col.n.cast(Int32),
        col.n.round(-1),
        col.n / col.m,
        col.n // col.m,
        col.n % col.m,
        col.x / col.x,
        col.x % -0.0,
        col.d / col.m,
        col.d % 0,
        (col.x * float("inf")).cast(int),
        (col.x + 1e30).floor(),
        col.d.cast("decimal(5,5)"),
        col.s.cast(int),
        col.s.cast(float),
        col.s.cast(bool),
        col.s.cast("decimal(5,2)"),
        col.s.to_date(),
        col.s.to_timestamp(),
        col.s.split_part("x", 0),
        col.s.like("a\\b"),
        lit(b"\xff").cast(str),
        FunctionCall("try_cast", (lit("10:20"),), (TIMESTAMP,)),
    ],
    ids=str,
)
def test_what_raises_raises_in_both(spark: SparkSession, expr: Expr) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(EvaluationError):
        compile_rows((expr,), ROW)(EDGE)
    with pytest.raises(PySparkException):
        frame_of(spark, EDGE).select(column_of(expr)).toArrow()


@pytest.mark.parametrize("digits", [400, 2**31 - 1, 2, -19, -400, -(2**31)])
def test_numbers_round_to_any_number_of_digits_in_both(spark: SparkSession, digits: int) -> None:
    exprs = (col.x.round(digits), (col.x * 1e300).round(digits), col.i.round(digits), col.d.round(digits))
    table = frame_of(spark, EDGE).select(*(column_of(each) for each in exprs)).toArrow()
    assert [column[0].as_py() for column in table.columns] == list(compile_rows(exprs, ROW)(EDGE))


@pytest.fixture
def far_from_utc(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_the_time_zone_of_the_session_makes_no_difference(far_from_utc: SparkSession) -> None:
    units = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
    day_fields = ("year", "quarter", "month", "day", "day_of_week", "weekday", "day_of_year")
    exprs: list[Expr] = [
        *(col.t.truncate(unit) for unit in units),
        *(getattr(col.t, field)() for field in (*day_fields, "hour", "minute", "second", "microsecond")),
        col.t.tumble("6h"),
        col.t.to_date(),
        col.t.to_date().to_timestamp(),
        col.t.cast(str),
        col.t.cast(int),
        col.n.cast(datetime),
        col.s.to_timestamp(),
        hr.concat(col.s, "+02:00").to_timestamp(),
        col.t == hr.timestamp("2001-07-01T03:30:00Z"),
        hr.when(col.n > 0, SUMMER).otherwise(col.t),
        hr.hash(col.t),
    ]
    # Around the hours that New York skips and repeats.
    moments = [
        SUMMER,
        datetime(2001, 1, 1, 0, 0, 0, 5, UTC),
        datetime(2001, 4, 1, 6, 59, tzinfo=UTC),
        datetime(2001, 4, 1, 7, 30, tzinfo=UTC),
        datetime(2001, 10, 28, 5, 30, tzinfo=UTC),
        datetime(2001, 10, 28, 6, 30, tzinfo=UTC),
        datetime(1883, 11, 18, 17, 0, 1, tzinfo=UTC),
    ]
    some = [
        EDGE._replace(n=at, t=moment, s=moment.strftime("%Y-%m-%d %H:%M:%S"))
        for at, moment in enumerate(moments)
    ]
    answer = frame_of(far_from_utc, *some).select(
        *(column_of(e).alias(str(at)) for at, e in enumerate(exprs))
    )
    table = answer.toArrow()
    for at, expr in enumerate(exprs):
        from headrace.expr.check import check

        its = list(column_to_values(table[str(at)], check(expr, ROW).type))
        assert its == [compile_rows((expr,), ROW)(row)[0] for row in some], str(expr)


@pytest.mark.parametrize(
    "expr",
    [
        (col.m > 1) & (col.n > 2),
        ~((col.m > 1) & (col.n > 2)),
        (col.m > 1) | col.m.is_null(),
        ~(col.m.is_in(1, None)),
        col.m.between(1, 3),
        col.x > 0.5,
        ~(col.x == col.x + 1),
    ],
    ids=str,
)
def test_filters_keep_the_same_rows(spark: SparkSession, expr: Expr) -> None:
    values: list[tuple[Any, Any, Any]] = [
        (n, m, x)
        for n, m, x in zip(range(12), [None, 1, 2, 3] * 3, [0.0, float("nan"), 1.0] * 4, strict=True)
    ]
    some = [EDGE._replace(n=n, m=m, x=x) for n, m, x in values]
    scope = CodeScope(ROW, Row._fields, {})
    from headrace.expr.compile_python import RUNTIME

    source = f"lambda {', '.join(Row._fields)}: {predicate_source(expr, scope)}"
    keeps = eval(source, {**RUNTIME, **scope.constants})
    kept = frame_of(spark, *some).where(column_of(expr)).select("n").toArrow()["n"].to_pylist()
    assert sorted(kept) == [row.n for row in some if keeps(*row)]


def test_constants_of_intervals_are_exact(spark: SparkSession) -> None:
    least = timedelta(microseconds=1)
    spans = [least * micros for micros in (2**63 - 1, -(2**63), 10**17 - 1, 1 - 10**18, -1, 0)]
    spans += [timedelta(days=day, microseconds=999_999) for day in (-(10**8), 182_500, 10**8)]
    for span in spans:
        column = column_of(lit(span)).cast("string")
        shifted = column_of(hr.when(col.s == "x", timedelta()) + span).cast("string")
        assert frame_of(spark, EDGE).select(column, shifted).collect()[0] == (to_text(span, 0, 3),) * 2


@pytest.mark.parametrize(
    "text", ["1   2:3:4", "\xa01 2:3:4", "\x011 2:3:4\x7f", "INTERVAL ' 1 2:3:4' DAY TO SECOND", " 1 2:3:4 "]
)
def test_the_same_blanks_are_in_texts_of_intervals(spark: SparkSession, text: str) -> None:
    span = FunctionCall("try_cast", (col.s,), (INTERVAL,))
    row = EDGE._replace(s=text)
    ((found,),) = frame_of(spark, row).select(column_of(span)).collect()
    assert compile_rows((span,), ROW)(from_user(ROW, what="rows")([row])[0])[0] == found


def test_constants_that_overflow_alone_do_no_harm(spark: SparkSession) -> None:
    column = column_of(col.n + -1 + -(2**63))
    assert frame_of(spark, EDGE).select(column.alias("sum")).collect()[0]["sum"] == -2
