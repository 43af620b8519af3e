"""What is particular to the store in PostgreSQL: connections that break, passwords, schemas."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pg8000", reason="pg8000 is not installed")

from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.postgres import PostgresCollections, PostgresConnection, ServerLocation
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import StoreDamaged, StoreUnavailable
from headrace.compute.frontier import START, Frontier
from headrace.errors import BadInput
from tests.postgres_server import PASSWORD, Postgres

APPEND = CollectionAppend("s1", START, Frontier(1), [(("a",), 0, 1)])


@pytest.fixture
def url(postgres: Postgres) -> str:
    schema = f"c{uuid.uuid4().hex}"
    postgres.query(f"create schema {schema}")
    return f"{postgres.url}?schema={schema}"


@pytest.fixture
def store(url: str) -> Iterator[PostgresCollections]:
    opened = PostgresCollections(url)
    opened.create("s1", b"")
    yield opened
    opened.close()


def hang_up(postgres: Postgres) -> None:
    postgres.query(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name like 'headrace%'"
    )


def test_connections_that_were_lost_are_made_again(store: PostgresCollections, postgres: Postgres) -> None:
    store.wait(0)
    store.append([APPEND])
    hang_up(postgres)
    assert store.bounds(["s1"])[0].upper == Frontier(1)
    store.append([CollectionAppend("s1", Frontier(1), Frontier(2))])
    try:
        store.wait(0.3)
    except StoreUnavailable:
        assert store.wait(0) is True
    assert list(store.snapshot("s1", 1)) == [[(("a",), 1)]]


def test_a_connection_that_breaks_during_an_append_writes_nothing(
    store: PostgresCollections, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = PostgresConnection.insert

    def breaks(self: PostgresConnection, updates: Any) -> None:
        insert(self, updates)
        hang_up(postgres)

    monkeypatch.setattr(PostgresConnection, "insert", breaks)
    with pytest.raises(StoreUnavailable) as lost:
        store.append([APPEND])
    assert not lost.value.facts["undecided"]
    monkeypatch.undo()
    assert store.bounds(["s1"])[0].upper == START
    store.append([APPEND])


def test_what_was_committed_is_known_though_the_answer_was_lost(
    store: PostgresCollections, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple = PostgresConnection.simple
    lost: list[bool] = []

    def loses(self: PostgresConnection, statement: str) -> list[Any]:
        if statement == "COMMIT" and not lost:
            lost.append(True)
            simple(self, statement)
            hang_up(postgres)
        return simple(self, statement)

    monkeypatch.setattr(PostgresConnection, "simple", loses)
    store.append([APPEND])
    assert lost
    assert store.bounds(["s1"])[0].upper == Frontier(1)


def test_what_was_not_committed_is_known_though_the_answer_was_lost(
    store: PostgresCollections, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple = PostgresConnection.simple
    lost: list[bool] = []

    def loses(self: PostgresConnection, statement: str) -> list[Any]:
        if statement == "COMMIT" and not lost:
            lost.append(True)
            hang_up(postgres)
        return simple(self, statement)

    monkeypatch.setattr(PostgresConnection, "simple", loses)
    with pytest.raises(StoreUnavailable) as failed:
        store.append([APPEND])
    assert not failed.value.facts["undecided"]
    assert store.bounds(["s1"])[0].upper == START


def test_a_server_that_cannot_be_asked_leaves_it_undecided(
    store: PostgresCollections, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple = PostgresConnection.simple

    def loses(self: PostgresConnection, statement: str) -> list[Any]:
        found = simple(self, statement)
        if statement == "COMMIT":
            hang_up(postgres)
            monkeypatch.setattr(PostgresConnection, "_connect", _refused)
            return simple(self, "SELECT 1")
        return found

    monkeypatch.setattr("headrace.compute.collections.postgres._DECISION_SECONDS", 0.3)
    monkeypatch.setattr(PostgresConnection, "simple", loses)
    with pytest.raises(StoreUnavailable, match="not known") as failed:
        store.append([APPEND])
    assert failed.value.facts["undecided"]
    monkeypatch.undo()
    assert store.bounds(["s1"])[0].upper == Frontier(1)


def _refused(self: PostgresConnection) -> Any:
    raise self._unavailable("connection refused")


def test_the_password_is_shown_nowhere(postgres: Postgres, url: str) -> None:
    store = PostgresCollections(url)
    database = store._database
    assert PASSWORD not in f"{database.location} {database!r} {vars(database)}"
    store.close()
    wrong = url.replace("tester:", "tester:wrong-")
    with pytest.raises(StoreUnavailable) as refused:
        open_collections(wrong)
    assert "wrong-" not in str(refused.value)
    assert "password authentication failed" in str(refused.value)


def test_the_password_comes_from_a_file(
    postgres: Postgres, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    file = tmp_path / "passwords"
    escaped = PASSWORD.replace("\\", r"\\").replace(":", r"\:")
    file.write_text(f"# ours\nelsewhere:*:*:*:no\n*:{postgres.port}:*:tester:{escaped}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    bare = url.split("?")[0].rpartition("@")[2]
    located = ServerLocation.parse(f"postgresql://tester@{bare}?sslmode=disable&schema=x&host=127.0.0.1")
    assert (located.server.password, located.server.tls, located.schema) == (PASSWORD, "disable", "x")
    open_collections(f"postgresql://tester@{bare}?{url.split('?')[1]}").close()
    file.chmod(0o644)
    with pytest.raises(BadInput, match="others may read"):
        ServerLocation.parse(f"postgresql://tester@{bare}")


def test_a_schema_that_is_missing_is_told(postgres: Postgres) -> None:
    with pytest.raises(StoreUnavailable, match="no such schema"):
        open_collections(f"{postgres.url}?schema=missing")


def test_the_table_of_another_program_is_left_alone(postgres: Postgres, url: str) -> None:
    schema = url.partition("schema=")[2]
    postgres.query(f"create table {schema}.headrace_collections (amount int)")
    with pytest.raises(StoreDamaged):
        open_collections(url)
