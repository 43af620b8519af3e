"""What users read when a store of collections refuses: `collections/*.txt` beside this file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import CollectionAppend, Collections
from headrace.compute.frontier import START, Frontier
from headrace.errors import HeadraceError
from tests.golden import assert_golden

GOLDEN = Path(__file__).parent / "collections"


def filled() -> Collections:
    store = MemoryCollections()
    store.create("s1", b"")
    store.append([CollectionAppend("s1", START, Frontier(8), [(("ann", 3), 5, 1)])])
    return store


def append(expected: int, *updates: tuple[tuple[str, int], int, int]) -> None:
    filled().append([CollectionAppend("s1", Frontier(expected), Frontier(expected + 2), updates)])


def compacted() -> None:
    store = filled()
    store.compact("s1", Frontier(6))
    store.snapshot("s1", 4)


def of_another_program() -> None:
    connection = sqlite3.connect("bills.db")
    connection.execute("CREATE TABLE bills (amount INTEGER)")
    connection.close()
    open_collections("bills.db")


def no_database() -> None:
    Path("notes.txt").write_text("remember the milk\n" * 200)
    open_collections("sqlite:notes.txt")


MISTAKES: dict[str, Callable[[], object]] = {
    "no_such_store": lambda: open_collections("mysql://ann:secret@db/shop"),
    "no_folder": lambda: open_collections("missing/collections.db"),
    "of_another_program": of_another_program,
    "no_database": no_database,
    "unknown_collection": lambda: filled().bounds(["s2"]),
    "another_collection": lambda: filled().create("s1", b"other columns"),
    "somebody_was_faster": lambda: append(6),
    "never_there": lambda: append(8, (("bob", 1), 8, -1)),
    "taken_back_twice": lambda: append(8, (("ann", 3), 8, -1), (("ann", 3), 9, -1)),
    "compacted": compacted,
    "not_settled": lambda: filled().snapshot("s1", 8),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_says_what_why_and_what_to_do(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HeadraceError) as error:
        MISTAKES[mistake]()
    assert_golden(GOLDEN / f"{mistake}.txt", f"{error.value}\n".replace(f"{tmp_path}{os.sep}", ""))
