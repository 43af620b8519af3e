"""PostgreSQL: current rows and changes, each tick once, hostile names, a password that stays secret."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import Flow, col, io
from headrace.errors import BadInput, BadUri, UnwritableSink
from headrace.expr.row_classes import schema_of
from headrace.expr.types import INTERVAL
from headrace.io import PostgresChangelog, PostgresTable
from headrace.io.postgres import Server, without_password
from headrace.io.postgres_delivery import copy_converter
from headrace.io.sink import SinkRequest, Writer, open_sink
from tests.postgres_server import PASSWORD, Postgres


class Total(NamedTuple):
    shop: str
    total: int | None


class Inner(NamedTuple):
    x: int
    label: str | None


class Everything(NamedTuple):
    id: int
    flag: bool | None
    real: float | None
    price: Decimal | None
    text: str | None
    octets: bytes | None
    day: date | None
    moment: datetime | None
    inner: Inner | None
    numbers: list[int | None] | None


OPENED: list[Writer] = []


@pytest.fixture
def place(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[tuple[Postgres, str]]:
    """The server and the name of a schema of the test's own."""
    name = f"s{abs(hash(request.node.nodeid))}"
    postgres.query(f'create schema "{name}"')
    yield postgres, name
    while OPENED:  # one that is left open by a failure holds locks
        OPENED.pop().close()
    postgres.query(f'drop schema "{name}" cascade')


def writer(sink: Any, rows: Any, spool: Path | None = None, tick: int = 0) -> Writer:
    opened = open_sink(sink, SinkRequest("totals", schema_of(rows), spool))
    OPENED.append(opened)
    opened.recover(tick)
    return opened


def write(to: Writer, tick: int, *changes: tuple[Any, ...]) -> None:
    to.prepare(tick, list(changes))
    to.publish(tick)


def rows(place: tuple[Postgres, str], table: str = "totals") -> Counter[Any]:
    server, schema = place
    return Counter(map(tuple, server.query(f'select * from "{schema}"."{table}"')))


def test_a_table_holds_the_rows_of_now(place: tuple[Postgres, str]) -> None:
    out = writer(PostgresTable(place[0].url, "totals", "shop", place[1]), Total)
    write(out, 1, ("a", 1, 1), ("b", 2, 1), ("c", None, 1))
    assert rows(place) == Counter([("a", 1), ("b", 2), ("c", None)])
    write(out, 2, ("a", 1, -1), ("a", 5, 1), ("b", 2, -1), ("d", 7, 1), ("e", 1, 1), ("e", 1, -1))
    assert rows(place) == Counter([("a", 5), ("c", None), ("d", 7)])
    out.close()


def test_a_changelog_holds_every_change_with_its_tick(place: tuple[Postgres, str]) -> None:
    out = writer(PostgresChangelog(place[0].url, "totals", place[1]), Total)
    write(out, 1, ("a", 1, 1), ("a", 1, 1))
    write(out, 4, ("a", 1, -2))
    assert rows(place) == Counter({("a", 1, 1, 1): 2, ("a", 1, -2, 4): 1})
    out.close()


def test_values_of_all_types_arrive_as_they_are(place: tuple[Postgres, str]) -> None:
    nan = float("nan")
    one = (
        1, True, 0.1, Decimal("1.500000000000000000"), "a\tb\\n\n\r'\";--\\N", b"\x00\\\xff", date(1, 2, 3),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), (2, None), (1, None, 3),
    )  # fmt: skip
    two = (2, *[None] * 9)
    three = (
        3,
        False,
        float("-inf"),
        Decimal(0),
        "",
        b"",
        date(9999, 12, 31),
        datetime(1, 1, 1, tzinfo=UTC),
        (0, "ü\\"),
        (),
    )
    out = writer(PostgresTable(place[0].url, "totals", "id", place[1]), Everything)
    write(out, 1, (*one, 1), (*two, 1), (*three, 1), (4, True, nan, *[None] * 7, 1))
    found = sorted(map(list, place[0].query(f'select * from "{place[1]}".totals')))
    assert found[0] == [*one[:8], {"x": 2, "label": None}, [1, None, 3]]
    assert found[1] == list(two)
    assert found[2] == [*three[:8], {"x": 0, "label": "ü\\"}, []]
    assert found[3][2] != found[3][2]
    write(out, 2, (*one, -1), (*two, -1), (*three, -1), (4, True, nan, *[None] * 7, -1))
    assert (rows(place), out.held_back()) == (Counter(), None)
    out.close()


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(), "0 days 00:00:00.000000"),
        (timedelta(microseconds=-1), "-0 days -00:00:00.000001"),
        (timedelta(days=-2, hours=1), "-1 days -23:00:00.000000"),
        (timedelta(hours=25, minutes=2, seconds=3), "1 days 01:02:03.000000"),
        (timedelta(microseconds=2**63 - 1), "106751991 days 04:00:54.775807"),
        (timedelta(microseconds=-(2**63)), "-106751991 days -04:00:54.775808"),
    ],
)
def test_intervals_are_written_as_days_and_time(postgres: Postgres, span: timedelta, text: str) -> None:
    assert copy_converter(INTERVAL)(span) == text
    answer = postgres.query(f"SELECT (extract(epoch FROM interval '{text}') * 1000000)::numeric(30, 0)")
    assert int(answer[0][0]) == span // timedelta(microseconds=1)


