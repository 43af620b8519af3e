"""Settings of a session that change answers: the plan has them, or the query is refused by their name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import NoFixpoint, UnsupportedQuery
from headrace.queries.plan_details import ASSUMED
from tests.queries.spark_answers import check_answer, empty_frame
from tests.queries.test_constructs import TABLES, Event, Item, draw

F = pytest.importorskip("pyspark.sql.functions")
Py4JJavaError = pytest.importorskip("py4j.protocol").Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BERLIN = {"spark.sql.session.timeZone": "Europe/Berlin"}
OTHERS = {
    "true": "false",
    "false": "true",
    "": "true",
    "min": "max",
    "_corrupt_record": "wrong",
    "EXCEPTION": "LAST_WIN",
    "CORRECTED": "LEGACY",
}
"""For a value that is assumed, another one."""


def session_with(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


@pytest.mark.parametrize("name", ASSUMED)
def test_a_setting_by_which_rows_would_be_computed_otherwise_is_refused(
    spark: SparkSession, name: str
) -> None:
    other = OTHERS[ASSUMED[name]]
    session = session_with(spark, {name: other})
    with pytest.raises(UnsupportedQuery) as refused:
        hr.sql("SELECT a FROM items", tables=TABLES, spark=session)
    assert refused.value.what == f"{name} is {other}"
    wanted = f'set("{name}", "{ASSUMED[name]}")' if ASSUMED[name] else f'unset("{name}")'
    assert refused.value.fix == f"spark.conf.{wanted}"
    items = empty_frame(session, TABLES["items"])
    with pytest.raises(UnsupportedQuery, match=name):
        hr.from_dataframe(items.select("a"), tables={"items": items})


def test_settings_of_a_session_are_those_that_are_assumed(spark: SparkSession) -> None:
    found = {name: spark.conf.get(name, value or None) or "" for name, value in ASSUMED.items()}
    assert {name: value.lower() for name, value in found.items()} == {
        name: value.lower() for name, value in ASSUMED.items()
    }


MADE: dict[str, tuple[str, str, Callable[[DataFrame], DataFrame]]] = {
    "sum": ("spark.sql.ansi.enabled", "false", lambda items: items.select(F.col("id") + F.col("a"))),
    "cast": ("spark.sql.ansi.enabled", "false", lambda items: items.select(F.col("s").cast("int"))),
    "precision": (
        "spark.sql.decimalOperations.allowPrecisionLoss",
        "false",
        lambda items: items.select(F.col("a").cast("decimal(38,10)") * F.col("id").cast("decimal(38,10)")),
    ),
    "zone": (
        "spark.sql.session.timeZone",
        "Europe/Berlin",
        lambda items: items.select(F.hour(F.timestamp_seconds("a"))),
    ),
}


def test_a_cast_that_is_the_same_in_each_mode_is_planned(spark: SparkSession) -> None:
    session = session_with(spark, {"spark.sql.ansi.enabled": "false"})
    items = empty_frame(session, TABLES["items"])
    made = items.select(F.col("a").cast("double"), F.col("id").cast("string"))
    assert len(made.schema) == 2
    session.conf.set("spark.sql.ansi.enabled", "true")
    flow = hr.from_dataframe(made, tables={"items": items})
    assert [tuple(c.row) for c in hr.Engine(flow).tick(items=[Item(1, 2, "x")])["answer"]] == [(2.0, "1")]


@pytest.mark.parametrize("name", MADE)
def test_what_was_made_under_another_setting_is_refused(spark: SparkSession, name: str) -> None:
    setting, other, make = MADE[name]
    session = session_with(spark, {setting: other})
    items = empty_frame(session, TABLES["items"])
    made = make(items)
    made.schema  # noqa: B018 - it is analysed now
    session.conf.set(setting, ASSUMED.get(setting, "UTC"))
    with pytest.raises(UnsupportedQuery, match=f"{setting} is {other}"):
        hr.from_dataframe(made, tables={"items": items})


IN_BERLIN = {
    "constants": "SELECT TIMESTAMP '2024-07-01 00:00:00' AS x, hour(TIMESTAMP '2024-07-01 00:00:00Z') AS y,"
    " CAST(DATE '2024-01-01' AS TIMESTAMP) AS z FROM items",
    "comparisons": "SELECT k, max(ts) AS x FROM events WHERE ts > TIMESTAMP '2020-01-01 01:05:00' GROUP BY k",
    "windows": "SELECT window(ts, '10 minutes').start AS w, sum(v) AS v FROM events GROUP BY 1",
    "folded": "SELECT v FROM events WHERE ts > DATE '2020-01-01'",
    "sums": "SELECT s, sum(a) AS n FROM items GROUP BY s",
}


@pytest.mark.parametrize("name", IN_BERLIN)
def test_what_another_time_zone_does_not_change_is_planned(spark: SparkSession, name: str) -> None:
    session, text = session_with(spark, BERLIN), IN_BERLIN[name]
    flow = hr.sql(text, tables=TABLES, spark=session)
    check_answer(session, flow, lambda _: session.sql(text), TABLES, draw, 1)


@pytest.mark.parametrize(
    "value",
    [
        *("hour(ts)", "CAST(ts AS STRING)", "CAST(k AS TIMESTAMP)", "to_date(ts)", "date_trunc('DAY', ts)"),
        *("date_format(ts, 'HH')", "to_json(struct(ts))", "CAST(current_timestamp() AS STRING)", "later(ts)"),
        *("current_date()", "unix_timestamp(k, 'yyyy')", "from_json(k, 'x timestamp')", "array(ts)[0] || ''"),
    ],
)
def test_what_is_computed_in_another_time_zone_is_refused(spark: SparkSession, value: str) -> None:
    session = session_with(spark, BERLIN)
    session.udf.register("later", F.udf(lambda ts: ts, "timestamp"))
    with pytest.raises(UnsupportedQuery, match=r"spark\.sql\.session\.timeZone is Europe/Berlin"):
        hr.sql(f"SELECT {value} AS x FROM events", tables=TABLES, spark=session)


def test_a_session_in_utc_by_another_name_is_taken(spark: SparkSession) -> None:
    session = session_with(spark, {"spark.sql.session.timeZone": "Etc/UTC"})
    flow = hr.sql("SELECT hour(ts) AS x FROM events", tables=TABLES, spark=session)
    event = Event(datetime(2024, 1, 1, 7, tzinfo=UTC), "x", 1)
    assert [change.row.x for change in hr.Engine(flow).tick(events=[event])["answer"]] == [7]


PLANNED: list[tuple[dict[str, str], str]] = [
    ({"spark.sql.caseSensitive": "false"}, "SELECT ID AS x FROM items"),
    ({"spark.sql.caseSensitive": "true"}, "SELECT x.id, x.ID FROM (SELECT id, a AS ID FROM items) x"),
    ({"spark.sql.groupByOrdinal": "false"}, "SELECT count(*) AS n FROM items GROUP BY 1"),
    ({"spark.sql.groupByOrdinal": "true"}, "SELECT s, count(*) AS n FROM items GROUP BY 1"),
    ({"spark.sql.orderByOrdinal": "true"}, "SELECT DISTINCT id FROM items ORDER BY 1 DESC LIMIT 2"),
    ({"spark.sql.ansi.doubleQuotedIdentifiers": "true"}, 'SELECT "id" AS x FROM items'),
    ({"spark.sql.ansi.doubleQuotedIdentifiers": "false"}, 'SELECT "id" AS x FROM items'),
    ({"spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true"}, "SELECT id * 1E1 AS x FROM items"),
    ({"spark.sql.parser.escapedStringLiterals": "true"}, r"SELECT s || 'a\nb' AS x FROM items"),
    ({"spark.sql.parser.escapedStringLiterals": "false"}, r"SELECT s || 'a\nb' AS x FROM items"),
    ({"spark.sql.legacy.sizeOfNull": "true"}, "SELECT size(if(a > 1, array(a), NULL)) AS x FROM items"),
    (
        {"spark.sql.legacy.integerGroupingId": "true"},
        "SELECT a, grouping_id() AS g FROM items GROUP BY CUBE (a)",
    ),
    ({"spark.sql.function.concatBinaryAsString": "true"}, "SELECT concat(X'41', X'42') AS x FROM items"),
    ({"spark.sql.function.eltOutputAsString": "true"}, "SELECT elt(1, X'41', X'42') AS x FROM items"),
    (
        {"spark.sql.legacy.literal.pickMinimumPrecision": "false"},
        "SELECT CAST(a AS decimal(5,2)) * 3 AS x FROM items",
    ),
    (
        {"spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "true"},
        "SELECT coalesce(CAST(a AS decimal(38,2)), CAST(id AS decimal(38,10))) AS x FROM items",
    ),
    (
        {"spark.sql.legacy.setopsPrecedence.enabled": "true"},
        "SELECT a FROM items UNION SELECT src FROM edges INTERSECT SELECT dst FROM edges",
    ),
    ({"spark.sql.legacy.parser.havingWithoutGroupByAsWhere": "true"}, "SELECT id FROM items HAVING id > 2"),
    ({"spark.sql.legacy.lpadRpadAlwaysReturnString": "true"}, "SELECT lpad(X'41', 3, X'42') AS x FROM items"),
    ({"spark.sql.storeAssignmentPolicy": "LEGACY"}, "SELECT CAST(s = 'x' AS int) AS x FROM items"),
    ({"spark.sql.binaryOutputStyle": "HEX"}, "SELECT CAST(encode(s, 'utf-8') AS string) AS x FROM items"),
    ({"spark.sql.readSideCharPadding": "false"}, "SELECT CAST(s AS char(3)) AS x FROM items"),
    ({"spark.sql.legacy.charVarcharAsString": "true"}, "SELECT CAST(s AS char(3)) AS x FROM items"),
    ({"spark.sql.preserveCharVarcharTypeInfo": "false"}, "SELECT CAST(s AS varchar(3)) AS x FROM items"),
]
"""Settings that act in planning, with a query on which each has an effect, or none."""


@pytest.mark.parametrize(("settings", "text"), PLANNED)
def test_settings_that_act_in_planning_are_in_the_plan(
    spark: SparkSession, settings: dict[str, str], text: str
) -> None:
    session = session_with(spark, settings)
    flow = hr.sql(text, tables=TABLES, spark=session)

    def answer(frames: Mapping[str, Any]) -> DataFrame:
        return session.sql(text)

    check_answer(session, flow, answer, TABLES, draw, 1)


@pytest.mark.parametrize("setting", [None, "3", "-1"])
@pytest.mark.parametrize("level", ["", "MAX RECURSION LEVEL 5"])
def test_a_recursion_has_as_many_levels_as_in_spark(
    spark: SparkSession, setting: str | None, level: str
) -> None:
    session = session_with(spark, {} if setting is None else {"spark.sql.cteRecursionLevelLimit": setting})
    levels = 5 if level else {None: 100, "3": 3, "-1": None}[setting]
    for last in (150,) if levels is None else (levels - 1, levels):
        text = f"WITH RECURSIVE r(n) {level} AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < {last})"
        text += " SELECT n FROM r"
        engine = hr.Engine(hr.sql(text, tables=TABLES, spark=session))
        if last == levels:
            with pytest.raises(NoFixpoint):
                engine.tick()
            with pytest.raises(Py4JJavaError, match="RECURSION_LEVEL_LIMIT"):
                session.sql(text).collect()
        else:
            shown = sorted(change.row[0] for change in engine.tick()["answer"])
            assert shown == sorted(row.n for row in session.sql(text).collect()) == [*range(last + 1)]
