"""A row taken back before it comes: changelogs show it, tables hold it back, and runs tell of it."""

from __future__ import annotations

import json
import random
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Change, Flow, col, io
from headrace.errors import BadInput, DuplicateKey
from headrace.expr.row_classes import schema_of
from headrace.io.keyed_tables import consolidate_rows
from headrace.io.sink import SinkRequest, Writer, open_sink
from tests.postgres_server import Postgres

pl = pytest.importorskip("polars", reason="Polars is not installed")
pytest.importorskip("deltalake", reason="deltalake is not installed")


class Item(NamedTuple):
    key: str
    value: int | None


Changes = list[tuple[str, int | None, int]]
"""Of one tick: key, value, weight."""
SCHEMA = schema_of(Item)


class Table:
    """A table of some kind, written by one writer after the other, as runs that go on do."""

    def __init__(self, sink: Any, rows: Callable[[], list[Any]], spool: Path | None) -> None:
        self.sink = sink
        self._rows = rows
        self._spool = spool
        self._tick = 0
        self.writer = self._open()

    def _open(self) -> Writer:
        writer = open_sink(self.sink, SinkRequest("items", SCHEMA, self._spool, sources=("given",)))
        writer.recover(self._tick)
        return writer

    def start_again(self) -> None:
        self.writer.close()
        self.writer = self._open()

    def tick(self, changes: Changes) -> None:
        """Raises `BadInput` where a key gets two rows; then nothing has happened."""
        self.writer.prepare(self._tick + 1, list(changes))
        self._tick += 1
        self.writer.publish(self._tick)

    def commit_and_die(self, changes: Changes) -> None:
        """A tick that is committed, and is published by the next writer."""
        self.writer.prepare(self._tick + 1, list(changes))
        self._tick += 1

    @property
    def rows(self) -> Counter[Any]:
        return Counter(self._rows())

    @property
    def held(self) -> Counter[Any]:
        found = self.writer.held_back()
        if found is None:
            return Counter()
        assert found.sources == ("given",)
        assert found.rows == len(found.some)
        return Counter({tuple(row): weight for *row, weight in found.some})


def files(folder: Path, key: str | None = None) -> Table:
    path = folder / "out"

    def rows() -> list[Any]:
        return duckdb.sql(f"select key, value from read_parquet('{path}/current/*.parquet')").fetchall()

    return Table(io.TableFiles(path, key, buckets=2), rows, folder / "spool")


def delta(folder: Path) -> Table:
    sink = io.DeltaTable(folder / "out", "key")
    return Table(sink, lambda: pl.read_delta(str(folder / "out")).rows(), folder / "spool")


def in_postgres(folder: Path, postgres: Postgres, schema: str) -> Table:
    sink = io.PostgresTable(postgres.url, "items", "key", schema)
    rows = lambda: [tuple(row) for row in postgres.query(f"select * from {schema}.items")]  # noqa: E731
    return Table(sink, rows, folder / "spool")