def test_columns_that_the_server_cannot_compare_are_compared_as_what_they_say(
    place: tuple[Postgres, str],
) -> None:
    place[0].query(f'create table "{place[1]}".totals (shop text primary key, total json)')

    class Said(NamedTuple):
        shop: str
        total: str | None

    out = writer(PostgresTable(place[0].url, "totals", "shop", place[1]), Said)
    write(out, 1, ("a", '{"x": 1}', 1), ("b", None, 1))
    write(out, 2, ("a", '{"x": 1}', -1), ("b", None, -1), ("b", "2", 1))
    assert [tuple(row) for row in place[0].query(f'select * from "{place[1]}".totals')] == [("b", 2)]
    out.close()


def test_a_tick_that_is_published_again_changes_nothing(place: tuple[Postgres, str], tmp_path: Path) -> None:
    sink = PostgresChangelog(place[0].url, "totals", place[1])
    out = writer(sink, Total, tmp_path / "spool")
    write(out, 1, ("a", 1, 1))
    out.publish(1)
    write(out, 1, ("a", 1, 1))
    assert rows(place) == Counter([("a", 1, 1, 1)])
    out.close()


def test_a_tick_that_was_committed_and_not_published_is_delivered_by_the_next_run(
    place: tuple[Postgres, str], tmp_path: Path
) -> None:
    sink = PostgresTable(place[0].url, "totals", "shop", place[1])
    out = writer(sink, Total, tmp_path / "spool")
    write(out, 1, ("a", 1, 1))
    out.prepare(2, [("a", 1, -1), ("a", 2, 1)])
    out.close()  # as a process that dies: the server takes back what was open
    assert rows(place) == Counter([("a", 1)])
    out = writer(sink, Total, tmp_path / "spool", tick=2)
    assert rows(place) == Counter([("a", 2)])
    write(out, 3, ("a", 2, -1))
    assert rows(place) == Counter()
    out.close()


def test_a_tick_that_was_prepared_and_not_committed_is_gone(
    place: tuple[Postgres, str], tmp_path: Path
) -> None:
    sink = PostgresTable(place[0].url, "totals", "shop", place[1])
    out = writer(sink, Total, tmp_path / "spool")
    write(out, 1, ("a", 1, 1))
    out.prepare(2, [("b", 1, 1)])
    out.close()
    out = writer(sink, Total, tmp_path / "spool", tick=1)
    write(out, 2, ("c", 1, 1))
    assert rows(place) == Counter([("a", 1), ("c", 1)])
    out.close()


def test_a_lost_connection_between_ticks_is_made_again(place: tuple[Postgres, str]) -> None:
    out = writer(PostgresTable(place[0].url, "totals", "shop", place[1]), Total)
    write(out, 1, ("a", 1, 1))
    place[0].query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'headrace'"
    )
    write(out, 2, ("b", 1, 1))
    assert rows(place) == Counter([("a", 1), ("b", 1)])
    out.close()


def test_two_rows_of_one_key_are_refused_before_the_tick_counts(place: tuple[Postgres, str]) -> None:
    out = writer(PostgresTable(place[0].url, "totals", "shop", place[1]), Total)
    with pytest.raises(BadInput, match="two rows have the same key"):
        out.prepare(1, [("a", 1, 1), ("a", 2, 1)])
    write(out, 1, ("a", 1, 1))
    with pytest.raises(BadInput, match="two rows have the same key"):
        out.prepare(2, [("a", 2, 1)])
    write(out, 2, ("b", 2, 1))
    assert rows(place) == Counter([("a", 1), ("b", 2)])
    out.close()


def test_what_the_server_refuses_fails_the_tick_and_names_the_table(place: tuple[Postgres, str]) -> None:
    out = writer(PostgresTable(place[0].url, "totals", "shop", place[1]), Total)
    with pytest.raises(UnwritableSink) as raised:
        out.prepare(1, [("a\0", 1, 1)])
    assert "invalid byte sequence" in str(raised.value)
    assert PASSWORD not in str(raised.value)
    write(out, 1, ("a", 1, 1))
    assert rows(place) == Counter([("a", 1)])
    out.close()


