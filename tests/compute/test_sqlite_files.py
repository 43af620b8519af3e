"""Files of the serving layer: another one in their place, and the locks of several users of one."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

from headrace.compute import sqlite_files
from headrace.compute.collections.sqlite import SqliteCollections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import StoreDamaged
from headrace.compute.frontier import START, Frontier
from headrace.compute.sqlite_files import OpenFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "collections.db"


def filled(file: Path) -> None:
    with closing(SqliteCollections(file)) as store:
        store.create("s1", b"words")
        store.append(
            [CollectionAppend("s1", START, Frontier(1), [((i, f"word {i}"), 0, 1) for i in range(2_000)])]
        )


def statements(file: Path, *sql: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in sql:
            connection.execute(statement)


def written(file: Path, store: SqliteCollections, times: range) -> None:
    for time in times:
        store.append(
            [CollectionAppend("s1", Frontier(time), Frontier(time + 1), [((time, "x" * 1_000), time, 1)])]
        )
    statements(file, "PRAGMA wal_checkpoint")


@pytest.fixture
def store(file: Path) -> Iterator[SqliteCollections]:
    with closing(SqliteCollections(file)) as made:
        made.create("s1", b"words", Frontier(0))
        written(file, made, range(10))
        yield made


def check_is_noticed(store: SqliteCollections) -> None:
    for use in (
        lambda: store.bounds(["s1"]),
        lambda: store.append([CollectionAppend("s1", Frontier(99), Frontier(100), [])]),
        lambda: list(store.snapshot("s1", 0)),
        lambda: store.wait(0),
    ):
        with pytest.raises(StoreDamaged, match="was replaced"):
            use()


def test_an_earlier_copy_of_the_file_itself_is_noticed(file: Path, store: SqliteCollections) -> None:
    earlier = file.read_bytes()
    written(file, store, range(10, 20))
    store.bounds(["s1"])
    file.write_bytes(earlier)
    check_is_noticed(store)


@pytest.mark.parametrize("more", [0, 100])
def test_the_content_of_another_store_is_noticed(file: Path, store: SqliteCollections, more: int) -> None:
    other = file.with_name("other.db")
    with closing(SqliteCollections(other)) as opened:
        opened.create("s1", b"words", Frontier(0))
        written(other, opened, range(10 + more))
    file.write_bytes(other.read_bytes())
    check_is_noticed(store)


def test_a_file_that_is_emptied_is_noticed(file: Path, store: SqliteCollections) -> None:
    file.write_bytes(b"")
    check_is_noticed(store)


def test_no_file_takes_the_place_of_one_that_was_moved_away(file: Path, store: SqliteCollections) -> None:
    """An empty store in its place would be served after a restart."""
    file.rename(file.with_name("moved.db"))
    check_is_noticed(store)
    assert not file.exists()


def test_no_file_takes_the_place_of_one_that_is_moved_away_during_the_look(
    file: Path, store: SqliteCollections, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move_away(_: float) -> None:
        file.rename(file.with_name("moved.db"))

    monkeypatch.setattr(sqlite_files.time, "sleep", move_away)
    file.write_bytes(b"")
    with pytest.raises(StoreDamaged, match="was replaced"):
        store.bounds(["s1"])
    assert not file.exists()


def test_changes_of_others_and_their_checkpoints_are_not_taken_for_another_file(
    file: Path, store: SqliteCollections
) -> None:
    with closing(SqliteCollections(file)) as other:
        for time in range(10, 60):
            written(file, (store, other)[time % 2], range(time, time + 1))
            if time % 7 == 0:
                other.compact("s1", Frontier(time))
            if time % 20 == 0:
                store.erase()
            assert store.bounds(["s1"]) == other.bounds(["s1"])
    assert store.bounds(["s1"])[0].upper == Frontier(60)


def test_a_file_of_an_earlier_version_gets_its_identity_when_it_is_opened(file: Path) -> None:
    filled(file)
    statements(file, "DROP TABLE headrace_file")
    with closing(SqliteCollections(file)) as store, closing(SqliteCollections(file)) as other:
        earlier = file.read_bytes()
        other.erase()  # moves its page
        assert sum(map(len, store.snapshot("s1", 0))) == 2_000
        file.write_bytes(earlier)
        check_is_noticed(store)


def test_the_locks_of_one_user_of_a_file_survive_the_end_of_another(file: Path) -> None:
    """A process that closes any descriptor of a file loses all its locks on it."""
    filled(file)
    with closing(SqliteCollections(file)) as store:
        SqliteCollections(file).close()
        assert is_locked(file)
        reading = store.snapshot("s1", 0, chunk=10)
        next(reading)
    assert is_locked(file)
    assert sum(map(len, reading)) == 1_990
    assert not is_locked(file)


def test_the_locks_of_a_snapshot_that_is_given_up_after_its_store_end_with_it(file: Path) -> None:
    filled(file)
    with closing(SqliteCollections(file)) as store:
        first, second = (store.snapshot("s1", 0, chunk=10) for _ in range(2))
        next(first)
        next(second)
    first.close()  # type: ignore[attr-defined]
    assert is_locked(file)
    second.close()  # type: ignore[attr-defined]
    assert not is_locked(file)


@pytest.mark.parametrize("ends", [False, True], ids=["begins", "ends"])
def test_a_user_of_a_file_may_be_collected_at_any_point_where_another_begins_or_ends(
    ends: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_files, "_PAUSE", 0)
    opened: list[int] = []
    os_open, os_close = os.open, os.close

    def open_noted(path: str, flags: int) -> int:
        opened.append(os_open(path, flags))
        return opened[-1]

    def close_noted(descriptor: int) -> None:
        opened.remove(descriptor)
        os_close(descriptor)

    filled(file)
    whole = file.read_bytes()
    monkeypatch.setattr(sqlite_files.os, "open", open_noted)
    monkeypatch.setattr(sqlite_files.os, "close", close_noted)
    with closing(sqlite3.connect(file)) as connection:
        for step in count():
            collected = [OpenFile(str(file), connection)]
            users = [OpenFile(str(file), connection) for _ in range(2 * ends)]
            with calling_at(step, collected.clear):
                if ends:
                    users.pop().close()
                else:
                    users.append(OpenFile(str(file), connection))
            is_over, (user,) = bool(collected), users
            collected.clear()
            user.check()
            file.write_bytes(b"")
            with pytest.raises(StoreDamaged, match="was replaced"):
                user.check()
            file.write_bytes(whole)
            user.close()
            assert opened == [], step
            if is_over:
                assert step > 10
                break


@contextmanager
def calling_at(step: int, call: Callable[[], object]) -> Iterator[None]:
    """Call a function where a step of the bytecode of `sqlite_files` begins, as the collector does."""
    steps = count()

    def trace(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_filename != sqlite_files.__file__:
            return None
        frame.f_trace_opcodes = True
        if next(steps) == step:
            call()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.settrace(before)


def is_locked(file: Path) -> bool:
    """Return whether another process is kept from having the file for itself."""
    script = (
        "import sqlite3, sys\n"
        "alone = sqlite3.connect(sys.argv[1], timeout=0)\n"
        "alone.execute('PRAGMA locking_mode = EXCLUSIVE')\n"
        "alone.execute('BEGIN EXCLUSIVE')\n"
        "alone.execute('SELECT 1 FROM sqlite_schema')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True)
    assert ended.returncode == 0 or "database is locked" in ended.stderr
    return ended.returncode != 0