@pytest.fixture
def schema(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"held_{abs(hash(request.node.nodeid))}"
    postgres.query(f"create schema {name}")
    yield name
    postgres.query(f"drop schema {name} cascade")


KEYED = ["files", "delta", "postgres"]


@pytest.fixture(params=KEYED)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """A table with a key."""
    if request.param == "files":
        made = files(tmp_path, "key")
    elif request.param == "delta":
        made = delta(tmp_path)
    else:
        made = in_postgres(tmp_path, request.getfixturevalue("postgres"), request.getfixturevalue("schema"))
    yield made
    made.writer.close()


# --- one table ------------------------------------------------------------------------------


def test_a_deletion_that_overtakes_its_insertion_takes_it_off_when_it_comes(table: Table) -> None:
    table.tick([("a", 1, -1), ("b", 2, 1)])
    assert (table.rows, table.held) == (Counter([("b", 2)]), Counter({("a", 1): -1}))
    table.start_again()
    table.tick([("a", 1, 1), ("a", 3, 1)])
    assert (table.rows, table.held) == (Counter([("b", 2), ("a", 3)]), Counter())


def test_a_deletion_of_another_row_of_the_key_leaves_the_row_that_is_there(table: Table) -> None:
    table.tick([("a", 1, 1)])
    table.tick([("a", 7, -1)])
    assert (table.rows, table.held) == (Counter([("a", 1)]), Counter({("a", 7): -1}))
    table.start_again()
    table.tick([("a", 7, 1)])
    assert (table.rows, table.held) == (Counter([("a", 1)]), Counter())
    table.tick([("a", 1, -1), ("a", None, 1)])
    assert table.rows == Counter([("a", None)])


def test_what_is_committed_and_not_published_holds_back_the_same(table: Table) -> None:
    table.tick([("a", 1, -1)])
    table.commit_and_die([("a", 1, 1), ("b", 1, -1)])
    table.start_again()
    assert (table.rows, table.held) == (Counter(), Counter({("b", 1): -1}))


def test_what_is_not_committed_holds_nothing_back(table: Table) -> None:
    table.tick([("a", 1, -1)])
    table.writer.prepare(2, [("a", 1, 1), ("b", 1, -1)])
    table.start_again()
    assert table.held == Counter({("a", 1): -1})
    table.tick([("c", 1, 1)])
    assert (table.rows, table.held) == (Counter([("c", 1)]), Counter({("a", 1): -1}))


def test_two_rows_of_a_key_tell_which_row_was_taken_back_and_never_there(table: Table) -> None:
    table.tick([("a", 1, 1), ("b", 1, 1)])
    with pytest.raises(BadInput, match="two rows have the same key") as raised:
        table.tick([("a", 7, -1), ("a", 2, 1)])
    table.start_again()
    assert "('a', 7) was retracted, and is missing. It comes from source 'given'." in raised.value.why
    assert raised.value.facts["held"] == (("a", 7, -1),)
    table.tick([("a", 1, -1), ("a", 2, 1)])
    assert (table.rows, table.held) == (Counter([("a", 2), ("b", 1)]), Counter())


def test_two_rows_of_a_key_tell_which_row_of_another_key_was_taken_back(table: Table) -> None:
    table.tick([("a", 1, 1), ("b", 1, 1), ("c", 9, -1)])
    with pytest.raises(DuplicateKey) as raised:
        table.tick([("a ", 1, -1), ("a", 2, 1), ("b", 1, -1)])
    table.start_again()
    assert (
        "\n('a ', 1) was also retracted in this tick, and is missing.\n"
        "The rows come from source 'given'.\n"
        "A retraction must match the inserted row in every column."
    ) in raised.value.why
    assert raised.value.facts["held"] == ()
    assert raised.value.facts["also_held"] == (("a ", 1, -1),)
    table.tick([("a", 1, -1), ("a", 2, 1)])
    assert table.rows == Counter([("a", 2), ("b", 1)])


def test_two_rows_of_a_key_always_tell_the_sources(table: Table) -> None:
    with pytest.raises(DuplicateKey) as raised:
        table.tick([("a", 1, 1), ("a", 2, 1)])
    assert "The rows come from source 'given'." in raised.value.why


def test_only_a_few_rows_of_other_keys_are_told(tmp_path: Path) -> None:
    table = files(tmp_path, "key")
    with pytest.raises(DuplicateKey) as raised:
        table.tick([(f"x{n}", 1, -1) for n in range(5)] + [("a", 1, 2)])
    assert raised.value.why.count("was also retracted in this tick") == 3
    assert "2 more retracted rows are missing." in raised.value.why


def test_names_in_keys_are_only_names(table: Table) -> None:
    keys = ["it's", 'a"b', "\\", "a\\'b", "%_", "'; drop table items; --", "é\u0301", " ", ""]
    table.tick([(key, 1, 1) for key in keys])
    table.tick([(key, 1, -1) for key in keys] + [(key, 2, 1) for key in keys[::2]])
    assert (table.rows, table.held) == (Counter((key, 2) for key in keys[::2]), Counter())


# --- any table, any history -------------------------------------------------------------------


CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, 1, 2]), st.integers(-2, 2)))
HISTORIES = st.lists(st.tuples(CHANGES, st.sampled_from(["go on", "start again", "die"])), max_size=6)
OVERTAKEN = [([("a", 1, -1)], "die"), ([("a", 2, 1)], "start again"), ([("a", 1, 1)], "go on")]


def check(table: Table, history: list[tuple[Changes, str]], *, keyed: bool) -> None:
    """Compare a table with the sum of all changes; two rows of a key must be refused, and change nothing."""
    total: Counter[Any] = Counter()
    for changes, then in history:
        changed = Counter(total)
        for *row, weight in changes:
            changed[tuple(row)] += weight
        copies = Counter(key for key, _ in (+changed).elements())
        if keyed and any(count > 1 for count in copies.values()):
            with pytest.raises(BadInput, match="two rows have the same key"):
                table.tick(changes)
            table.start_again()
            continue
        if then == "die":
            table.commit_and_die(changes)
        else:
            table.tick(changes)
        if then != "go on":
            table.start_again()
        total = Counter({row: count for row, count in changed.items() if count})
        assert table.rows == +total
        assert table.held == Counter({row: count for row, count in total.items() if count < 0})
    table.writer.close()


@settings(max_examples=40)  # of files written
@given(HISTORIES)
@example(OVERTAKEN)
def test_files_without_a_key_show_what_is_there_more_often_than_never(history: Any) -> None:
    with TemporaryDirectory() as folder:
        check(files(Path(folder)), history, keyed=False)


