"""Copies: the rows at a time in a file, all of them or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.errors import BadPlan, DataflowFailed, StoreUnavailable
from headrace.compute.protocol.commands import CopyToExport
from headrace.compute.protocol.responses import Counted, Dropped, Frontiers, RowCount
from headrace.compute.replica import durable_exports
from tests.compute.replica.flows import BID, all_bids, shares
from tests.compute.replica.rig import Rig, problem


def copying(folder: Path, file: str, *updates: object) -> Rig:
    rig = Rig(folder=folder).connect().collection("s1", BID, *updates, upper=10)  # type: ignore[arg-type]
    rig.create(all_bids(), CopyToExport("t1", "out", file), as_of=5)
    return rig


def test_the_rows_at_the_as_of_are_written_once(tmp_path: Path) -> None:
    rig = copying(tmp_path, "bids.jsonl", (("a", 5), 3, 2), (("b", 1), 4, 1), (("c", 1), 7, 1))
    rig.run()
    lines = [json.loads(line) for line in (tmp_path / "copies" / "bids.jsonl").read_text().splitlines()]
    assert sorted((line["item"], line["price"]) for line in lines) == [("a", 5), ("a", 5), ("b", 1)]
    assert rig.copies("t1") == [RowCount(3)]
    rig.drop("t1").run()
    assert rig.copies("t1") == [RowCount(3)]
    assert not any(isinstance(r, Frontiers) for r in rig.said)


def test_a_copy_may_be_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rig = copying(tmp_path, "bids.parquet", *((("a", n), 3, 1) for n in range(2500)))
    rig.run()
    assert rig.copies("t1") == [RowCount(2500)]
    table = parquet.read_table(tmp_path / "copies" / "bids.parquet")
    assert sorted(table.column("price").to_pylist()) == list(range(2500))


@pytest.mark.parametrize(
    "file",
    ["../bids.jsonl", "a/b.jsonl", "/tmp/b.jsonl", "..", ".jsonl", "bids", "bids.csv", "a\\b.jsonl", ""],
)
def test_a_copy_is_a_file_in_the_folder_for_copies(tmp_path: Path, file: str) -> None:
    rig = copying(tmp_path / "state", file, (("a", 5), 3, 1))
    rig.run()
    problem(rig.copies("t1")[0], BadPlan)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_copy_that_is_dropped_leaves_nothing(tmp_path: Path) -> None:
    rig = copying(tmp_path, "bids.jsonl", *((("a", n), 3, 1) for n in range(5000)))
    while not list((tmp_path / "copies").glob(".*")):
        rig.step()
    rig.drop("t1").run()
    assert rig.copies("t1") == [Dropped()]
    assert not list((tmp_path / "copies").iterdir())


def test_a_copy_of_what_fails_is_a_problem(tmp_path: Path) -> None:
    rig = Rig(folder=tmp_path).connect().collection("s1", BID, (("a", 0), 3, 1), upper=10)
    rig.create(shares(), CopyToExport("t1", "out", "shares.jsonl"), as_of=5)
    rig.run()
    problem(rig.copies("t1")[0], DataflowFailed)


def test_an_older_file_of_that_name_is_there_until_the_new_one_is_whole(tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "bids.jsonl").write_text("old\n")
    rig = copying(tmp_path, "bids.jsonl", *((("a", n), 3, 1) for n in range(5000)))
    while not list((tmp_path / "copies").glob(".*")):
        rig.step()
    assert (tmp_path / "copies" / "bids.jsonl").read_text() == "old\n"
    rig.run()
    assert len((tmp_path / "copies" / "bids.jsonl").read_text().splitlines()) == 5000


@pytest.mark.parametrize("rows", [10, 50_000])
def test_a_copy_for_which_there_is_no_room_is_a_problem(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_exports, "token_hex", lambda _: "x")
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / ".bids.jsonl.x.partial").symlink_to("/dev/full")
    rig = copying(tmp_path, "bids.jsonl", *((("a", n), 3, 1) for n in range(rows)))
    rig.run()
    problem(rig.copies("t1")[0], StoreUnavailable)
    assert not list((tmp_path / "copies").iterdir())


def test_rows_with_negative_multiplicity_are_not_copied(tmp_path: Path) -> None:
    class Wrong(MemoryCollections):
        def snapshot(self, id: str, at: int, chunk: int = 1) -> Iterator[list[Counted]]:
            return iter([[(("a", 5), -1), (("b", 1), 1)]])

    rig = Rig(folder=tmp_path, store=Wrong()).connect().collection("s1", BID, upper=10)
    rig.create(all_bids(), CopyToExport("t1", "out", "bids.jsonl"), as_of=5)
    rig.run()
    assert rig.copies("t1") == [RowCount(1)]
    assert json.loads((tmp_path / "copies" / "bids.jsonl").read_text()) == {"item": "b", "price": 1}