def test_a_table_of_another_run_is_refused(place: tuple[Postgres, str], tmp_path: Path) -> None:
    sink = PostgresTable(place[0].url, "totals", "shop", place[1])
    out = writer(sink, Total)
    write(out, 3, ("a", 1, 1))
    out.close()
    with pytest.raises(BadInput, match="already holds tick 3"):
        writer(sink, Total, tmp_path / "spool")
    place[0].query(f'drop table "{place[1]}".totals')
    with pytest.raises(BadInput, match="is new, and the checkpoint ends with tick 5"):
        writer(sink, Total, tmp_path / "spool", tick=5)
    out = writer(sink, Total, tmp_path / "spool")
    write(out, 1, ("b", 1, 1))
    assert rows(place) == Counter([("b", 1)])
    out.close()


@pytest.mark.parametrize("name", ['x"; drop table victim; --', "select", "a.b", "ünï", ":x $1 %s", "a" * 63])
def test_names_of_tables_and_columns_are_names_whatever_they_hold(
    place: tuple[Postgres, str], name: str
) -> None:
    server, schema = place
    server.query(f'create table "{schema}".victim (x int)')
    flow = Flow("hostile")
    words = flow.source("words", Total).select(col.shop, **{name: col.total})
    flow.sink("out", words)
    for sink in (
        PostgresTable(server.url, name, ("shop",), schema),
        PostgresChangelog(server.url, name[:-1] + "2", schema),
    ):
        hr.run(flow, {"words": [Total("a", 1), Total("b", 2)]}, {"out": sink})
    assert {r[:2] for r in rows(place, name.replace('"', '""'))} == {("a", 1), ("b", 2)}
    tables = {t for (t,) in server.query(f"select tablename from pg_tables where schemaname = '{schema}'")}
    assert tables == {"victim", "headrace_ticks", name, name[:-1] + "2"}


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "ü" * 32])
def test_what_cannot_be_a_name_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="cannot be a name in PostgreSQL"):
        open_sink(PostgresTable("postgresql://h/d", name, "shop"), SinkRequest("totals", schema_of(Total)))


def test_a_key_that_may_be_null_or_is_no_column_is_refused() -> None:
    for key, text in (("total", "may be null"), ("other", "the key has unknown column 'other'")):
        with pytest.raises(BadInput, match=text):
            open_sink(PostgresTable("postgresql://h/d", "t", key), SinkRequest("totals", schema_of(Total)))


def test_the_password_is_shown_nowhere(postgres: Postgres) -> None:
    sink = PostgresTable(postgres.url.replace("tester", "nobody_there"), "t", "shop")
    with pytest.raises(UnwritableSink) as raised:
        writer(sink, Total)
    OPENED.pop().close()
    error = raised.value
    for text in (
        repr(sink),
        str(sink.server),
        str(error),
        repr(error.__cause__),
        repr(pickle.loads(pickle.dumps(error))),
    ):
        assert "s3cret" not in text
    assert f"postgresql://nobody_there@127.0.0.1:{postgres.port}/postgres" in str(error)


@pytest.mark.parametrize(
    "url", ["http://u:s3cret@h/d", "postgresql://u:s3cret@h:x/d", "postgresql://u:s3cret@h/d?a=1", "postgresql://u:s3cret@h/d?sslmode=no"]
)  # fmt: skip
def test_a_url_that_names_no_server_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(BadUri) as raised:
        Server.of(url)
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(raised.value.facts)


def test_a_server_is_found_by_url_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGPASSWORD", "p")
    assert Server.of("postgres://u@[::1]:7/d") == Server("::1", 7, "d", "u", "p")
    assert Server.of("postgresql://u%40x:%2F@h") == Server("h", 5432, "u@x", "u@x", "/")
    socket = Server.of("postgresql://u@/d?host=/run/pg&sslmode=disable")
    assert socket == Server("localhost", 5432, "d", "u", "p", "disable", "/run/pg/.s.PGSQL.5432")
    assert without_password("at postgresql://u:a%20b@h/d and ?x=1&password=c'") == (
        "at postgresql://u:***@h/d and ?x=1&password=***'"
    )


def test_a_flow_that_goes_on_from_a_checkpoint_writes_each_tick_once(
    place: tuple[Postgres, str], tmp_path: Path
) -> None:
    flow = Flow("totals")
    totals = flow.source("sales", Total).group_by(col.shop).agg(total=hr.sum(col.total))
    flow.sink("now", totals)
    flow.sink("all", totals)
    sinks = {
        "now": PostgresTable(place[0].url, "totals", "shop", place[1]),
        "all": PostgresChangelog(place[0].url, "changes", place[1]),
    }
    sales = [Total("ab"[n % 2], n) for n in range(10)]
    for last in (4, 4, 10):
        batches = [sales[n : n + 2] for n in range(0, last, 2)]
        hr.run(flow, {"sales": io.Rows(batches)}, sinks, checkpoint=tmp_path / "checkpoint")
    assert rows(place) == Counter([("a", 20), ("b", 25)])
    added: Counter[Any] = Counter()
    for shop, total, weight, _tick in rows(place, "changes").elements():
        added[shop, total] += weight
    assert +added == rows(place)