@settings(max_examples=40)
@given(HISTORIES)
@example(OVERTAKEN)
def test_files_with_a_key_show_what_is_there_once(history: Any) -> None:
    with TemporaryDirectory() as folder:
        check(files(Path(folder), "key"), history, keyed=True)


@settings(max_examples=15)
@given(HISTORIES)
@example(OVERTAKEN)
def test_a_delta_table_shows_what_is_there_once(history: Any) -> None:
    with TemporaryDirectory() as folder:
        check(delta(Path(folder)), history, keyed=True)


@pytest.mark.verify
@settings(max_examples=12)
@given(HISTORIES)
@example(OVERTAKEN)
def test_a_table_in_postgresql_shows_what_is_there_once(postgres: Postgres, history: Any) -> None:
    postgres.query("drop schema if exists held_histories cascade")
    postgres.query("create schema held_histories")
    with TemporaryDirectory() as folder:
        check(in_postgres(Path(folder), postgres, "held_histories"), history, keyed=True)


@given(st.lists(CHANGES))
def test_memory_shows_what_is_there_more_often_than_never(ticks: list[Changes]) -> None:
    memory = io.Memory()
    present = lambda rows: [Change(row[:-1], row[-1]) for row in rows]  # noqa: E731
    writer = open_sink(memory, SinkRequest("items", SCHEMA, present=present))
    total: Counter[Any] = Counter()
    for number, changes in enumerate(ticks, 1):
        writer.prepare(number, list(changes))
        writer.publish(number)
        for *row, weight in changes:
            total[tuple(row)] += weight
    assert Counter(memory.rows()) == +total
    assert {c.row: c.weight for c in memory.changes()} == {row: n for row, n in total.items() if n}
    held = writer.held_back()
    assert (0 if held is None else held.rows) == len(-total)


def test_memory_that_has_not_seen_all_ticks_holds_nothing_back(run: Any, tmp_path: Path) -> None:
    def held(*changes: tuple[str, int, int]) -> Any:
        arrive(tmp_path / "items", len(list(tmp_path.glob("items/*"))), *changes)
        flow = Flow("items")
        flow.sink("items", flow.table("items", Item))
        sources = {"items": io.JsonFiles(tmp_path / "items", files_per_tick=1)}
        memory = io.Memory()
        result = run(flow, sources, {"items": memory}, checkpoint=tmp_path / "c")
        return result.held_back, memory

    assert held(("a", 1, 1), ("b", 1, -1))[0]["items"].rows == 1
    told, memory = held(("a", 1, -1), ("c", 1, 1))
    assert (told, memory.rows()) == ({}, [Item("c", 1)])
    assert Counter(map(tuple, memory.changes())) == Counter([(("a", 1), -1), (("c", 1), 1)])


# --- runs, on both engines ---------------------------------------------------------------------


