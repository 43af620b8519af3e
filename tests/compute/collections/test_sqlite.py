"""What is particular to the store in one SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest

from headrace.compute.collections import sqlite as module
from headrace.compute.collections.rows import RowCodec
from headrace.compute.collections.sqlite import SqliteCollections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import StoreDamaged, StoreUnavailable
from headrace.compute.frontier import START, Frontier
from headrace.compute.sqlite_files import LOG_LIMIT


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "collections.db"


def filled(file: Path, rows: int = 2_000) -> None:
    store = SqliteCollections(file)
    store.create("s1", b"words")
    store.append(
        [CollectionAppend("s1", START, Frontier(1), [((i, f"word {i}"), 0, 1) for i in range(rows)])]
    )
    store.close()


def statements(file: Path, *sql: str) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    for statement in sql:
        connection.execute(statement)
    connection.close()


def read_all(file: Path) -> None:
    store = SqliteCollections(file)
    try:
        list(store.snapshot("s1", 0))
    finally:
        store.close()


def test_a_file_that_is_no_database_is_damaged(file: Path) -> None:
    file.write_bytes(b"not a database, but long enough to be one\n" * 100)
    with pytest.raises(StoreDamaged, match=r"collections\.db"):
        SqliteCollections(file)
    assert file.read_bytes().startswith(b"not a database")


def test_the_database_of_another_program_is_left_alone(file: Path) -> None:
    statements(file, "CREATE TABLE bills (amount INTEGER)")
    with pytest.raises(StoreDamaged, match="another program"):
        SqliteCollections(file)
    connection = sqlite3.connect(file)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("bills",)]
    connection.close()


def test_another_version_of_the_layout_is_told(file: Path) -> None:
    filled(file)
    statements(file, "PRAGMA user_version = 7")
    with pytest.raises(StoreDamaged, match="version 7"):
        SqliteCollections(file)


def test_a_file_that_was_cut_off_is_damaged(file: Path) -> None:
    filled(file, 20_000)
    statements(file, "PRAGMA wal_checkpoint(TRUNCATE)")
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)
    with pytest.raises(StoreDamaged):
        read_all(file)


def test_a_row_that_is_no_row_is_damage(file: Path) -> None:
    filled(file)
    statements(file, "UPDATE headrace_updates SET row = x'c1' WHERE place % 100 = 50")
    store = SqliteCollections(file)
    with pytest.raises(StoreDamaged):
        list(store.snapshot("s1", 0))
    with pytest.raises(StoreDamaged):
        list(store.changes("s1", START, Frontier(1)))
    store.close()


@pytest.mark.seeds(100, together=25)
def test_random_bytes_in_the_file_are_noticed_or_change_nothing(seeds: range, file: Path) -> None:
    filled(file)
    statements(file, "PRAGMA wal_checkpoint(TRUNCATE)")
    whole, known = file.read_bytes(), contents(file)
    assert len(whole) > 20 * 4096
    noticed = 0
    for seed in seeds:
        random = Random(seed)
        at = random.randrange(100, len(whole) - 500)
        for left in file.parent.glob("collections.db-*"):
            left.unlink()
        file.write_bytes(whole[:at] + random.randbytes(500) + whole[at + 500 :])
        try:
            assert contents(file) == known, seed
        except StoreDamaged:
            noticed += 1
    assert noticed > len(seeds) // 2


def contents(file: Path) -> tuple[object, ...]:
    """All that a controller and a replica read."""
    store = SqliteCollections(file)
    try:
        store.check()
        rows = [row for part in store.snapshot("s1", 0) for row in part]
        changes = [update for part in store.changes("s1", START, Frontier(1)) for update in part]
        return store.all(), store.bounds(["s1"]), rows, changes
    finally:
        store.close()


@pytest.mark.parametrize("place", [50, 1_000])
@pytest.mark.parametrize("row", [(1, "word 2"), (1.5, "x"), (-0.0, "x")])
def test_a_row_whose_bytes_have_changed_to_another_row_is_damage(
    file: Path, row: tuple[object, ...], place: int
) -> None:
    filled(file)
    (changed,) = RowCodec().changes(CollectionAppend("s1", START, Frontier(1), [(row, 0, 1)]))
    connection = sqlite3.connect(file, isolation_level=None)
    changing = "UPDATE headrace_updates SET row = ? WHERE place % 1099511627776 = ?"
    connection.execute(changing, [changed.row, place])
    connection.close()
    store = SqliteCollections(file)
    store.check()  # SQLite sees nothing
    with pytest.raises(StoreDamaged, match="the bytes of a row have changed"):
        list(store.snapshot("s1", 0))
    with pytest.raises(StoreDamaged, match="the bytes of a row have changed"):
        list(store.changes("s1", START, Frontier(1)))
    with pytest.raises(StoreDamaged, match="the bytes of a row have changed"):
        store.append([CollectionAppend("s1", Frontier(1), Frontier(2), [((place, f"word {place}"), 1, -1)])])
    store.close()


def test_rows_that_are_not_encoded_like_their_keys_are_whole(file: Path) -> None:
    store = SqliteCollections(file)
    store.create("s1", b"values")
    rows = [(-0.0,), (float("nan"),), (Decimal("1.00"),), (frozenset({2, 1}),), (("a", None, b"b", (1.5,)),)]
    store.append([CollectionAppend("s1", START, Frontier(1), [(row, 0, 1) for row in rows])])
    assert sum(len(part) for part in store.snapshot("s1", 0)) == len(rows)
    assert sum(len(part) for part in store.changes("s1", START, Frontier(1))) == len(rows)
    store.close()


def test_the_log_does_not_stay_larger_than_its_database(file: Path) -> None:
    filled(file)
    log = file.with_name("collections.db-wal")
    store, reader = SqliteCollections(file), SqliteCollections(file)
    for time in range(1, 11):
        rows = [((n, f"word {n} at {time}"), time, 1) for n in range(2_000)]
        store.append([CollectionAppend("s1", Frontier(time), Frontier(time + 1), rows)])
        store.compact("s1", Frontier(time))
        assert log.stat().st_size <= max(LOG_LIMIT, file.stat().st_size)
    # A reader of earlier rows needs the log, and is not disturbed.
    reading = reader.snapshot("s1", 10)
    next(reading)
    for time in range(11, 21):
        rows = [((n, f"word {n} at {time}"), time, 1) for n in range(2_000)]
        store.append([CollectionAppend("s1", Frontier(time), Frontier(time + 1), rows)])
        store.compact("s1", Frontier(time))
    assert sum(len(part) for part in reading) > 0
    store.compact("s1", Frontier(20))
    assert log.stat().st_size <= max(LOG_LIMIT, file.stat().st_size)
    store.close()
    reader.close()


def test_a_table_that_is_missing_is_damage(file: Path) -> None:
    filled(file)
    store = SqliteCollections(file)
    statements(file, "DROP TABLE headrace_updates")
    with pytest.raises(StoreDamaged):
        list(store.snapshot("s1", 0))
    store.close()


def test_a_folder_that_is_missing_makes_it_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        SqliteCollections(tmp_path / "missing" / "collections.db")
    assert refused.value.retryable


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.05)


@pytest.mark.usefixtures("impatient")
def test_a_writer_that_does_not_let_go_makes_it_unavailable_and_readers_do_not_mind(file: Path) -> None:
    filled(file)
    store = SqliteCollections(file)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    append = CollectionAppend("s1", Frontier(1), Frontier(2), [(("a", "b"), 1, 1)])
    with pytest.raises(StoreUnavailable):
        store.append([append])
    assert sum(len(part) for part in store.snapshot("s1", 0)) == 2_000
    other.execute("ROLLBACK")
    other.close()
    store.append([append])
    assert store.bounds(["s1"])[0].upper == Frontier(2)
    store.close()


def test_a_full_disk_makes_it_unavailable_and_loses_nothing(file: Path) -> None:
    filled(file)
    store = SqliteCollections(file)
    writer = store._database._writer  # type: ignore[attr-defined]
    writer.execute("PRAGMA max_page_count = 60")
    rows = [((i, "x" * 100), 1, 1) for i in range(5_000)]
    with pytest.raises(StoreUnavailable, match="full"):
        store.append([CollectionAppend("s1", Frontier(1), Frontier(2), rows)])
    assert store.bounds(["s1"])[0].upper == Frontier(1)
    writer.execute("PRAGMA max_page_count = 1000000")
    store.append([CollectionAppend("s1", Frontier(1), Frontier(2), rows)])
    assert sum(len(part) for part in store.snapshot("s1", 1)) == 7_000
    store.close()


def test_updates_are_merged_and_dropped_in_slices(file: Path) -> None:
    store = SqliteCollections(file)
    store.create("s1", b"")
    for time in range(4):
        store.append(
            [
                CollectionAppend(
                    "s1", Frontier(time), Frontier(time + 1), [((i,), time, 1) for i in range(1_500)]
                )
            ]
        )
    counts: list[int] = []
    connection = sqlite3.connect(file)
    for _ in range(5):
        store.compact("s1", Frontier(3))
        counts += connection.execute("SELECT count(*) FROM headrace_updates").fetchone()
        assert sum(count for part in store.snapshot("s1", 3) for _, count in part) == 6_000
    assert counts == [5_500, 3_500, 1_500, 1_500, 1_500]
    store.create("s2", b"")
    store.drop("s1")
    store.compact("s2", START)
    assert connection.execute(
        "SELECT (SELECT count(*) FROM headrace_updates), id FROM headrace_collections"
    ).fetchall() == [(0, "s2")]
    connection.close()
    store.close()


def test_a_row_that_changes_all_the_time_is_one_row_after_compaction(file: Path) -> None:
    store = SqliteCollections(file)
    store.create("s1", b"")
    updates = [(("hot",), time, 1 if time % 2 == 0 else -1) for time in range(5_001)]
    store.append([CollectionAppend("s1", START, Frontier(5_001), updates)])
    for _ in range(3):
        store.compact("s1", Frontier(5_000))
    connection = sqlite3.connect(file)
    assert connection.execute("SELECT weight FROM headrace_updates").fetchall() == [(1,)]
    connection.close()
    assert list(store.snapshot("s1", 5_000)) == [[(("hot",), 1)]]
    store.close()


def test_a_snapshot_adds_up_few_changes_of_many_rows_that_are_merged(file: Path) -> None:
    store = SqliteCollections(file)
    store.create("s1", b"rows")
    rows = [(n, "word") for n in range(1_000)]
    gone = [((n, "gone"), 0, 1) for n in range(500)]
    store.append([CollectionAppend("s1", START, Frontier(1), [*gone, *((row, 0, 1) for row in rows)])])
    store.append([CollectionAppend("s1", Frontier(1), Frontier(2), [(row, 1, -1) for row, _, _ in gone])])
    store.compact("s1", Frontier(1))
    changes = [((7, "word"), 2, -1), ((8, "word"), 2, 1), ((1_000, "word"), 2, 1)]
    store.append([CollectionAppend("s1", Frontier(2), Frontier(3), changes)])
    found = {row: count for part in store.snapshot("s1", 2, 100) for row, count in part}
    assert found == {(8, "word"): 2, (1_000, "word"): 1, **dict.fromkeys([*rows[:7], *rows[9:]], 1)}
    store.close()


def test_rows_whose_hashes_are_equal_are_told_apart(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.compute.collections.sql_collections.hash_row_key", lambda key: len(key) % 2)
    store = SqliteCollections(file)
    store.create("s1", b"")
    store.append([CollectionAppend("s1", START, Frontier(2), [((i % 7,), i % 2, 1) for i in range(70)])])
    store.append([CollectionAppend("s1", Frontier(2), Frontier(3), [((0,), 2, -10), ((1,), 2, -9)])])
    expected = {(1,): 1} | {(i,): 10 for i in range(2, 7)}
    assert dict(row for part in store.snapshot("s1", 2) for row in part) == expected
    store.compact("s1", Frontier(2))
    assert dict(row for part in store.snapshot("s1", 2) for row in part) == expected
    store.close()


def test_handles_may_be_used_from_another_thread(file: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    store = SqliteCollections(file)
    store.create("s1", b"")
    with ThreadPoolExecutor(2) as pool:
        for time in range(20):
            writing = pool.submit(
                store.append,
                [CollectionAppend("s1", Frontier(time), Frontier(time + 1), [((time,), time, 1)])],
            )
            store.bounds(["s1"])
            writing.result()
            assert sum(map(len, pool.submit(list, store.snapshot("s1", time)).result())) == time + 1
    store.close()


def test_a_snapshot_that_is_given_up_ends_also_after_its_connection(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector finalizes a reader and its connection in any order."""
    opened: list[sqlite3.Connection] = []
    connect = module.SqliteDatabase._open

    def noted(database: module.SqliteDatabase) -> sqlite3.Connection:
        opened.append(connect(database))
        return opened[-1]

    monkeypatch.setattr(module.SqliteDatabase, "_open", noted)
    filled(file)
    with closing(SqliteCollections(file)) as store:
        rows = iter(store.snapshot("s1", 0, chunk=10))
        next(rows)
        opened[-1].close()
        rows.close()  # type: ignore[attr-defined]
