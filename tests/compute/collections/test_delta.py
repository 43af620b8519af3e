"""What is particular to the store in a Delta table."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed")

import deltalake
import pyarrow as pa
from deltalake import write_deltalake

from headrace.compute.collections.delta import DeltaCollections
from headrace.compute.collections.delta_table import FEW, CollectionFile, choose_files_to_merge
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import StoreDamaged, StoreUnavailable
from headrace.compute.frontier import START, Frontier


def files(*spans: tuple[int, int, int]) -> list[CollectionFile]:
    return [CollectionFile(f"{n}", first, last, rows, rows) for n, (first, last, rows) in enumerate(spans)]


def test_few_files_are_left_alone_and_many_are_merged_up_to_the_since() -> None:
    small = files(*((time, time, 10) for time in range(FEW)))
    assert choose_files_to_merge(small, FEW - 2) == []
    assert choose_files_to_merge(small, FEW - 1) == small


def test_a_file_that_is_much_larger_is_left_alone() -> None:
    mixed = files((0, 9, 10_000), *((time, time, 10) for time in range(10, 10 + FEW)))
    assert choose_files_to_merge(mixed, 100) == mixed[1:]


def test_files_that_share_a_time_stay_together() -> None:
    split = files((0, 10, 10_000), (10, 10, 10), *((time, time, 10) for time in range(11, 10 + FEW)))
    assert choose_files_to_merge(split, 100) == split


def test_the_table_of_another_program_is_left_alone(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "bills", pa.table({"amount": [1, 2]}))
    with pytest.raises(StoreDamaged, match="bills"):
        DeltaCollections(str(tmp_path / "bills"))


def test_a_log_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = DeltaCollections(str(path))
    store.create("s1", b"")
    (path / "_delta_log" / f"{2:020}.json").write_text("not json\n")
    with pytest.raises(StoreDamaged):
        store.bounds(["s1"])


def test_a_file_that_is_gone_makes_a_reading_end(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = DeltaCollections(str(path))
    store.create("s1", b"")
    store.append([CollectionAppend("s1", START, Frontier(1), [(("a",), 0, 1)])])
    for file in path.glob("collection=1/*.parquet"):
        file.unlink()
    with pytest.raises((StoreUnavailable, StoreDamaged)):
        list(store.snapshot("s1", 0))


def test_what_was_made_is_known_though_the_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DeltaCollections(str(tmp_path / "t"))
    store.create("s1", b"")

    def fails_after(*arguments: object, **more: object) -> None:
        write_deltalake(*arguments, **more)  # type: ignore[call-overload]
        raise OSError("the checkpoint cannot be written")

    def fails_before(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    append = CollectionAppend("s1", START, Frontier(1), [(("a",), 0, 1)])
    monkeypatch.setattr("headrace.tables.delta_table.write_deltalake", fails_before)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        store.append([append])
    monkeypatch.setattr("headrace.tables.delta_table.write_deltalake", fails_after)
    store.append([append])
    assert store.bounds(["s1"])[0].upper == Frontier(1)
    assert list(store.snapshot("s1", 0)) == [[(("a",), 1)]]


def test_the_number_of_files_stays_small_under_compaction(tmp_path: Path) -> None:
    store = DeltaCollections(str(tmp_path / "t"))
    store.create("s1", b"")
    for time in range(40):
        store.append([CollectionAppend("s1", Frontier(time), Frontier(time + 1), [((time % 3,), time, 1)])])
        store.compact("s1", Frontier(time))
    there = deltalake.DeltaTable(tmp_path / "t").get_add_actions(flatten=True)
    assert len(pa.table(there)) < 2 * FEW
    assert {value: n for part in store.snapshot("s1", 39) for (value,), n in part} == {0: 14, 1: 13, 2: 13}