@pytest.fixture(params=["here", pytest.param("spark", marks=pytest.mark.spark)])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs a flow, in this process or on Spark, over files that are a tick each."""
    if request.param == "here":
        return hr.run
    from headrace.spark import run as run_on_spark

    session = request.getfixturevalue("spark")
    return lambda flow, sources, sinks, **options: run_on_spark(
        flow, session, sources=sources, sinks=sinks, shards=2, **options
    )


def arrive(folder: Path, number: int, *changes: tuple[str, int, int]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"key": key, "value": value, "weight": weight}) for key, value, weight in changes]
    (folder / f"{number}.json").write_text("\n".join(lines))


def two_tables() -> Flow:
    flow = Flow("tables")
    items, others = flow.table("items", Item), flow.table("others", Item)
    flow.sink("items", items)
    flow.sink("values", items.union(others).select(col.value))
    flow.sink("counts", items.group_by(col.key).agg(n=hr.count()))
    flow.sink("log", items)
    return flow


def rows_of(path: Path) -> Counter[Any]:
    return Counter(duckdb.sql(f"from read_parquet('{path}/current/*.parquet')").fetchall())


def test_a_run_tells_what_its_tables_hold_back_and_of_which_sources_it_comes(
    run: Any, tmp_path: Path
) -> None:
    log: list[Any] = []
    memory = io.Memory()

    def go_on() -> Any:
        return run(
            two_tables(),
            {name: io.JsonFiles(tmp_path / name, files_per_tick=1) for name in ("items", "others")},
            {
                "items": io.TableFiles(tmp_path / "out", buckets=2),
                "values": memory,
                "counts": io.TableFiles(tmp_path / "counts", "key"),
                "log": log,
            },
            checkpoint=tmp_path / "c",
        )

    arrive(tmp_path / "items", 1, ("a", 1, 1), ("b", 1, -1))
    arrive(tmp_path / "items", 2, ("a", 2, -1), ("c", 3, -2))
    arrive(tmp_path / "others", 1, ("x", 9, 1))
    held = go_on().held_back
    assert rows_of(tmp_path / "out") == Counter([("a", 1)])
    assert {tuple(change.row): change.weight for change in held["items"].some} == {
        ("b", 1): -1, ("a", 2): -1, ("c", 3): -2
    }  # fmt: skip
    assert (held["items"].rows, held["items"].sources) == (3, ("items",))
    assert held["values"].sources == ("items", "others")
    assert {change.row.value: change.weight for change in held["values"].some} == {2: -1, 3: -2}
    assert {row.value for row in memory.rows()} == {9}
    assert Counter({tuple(c.row): c.weight for c in log})["c", 3] == -2, "a changelog shows what it is told"
    arrive(tmp_path / "items", 3, ("b", 1, 1), ("a", 2, 1), ("c", 3, 3))
    assert go_on().held_back == {}
    assert rows_of(tmp_path / "out") == Counter([("a", 1), ("c", 3)])
    assert rows_of(tmp_path / "counts") == Counter([("a", 1), ("c", 1)])


def check_run(run: Any, folder: Path, ticks: list[Changes], restarts: list[bool]) -> None:
    """Compare the sinks of a run, broken off after some ticks, with the sum of its input."""
    flow = Flow("history")
    items = flow.table("items", Item)
    flow.sink("items", items)
    flow.sink("values", items.filter(col.key != "c").select(col.value))
    flow.sink("counts", items.group_by(col.key).agg(n=hr.count()))
    sinks = {
        "items": io.TableFiles(folder / "items", buckets=2),
        "values": io.Memory(),
        "counts": io.DeltaTable(folder / "counts", "key"),
    }
    batches = [[Change(Item(key, value), weight) for key, value, weight in tick if weight] for tick in ticks]
    result: Any = None
    for last in [*(at for at, restart in enumerate(restarts[: len(ticks)]) if restart), len(ticks)]:
        result = run(flow, {"items": io.Rows(batches[:last])}, sinks, checkpoint=folder / "c")
    total: Counter[Any] = Counter()
    for key, value, weight in (change for tick in ticks for change in tick):
        total[key, value] += weight
    values: Counter[Any] = Counter()
    counts: Counter[str] = Counter()
    for (key, value), weight in total.items():
        counts[key] += weight
        values[value] += weight if key != "c" else 0
    assert rows_of(folder / "items") == +total
    assert Counter(row.value for row in sinks["values"].rows()) == +values
    assert Counter(pl.read_delta(str(folder / "counts")).rows()) == Counter((+counts).items())
    held = {sink: {tuple(c.row): -c.weight for c in found.some} for sink, found in result.held_back.items()}
    less = {"items": -total, "values": {(value,): count for value, count in (-values).items()}}
    assert held == {sink: rows for sink, rows in less.items() if rows}


TICKS = st.lists(CHANGES, min_size=1, max_size=4)


@settings(max_examples=15)
@given(TICKS, st.lists(st.booleans(), max_size=4))
def test_in_this_process_the_tables_of_a_run_are_the_sum_of_its_input(
    ticks: list[Changes], restarts: list[bool]
) -> None:
    with TemporaryDirectory() as folder:
        check_run(hr.run, Path(folder), ticks, restarts)


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(3))
def test_on_spark_the_tables_of_a_run_are_the_sum_of_its_input(seed: int, spark: Any, tmp_path: Path) -> None:
    from headrace.spark import run as run_on_spark

    numbers = random.Random(seed)
    ticks = [
        [
            (numbers.choice("abc"), numbers.choice([None, 1, 2]), numbers.choice([-2, -1, 1, 1]))
            for _ in range(6)
        ]
        for _ in range(4)
    ]
    check_run(
        lambda flow, sources, sinks, **options: run_on_spark(
            flow, spark, sources=sources, sinks=sinks, shards=2, **options
        ),
        tmp_path, ticks, [False, False, True, False],
    )  # fmt: skip


# --- sums -------------------------------------------------------------------------------------


class Value:
    """A value that can tell whether it is still held."""


def test_rows_are_held_only_while_their_weights_add_up_to_something() -> None:
    alive: weakref.WeakSet[Value] = weakref.WeakSet()
    most = 0

    def changes() -> Iterator[tuple[Any, ...]]:
        nonlocal most
        for _ in range(100):
            value = Value()
            alive.add(value)
            yield value, 2
            yield value, -2
            most = max(most, len(alive))
        yield "kept", 1

    assert consolidate_rows(changes()) == {("kept",): 1}
    assert most <= 2


def test_a_row_that_comes_back_counts_from_zero() -> None:
    rows = [("a", 1), ("b", -1), ("a", -1), ("b", 1), ("a", 3), ("c", 0)]
    assert consolidate_rows(rows) == {("a",): 3}
