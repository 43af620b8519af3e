"""Column types that SQL has and Python has not: answers and their types are Spark's."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import pytest

import headrace as hr
from headrace.errors import EvaluationError, UnsupportedQuery
from tests.queries.spark_answers import check_answer, empty_frame, one_in_four

pytest.importorskip("pyspark.sql.functions")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Real(NamedTuple):
    id: int
    f: hr.Float32 | None
    g: hr.Float32 | None
    x: float | None
    n: hr.Int32 | None


class Local(NamedTuple):
    id: int
    at: hr.TimestampNtz | None
    utc: datetime | None
    day: date | None
    n: int | None


class Lasting(NamedTuple):
    id: int
    i: timedelta | None
    at: datetime | None
    local: hr.TimestampNtz | None
    day: date | None
    n: int | None
    x: float | None


class Small(NamedTuple):
    id: int
    t: hr.Int8 | None
    s: hr.Int16 | None
    i: hr.Int32 | None


def draw(choice: random.Random, table: str) -> Any:
    if table == "real":
        floats = [None, 0.0, -0.0, 0.1, 0.2, -1.5, 3e38, 16777216.0, 1e-40, float("nan"), float("inf")]
        return Real(
            choice.randrange(6),
            choice.choice(floats),
            choice.choice([None, 0.1, 0.5, -2.0, 7.25]),
            choice.choice([None, 0.1, 0.5, 1e300, -2.0]),
            choice.choice([None, *range(-3, 4), 16777217]),
        )
    if table == "local":
        later = timedelta(hours=choice.randrange(60), microseconds=choice.choice([0, 0, 1, 500_000]))
        return Local(
            choice.randrange(6),
            choice.choice([None, datetime(2024, 2, 28) + later, datetime(1969, 12, 31) + later]),
            choice.choice([None, datetime(2024, 2, 28, tzinfo=UTC) + later]),
            choice.choice([None, date(2024, 2, 28), date(2024, 3, 1)]),
            choice.choice([None, *range(-3, 4)]),
        )
    if table == "lasting":
        span = timedelta(choice.randrange(-2, 3), choice.randrange(86_400), choice.choice([0, 1, 500_000]))
        return Lasting(
            choice.randrange(6),
            choice.choice([None, timedelta(), timedelta(days=1), timedelta(hours=-1), span]),
            choice.choice([None, datetime(2024, 2, 28, 12, tzinfo=UTC) + span]),
            choice.choice([None, datetime(2024, 2, 28, 12) + span]),
            choice.choice([None, date(2024, 2, 28), date(2024, 3, 1)]),
            choice.choice([None, *range(-3, 4)]),
            choice.choice([None, 0.5, -1.5, 3.0]),
        )
    return Small(
        choice.randrange(6),
        choice.choice([None, -128, 127, *range(-3, 4)]),
        choice.choice([None, -(2**15), 2**15 - 1, *range(-3, 4)]),
        choice.choice([None, *range(-3, 4)]),
    )


OF_LOCAL_TIMES = {
    "casts": "SELECT CAST(at AS STRING) AS a, CAST(at AS DATE) AS b, CAST(at AS TIMESTAMP) AS c,"
    " CAST(utc AS TIMESTAMP_NTZ) AS d, CAST(day AS TIMESTAMP_NTZ) AS e,"
    " CAST(CAST(at AS STRING) AS TIMESTAMP_NTZ) AS f,"
    " try_cast('x' AS TIMESTAMP_NTZ) AS g,"
    " CAST('2024-02-28 10:00:00+05:00' AS TIMESTAMP_NTZ) AS h FROM local",
    "comparisons": "SELECT at < utc AS a, at = day AS b, coalesce(at, day) AS c, coalesce(at, utc) AS d,"
    " at > TIMESTAMP_NTZ'2024-02-28 12:00:00' AS e, greatest(at, day) AS f,"
    " at BETWEEN day AND utc AS g FROM local",
    "fields": "SELECT year(at) AS a, month(at) AS b, hour(at) AS c, minute(at) AS d, second(at) AS e,"
    " extract(SECOND FROM at) AS f, dayofweek(at) AS g, date_format(at, 'yyyy HH') AS h,"
    " date_trunc('hour', at) AS i,"
    " trunc(at, 'month') AS j, last_day(at) AS k, unix_timestamp(at) AS l, datediff(at, utc) AS m,"
    " weekofyear(at) AS n FROM local",
    "arithmetic": "SELECT at + INTERVAL 90 MINUTES AS a, at - INTERVAL 1 MONTH AS b,"
    " at + n * INTERVAL 1 HOUR AS c,"
    " timestampadd(MONTH, n, at) AS d, timestampdiff(HOUR, at, utc) AS e, dateadd(day, 1, at) AS f,"
    " months_between(at, day) AS g FROM local",
    "functions": "SELECT xxhash64(at) AS a, to_json(named_struct('t', at, 'u', utc)) AS b, array(at) AS c,"
    " map(coalesce(at, day, TIMESTAMP_NTZ'1969-01-01'), n) AS d, named_struct('t', at) AS e,"
    " to_json(map(coalesce(at, day, TIMESTAMP_NTZ'1969-01-01'), n)) AS f, concat('at ', at) AS g FROM local",
    "aggregates": "SELECT day, min(at) AS a, max(at) AS b, count(DISTINCT at) AS c, mode(at, true) AS d,"
    " sort_array(collect_list(at)) AS e, max_by(at, struct(at, n)) AS f FROM local GROUP BY day",
    "groups": "SELECT at, count(*) AS n FROM local GROUP BY at",
    "joins": "SELECT a.id, b.n FROM local AS a JOIN local AS b ON a.at = b.at",
    "joins with times": "SELECT a.id, b.n FROM local AS a JOIN local AS b ON a.at = b.utc AND a.at >= b.day",
    "windows": "SELECT id, lag(at) OVER (PARTITION BY day ORDER BY at, utc, n, id) AS a,"
    " row_number() OVER (PARTITION BY id ORDER BY at DESC, utc, n, day) AS b FROM local",
    "sets": "SELECT at AS x FROM local EXCEPT SELECT CAST(utc AS TIMESTAMP_NTZ) FROM local",
    "constants": "SELECT TIMESTAMP_NTZ'2024-02-28 12:00:00.5' AS a, array(TIMESTAMP_NTZ'1969-01-01') AS b,"
    " CAST(NULL AS TIMESTAMP_NTZ) AS c FROM local",
}


@pytest.mark.parametrize("name", one_in_four(OF_LOCAL_TIMES))
def test_answers_over_times_without_a_zone_are_those_of_spark(spark: SparkSession, name: str) -> None:
    text = OF_LOCAL_TIMES[name]
    flow = hr.sql(text, tables={"local": Local}, spark=spark)
    check_answer(
        spark, flow, lambda frames: spark.sql(text), {"local": Local}, draw, seed=crc32(name.encode())
    )


OF_FLOATS = {
    "arithmetic": "SELECT f + g AS a, f - g AS b, f * g AS c, f / g AS d, g % 0.3F AS e, f + n AS h,"
    " f + x AS i,"
    " f * 1.5 AS j, -f AS k, abs(g) AS l, f + 1 AS m, try_divide(f, 0) AS o FROM real",
    "casts": "SELECT CAST(g AS STRING) AS a, CAST(g AS DOUBLE) AS b, CAST(x AS FLOAT) AS c,"
    " CAST(n AS FLOAT) AS d,"
    " CAST('0.1' AS FLOAT) AS e, CAST(g AS INT) AS h, CAST(g AS DECIMAL(9, 4)) AS i, CAST(g AS BOOLEAN) AS j,"
    " CAST(1.1 AS FLOAT) AS k, CAST(12345678901234567890 AS FLOAT) AS l, CAST('NaN' AS FLOAT) AS m,"
    " CAST(1e-40 AS FLOAT) AS o FROM real",
    "comparisons": "SELECT f = g AS a, f < x AS b, f = 0.1 AS c, f = 0.1F AS d, coalesce(f, n) AS e,"
    " isnan(f) AS h,"
    " greatest(f, g) AS i, f IN (0.1F, 0.5F) AS j, f > 16777216 AS k FROM real",
    "functions": "SELECT round(g, 1) AS a, bround(g, 0) AS b, sqrt(g * g) AS c, floor(g) AS d, ceil(g) AS e,"
    " xxhash64(f, g) AS h, to_json(named_struct('f', g)) AS i, array(f, g) AS j, sign(g) AS k,"
    " nanvl(f, g) AS l,"
    " from_json(concat('{\"a\":', g, '}'), 'a FLOAT') AS m FROM real",
    "aggregates": "SELECT id, sum(g) AS a, avg(g) AS b, min(f) AS c, max(f) AS d, count(DISTINCT f) AS e,"
    " median(g) AS h, sort_array(collect_list(g)) AS i, sum(DISTINCT g) AS j, mode(g, true) AS k"
    " FROM real GROUP BY id",
    "groups": "SELECT f, count(*) AS n FROM real GROUP BY f",
    "joins": "SELECT a.id, b.n FROM real AS a JOIN real AS b ON a.f = b.g",
    "joins with doubles": "SELECT a.id, b.n FROM real AS a JOIN real AS b ON a.g = b.x",
    "windows": "SELECT id, sum(g) OVER (PARTITION BY id) AS a,"
    " row_number() OVER (ORDER BY f, g, x, n, id) AS b"
    " FROM real",
    "formats": "SELECT format_string('%.3f|%.9f|%e|%.12E|%s|%S|%9.3s', f, f, f, g, g, f, f) AS a,"
    " format_string('%1$s %1$.20f', CAST(id AS FLOAT) / 3F) AS b FROM real",
    "sets": "SELECT f AS x FROM real EXCEPT SELECT g FROM real",
    "constants": "SELECT 0.1F AS a, CAST(NULL AS FLOAT) AS b, array(1.5F) AS c FROM real",
}


@pytest.mark.parametrize("name", one_in_four(OF_FLOATS))
def test_answers_over_floats_of_32_bits_are_those_of_spark(spark: SparkSession, name: str) -> None:
    text = OF_FLOATS[name]
    flow = hr.sql(text, tables={"real": Real}, spark=spark)
    check_answer(
        spark,
        flow,
        lambda frames: spark.sql(text),
        {"real": Real},
        draw,
        seed=crc32(name.encode()),
        nearly=True,
    )


OF_INTERVALS = {
    "differences": "SELECT at - TIMESTAMP'2024-02-28 00:00:00' AS a, day - DATE'2024-01-01' AS b,"
    " day - at AS c, local - at AS d, local - local AS e, at - day AS f FROM lasting",
    "arithmetic": "SELECT i + i AS a, i - INTERVAL 1 DAY AS b, i * n AS c, n * i AS d, i / 3 AS e,"
    " i * x AS f, i / x AS g, -i AS h, abs(i) AS j, i * 1.25 AS k, try_add(i, i) AS l, try_divide(i, n) AS m,"
    " try_multiply(i, n) AS o FROM lasting",
    "times": "SELECT at + i AS a, at - i AS b, local + i AS c, day + i AS d, day + INTERVAL 2 DAYS AS e,"
    " day + (day - DATE'2024-02-27') AS f, at + n * INTERVAL 1 HOUR AS g, day - CAST(i AS INTERVAL DAY) AS h"
    " FROM lasting",
    "casts": "SELECT CAST(i AS STRING) AS a, CAST(day - DATE'2024-03-01' AS STRING) AS b,"
    " CAST(CAST(i AS INTERVAL HOUR TO MINUTE) AS STRING) AS c,"
    " CAST(CAST(i AS INTERVAL MINUTE) AS STRING) AS d,"
    " CAST(CAST(i AS STRING) AS INTERVAL DAY TO SECOND) AS e, try_cast('x' AS INTERVAL DAY) AS f,"
    " CAST('1 02:03:04.5' AS INTERVAL DAY TO SECOND) AS g, CAST(CAST(i AS INTERVAL DAY) AS STRING) AS h,"
    " CAST(CAST(i AS INTERVAL SECOND) AS STRING) AS j, concat('for ', i) AS k FROM lasting",
    "comparisons": "SELECT i > INTERVAL 1 DAY AS a, i = INTERVAL 24 HOURS AS b,"
    " coalesce(i, INTERVAL 1 DAY) AS c, greatest(i, INTERVAL 3 MINUTES) AS d,"
    " i IN (INTERVAL 1 DAY, INTERVAL 0 SECOND) AS e,"
    " i <=> NULL AS f FROM lasting WHERE i IS NULL OR i < INTERVAL 2 DAYS",
    "parts": "SELECT extract(DAY FROM i) AS a, extract(HOUR FROM i) AS b, extract(MINUTE FROM i) AS c,"
    " extract(SECOND FROM i) AS d FROM lasting",
    "functions": "SELECT xxhash64(i) AS a, array(i) AS b,"
    " to_json(named_struct('i', i, 'd', day - DATE'2024-01-01')) AS e,"
    " named_struct('t', i) AS c,"
    " CASE WHEN n > 0 THEN i ELSE INTERVAL 1 DAY END AS d FROM lasting",
    "aggregates": "SELECT n, sum(i) AS a, avg(i) AS b, min(i) AS c, max(i) AS d, count(i) AS e,"
    " count(DISTINCT i) AS f, max_by(i, struct(at, i)) AS g, sort_array(collect_list(i)) AS h,"
    " sum(DISTINCT i) AS j, avg(day - DATE'2024-02-29') AS k, sum(day - DATE'2024-02-29') AS l"
    " FROM lasting GROUP BY n",
    "percentiles": "SELECT n, median(i) AS a, percentile(i, array(0.2, 0.7)) AS b, mode(i) AS c,"
    " percentile_cont(0.3) WITHIN GROUP (ORDER BY i DESC) AS d, percentile_approx(i, 0.5) AS e"
    " FROM lasting GROUP BY n",
    "tried aggregates": "SELECT try_sum(i) AS a, try_avg(i) AS b FROM lasting",
    "groups": "SELECT i, count(*) AS n FROM lasting GROUP BY i",
    "joins": "SELECT a.id, b.n FROM lasting AS a JOIN lasting AS b ON a.i = b.i",
    "windows": "SELECT id, lag(i) OVER (PARTITION BY n ORDER BY i DESC, at, local, day, x, id) AS a,"
    " sum(i) OVER (PARTITION BY n) AS b FROM lasting",
    "sets": "SELECT i AS x FROM lasting EXCEPT SELECT at - TIMESTAMP'2024-02-28 12:00:00' FROM lasting",
}


@pytest.mark.parametrize("name", one_in_four(OF_INTERVALS))
def test_answers_over_intervals_are_those_of_spark(spark: SparkSession, name: str) -> None:
    text = OF_INTERVALS[name]
    flow = hr.sql(text, tables={"lasting": Lasting}, spark=spark)
    check_answer(spark, flow, lambda frames: spark.sql(text), {"lasting": Lasting}, draw, seed=hash(name))


OF_INTEGERS = {
    "arithmetic": "SELECT t % s AS a, try_add(t, t) AS b, t + s AS c, t + i AS d, s * i AS e, t / s AS f,"
    " t DIV 2 AS g, try_subtract(s, s) AS h, try_multiply(t, t) AS k"
    " FROM t WHERE s <> 0 AND s BETWEEN -9 AND 9",
    "casts": "SELECT CAST(t AS STRING) AS a, try_cast(s AS TINYINT) AS b, CAST(t AS DECIMAL(5,1)) AS c,"
    " CAST(t AS DOUBLE) AS d, CAST(i AS TINYINT) AS e, CAST('12' AS SMALLINT) AS f, CAST(t AS BOOLEAN) AS g,"
    " CAST(t > 0 AS TINYINT) AS h, t * 1.5 AS k FROM t",
    "comparisons": "SELECT t = s AS a, t < i AS b, t IN (1, 2) AS c, coalesce(t, s) AS d,"
    " greatest(t, i) AS e,"
    " CASE WHEN i > 0 THEN t ELSE s END AS f FROM t",
    "functions": "SELECT round(t, -1) AS a, hash(t) IS NULL AS b, xxhash64(t, s) AS c,"
    " bround(s % 100S, -1) AS e,"
    " array(t, s) AS f, map(t, s) AS g, named_struct('t', t) AS h, date_add(DATE '2024-01-31', t) AS k,"
    " make_date(2024, 1, 5 + t) AS m, format_string('%d %x', t, s) AS n,"
    " to_json(named_struct('t', t)) AS o"
    " FROM t WHERE t BETWEEN -3 AND 20",
    "aggregates": "SELECT id, sum(t) AS a, avg(s) AS b, min(t) AS c, max(s) AS d, count(DISTINCT t) AS e,"
    " sort_array(collect_set(t)) AS f, bit_and(t) AS g, median(t) AS h, mode(t, true) AS k,"
    " sum(DISTINCT s) AS m,"
    " stddev(t) AS n, max_by(t, struct(s, t)) AS o,"
    " percentile_disc(0.5) WITHIN GROUP (ORDER BY t) AS p"
    " FROM t GROUP BY id",
    "groups": "SELECT t, s, count(*) AS n FROM t GROUP BY t, s",
    "joins": "SELECT a.t, b.s FROM t AS a JOIN t AS b ON a.t = b.s AND a.id = b.id",
    "windows": "SELECT id, t, sum(t) OVER (PARTITION BY id) AS a,"
    " lag(t) OVER (PARTITION BY id ORDER BY t, s, i) AS b,"
    " count(*) OVER (ORDER BY t RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS c FROM t",
    "sets": "SELECT t AS x FROM t EXCEPT SELECT s FROM t",
    "bits": "SELECT ~t AS a, t & s AS b, t | i AS c, s ^ 7 AS d, ~i AS e, shiftleft(~i, 30) AS f,"
    " shiftleft(~t, 31) AS g, shiftrightunsigned(~i, 1) AS h, shiftrightunsigned(t ^ s, 3) AS k,"
    " ~5 & i AS m, i & id AS n, bit_count(~t) AS o, ~(t | NULL) AS p FROM t",
    "constants": "SELECT CAST(5 AS TINYINT) AS a, 7Y AS b, -3S AS c, CAST(NULL AS SMALLINT) AS d FROM t",
    "from JSON": "SELECT from_json(concat('{\"a\":', s, ',\"b\":', t, '}'),"
    " 'a TINYINT, b SMALLINT') AS x FROM t",
}


@pytest.mark.parametrize("name", one_in_four(OF_INTEGERS))
def test_answers_over_small_integers_are_those_of_spark(spark: SparkSession, name: str) -> None:
    text = OF_INTEGERS[name]
    flow = hr.sql(text, tables={"t": Small}, spark=spark)
    check_answer(spark, flow, lambda frames: spark.sql(text), {"t": Small}, draw, seed=crc32(name.encode()))


OVERFLOWS = [
    "t + t",
    "s + s",
    "-t",
    "abs(t)",
    "s * s",
    "CAST(s AS TINYINT)",
    "CAST(CAST(s AS STRING) AS TINYINT)",
    "round(t, -1)",
]


@pytest.mark.parametrize("text", OVERFLOWS)
def test_small_integers_overflow_where_they_do_on_spark(spark: SparkSession, text: str) -> None:
    from pyspark.errors import PySparkException

    empty_frame(spark, Small).createOrReplaceTempView("t")
    flow = hr.sql(f"SELECT {text} AS x FROM t", tables={"t": Small}, spark=spark)
    row = Small(1, -128 if text != "round(t, -1)" else 127, -(2**15), 0)
    with pytest.raises(EvaluationError, match=r"overflow|does not fit|int8"):
        hr.Engine(flow).tick(t=[row])
    from tests.queries.spark_answers import frame_of

    frame_of(spark, Small, [row]).createOrReplaceTempView("t")
    with pytest.raises(PySparkException):
        spark.sql(f"SELECT {text} AS x FROM t").collect()


LOCAL_WINDOWS = {
    "tumbling": "SELECT window(at, '1 hour') AS w, count(*) AS n FROM local GROUP BY 1",
    "sliding": "SELECT window.start AS s, id, sum(n) AS n FROM local"
    " GROUP BY window(at, '1 hour', '25 minutes', '7 minutes'), id",
    "of days": "SELECT window_time(w) AS t, n"
    " FROM (SELECT window(at, '1 day', '1 day', '6 hours') AS w, count(*) AS n FROM local GROUP BY 1)",
    "session": "SELECT session_window(at, '5 hours') AS w, id, count(*) AS n FROM local GROUP BY 1, 2",
    "of both": "SELECT window(utc, '1 hour') AS u, window(CAST(utc AS TIMESTAMP_NTZ), '1 hour') AS w"
    " FROM local",
    "frame": "SELECT id, at, sum(n) OVER (PARTITION BY id ORDER BY at"
    " RANGE BETWEEN INTERVAL 10 HOURS PRECEDING AND CURRENT ROW) AS a,"
    " count(*) OVER (ORDER BY at DESC"
    " RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND INTERVAL '2' DAY FOLLOWING) AS b FROM local",
}


@pytest.mark.parametrize("name", LOCAL_WINDOWS)
def test_windows_over_times_without_a_zone_are_those_of_spark(spark: SparkSession, name: str) -> None:
    text = LOCAL_WINDOWS[name]
    flow = hr.sql(text, tables={"local": Local}, spark=spark)
    check_answer(
        spark, flow, lambda frames: spark.sql(text), {"local": Local}, draw, seed=crc32(name.encode())
    )


def test_a_watermark_on_times_without_a_zone_is_refused_by_spark_and_on_their_cast_it_is_not(
    spark: SparkSession,
) -> None:
    delay = "DELAY OF INTERVAL 10 SECONDS"
    with pytest.raises(UnsupportedQuery, match=r"(?s)Spark cannot plan .* expected .TIMESTAMP."):
        hr.sql(f"SELECT id FROM local WATERMARK at {delay}", sources={"local": Local}, spark=spark)
    cast = f"(SELECT *, CAST(at AS TIMESTAMP) AS moment FROM local) WATERMARK moment {delay}"
    text = f"SELECT window(moment, '1 hour') AS w, count(*) AS n FROM {cast} GROUP BY 1"
    flow = hr.sql(text, sources={"local": Local}, spark=spark)
    assert any(node.operator.kind == "watermark" for node in flow.nodes)


def test_rows_of_a_query_with_a_type_that_flows_have_not_are_refused_by_name(spark: SparkSession) -> None:
    text = "SELECT sum(i) AS x FROM VALUES (INTERVAL 1 MONTH), (INTERVAL 2 MONTHS) AS v(i)"
    with pytest.raises(UnsupportedQuery, match="values of Spark's type interval month"):
        hr.sql(text, tables={"t": Small}, spark=spark)
