"""A compacted changelog has its sum and few folders, and its readers see the state before or after."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import Flow, file_system
from headrace.errors import BadInput
from headrace.expr.row_classes import schema_of
from headrace.file_system import FolderLock
from headrace.io import Changelog, SinkRequest, Writer, open_sink
from headrace.io.files import compaction
from headrace.io.files.compaction import TickDirectory, compact, due_groups, tick_to_merge_into
from headrace.state.rewind import rewind
from headrace.tables.version_folders import tick_folders
from tests.io.feeds import Everything, Point
from tests.io.killed_compaction import after, changes, sums, write_changelog
from tests.io.read_changelog import READERS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(compaction, "LISTING_SECONDS", 0.0)


def files(path: Path) -> list[str]:
    return sorted(str(p.relative_to(path)) for p in path.glob("tick=*/*"))


# --- what is merged ------------------------------------------------------------------


def test_old_ticks_become_what_they_add_up_to(tmp_path: Path) -> None:
    write_changelog(tmp_path / "out", 12)
    done = compact(tmp_path / "out", keep=2)
    assert (done.merged, done.into, done.unmerged) == (10, 1, (11, 12))
    last = files(tmp_path / "out")
    assert {"tick=11/part-11-0.parquet", "tick=12/part-12-0.parquet"} < set(last)
    assert len(last) == 3
    (file,) = (tmp_path / "out").glob("tick=*/merged-1-10.parquet")
    merged = pq.ParquetFile(file).read().to_pylist()
    assert merged == [
        {"x": 0, "label": "count", "weight": 10},
        {"x": 10, "label": "last", "weight": 1},
    ]
    assert compact(tmp_path / "out", keep=2).merged == 0
    assert files(tmp_path / "out") == last
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("memory", [64 << 20, 1])
def test_equal_rows_of_any_type_are_one(tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MEMORY_BYTES", memory)
    sink = open_sink(Changelog(tmp_path / "out"), SinkRequest("all", schema_of(Everything)))
    sink.recover(0)
    nan, price, point = float("nan"), Decimal("1.50"), (1, "a")
    row = (True, 1, nan, price, "é", b"\0", None, None, point, (point, point), (None, 3))
    zero = (None, None, -0.0, *(None,) * 8)
    for tick in range(1, 7):
        sink.prepare(tick, [(*row, tick), (*zero[:2], 0.0 if tick % 2 else -0.0, *zero[3:], (-1) ** tick)])
        sink.publish(tick)
    sink.close()
    compact(tmp_path / "out", keep=1)
    (file,) = (tmp_path / "out").glob("tick=*/merged-1-5.parquet")
    merged = pq.ParquetFile(file).read().to_pylist()
    weights = Counter[str]()
    for found in merged:
        weights[str(found["text"])] += found["weight"]
    assert weights == {"é": 15, "None": -1}
    assert memory == 1 or [found["numbers"] for found in merged] == [[None, 3], None]


def test_a_sink_merges_as_it_writes_and_keeps_the_last_ticks(tmp_path: Path) -> None:
    sink = open_sink(Changelog(tmp_path / "out", compact_after=5), SinkRequest("points", schema_of(Point)))
    sink.recover(0)
    most = 0
    for tick in range(1, 400):
        sink.prepare(tick, changes(tick))
        sink.publish(tick)
        ticks = tick_folders(tmp_path / "out").numbers()
        assert ticks[-5:] == list(range(max(1, tick - 4), tick + 1))
        most = max(most, len(ticks))
        if tick % 20 == 0:
            assert sums(tmp_path / "out") == after(tick)
    sink.close()
    assert most <= 5 + compaction.MIN_BATCH + 8
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_row_is_rewritten_a_logarithmic_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_BYTES", 1 << 40)
    rewritten = 0
    folders: list[TickDirectory] = []
    for tick in range(1, 16_385):
        folders.append(TickDirectory(tick, tick, tick, (Path("part"),), 100, 0.0))
        if sum(not f.is_merged for f in folders) < 17:
            continue
        for group in due_groups(folders, 1, 1.0):
            size = sum(f.bytes for f in group)
            rewritten += size
            first, last = group[0].first, group[-1].last
            at = folders.index(group[0])
            merged = Path(f"merged-{first}-{last}.parquet")
            folders[at : at + len(group)] = [TickDirectory(last, first, last, (merged,), size, 0.0)]
    assert rewritten <= 16_384 * 100 * 11
    assert len(folders) < 32


def test_large_folders_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_BYTES", 1000)
    sizes = [990, 400, *[100] * 20]
    folders = [TickDirectory(tick, tick, tick, (Path("part"),), size, 0.0) for tick, size in enumerate(sizes)]
    groups = due_groups(folders, 1, 1.0)
    assert [[f.tick for f in group] for group in groups] == [list(range(1, 8)), list(range(8, 18))]


def test_young_folders_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SETTLED_SECONDS", 60.0)
    folders = [TickDirectory(tick, tick, tick, (Path("part"),), 9, float(tick)) for tick in range(20)]
    assert [[f.tick for f in group] for group in due_groups(folders, 1, 70.5)] == [list(range(11))]


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    write_changelog(tmp_path / "out", 9)
    (tmp_path / "out" / "_readme").write_text("ours")
    (tmp_path / "out" / "_link").symlink_to("_readme")
    (tmp_path / "out" / "_staging" / "parts").mkdir(parents=True)
    (tmp_path / "out" / "_staging" / "parts" / "a").write_text("b")
    (tmp_path / "out").chmod(0o750)
    (tmp_path / "by").symlink_to("out")
    for tick in range(1, 5):
        (tmp_path / "out" / f"tick={tick}" / f"part-{tick}-0.parquet").unlink()
    wanted = sums(tmp_path / "out")
    assert compact(tmp_path / "by", keep=1).merged == 8
    assert (tmp_path / "by").is_symlink()
    assert sums(tmp_path / "by") == wanted
    assert (tmp_path / "out" / "_link").read_text() == "ours"
    assert (tmp_path / "out" / "_staging" / "parts" / "a").read_text() == "b"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o750


# --- with runs -----------------------------------------------------------------------


class Sale(NamedTuple):
    shop: int


def run(folder: Path, ticks: int, compact_after: int = 1) -> None:
    flow = Flow("sales")
    flow.sink("totals", flow.source("sales", Sale).group_by(hr.col.shop).agg(n=hr.count()))
    sinks = {"totals": Changelog(folder / "out", compact_after)}
    hr.run(flow, {"sales": [Sale(n % 3) for n in range(ticks)]}, sinks, checkpoint=folder / "c", tick_rows=1)


def test_a_run_goes_on_from_a_compacted_changelog_also_after_a_rewind(tmp_path: Path) -> None:
    run(tmp_path, 60)
    assert tick_folders(tmp_path / "out").numbers()[0] > 30
    # Also those ticks whose number compact_after=1 allows to be merged.
    for back in (59, 58):
        rewind(tmp_path / "c", back)
        assert set(range(back, 61)) <= set(tick_folders(tmp_path / "out").numbers())
        with pytest.raises(BadInput, match="already holds tick 60"):
            run(tmp_path, 60)
        for tick in range(back + 1, 61):
            shutil.rmtree(tmp_path / "out" / f"tick={tick}")
        run(tmp_path, 60)
        assert sums(tmp_path / "out") == {(shop, 20): 1 for shop in range(3)}
    run(tmp_path, 90)
    assert sums(tmp_path / "out") == {(shop, 30): 1 for shop in range(3)}


def test_compaction_can_begin_and_end_with_any_run(tmp_path: Path) -> None:
    run(tmp_path, 30, compact_after=100)
    assert len(tick_folders(tmp_path / "out").numbers()) == 30
    run(tmp_path, 60)
    assert len(tick_folders(tmp_path / "out").numbers()) < 25
    compact(tmp_path / "out", keep=3)
    run(tmp_path, 66, compact_after=100)
    assert sums(tmp_path / "out") == {(shop, 22): 1 for shop in range(3)}


def test_a_sink_leaves_a_changelog_alone_that_another_process_holds(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = open_sink(Changelog(out, compact_after=1), SinkRequest("points", schema_of(Point)))
    sink.recover(0)
    other = FolderLock.take(out)
    assert other is not None
    for tick in range(1, 30):
        sink.prepare(tick, changes(tick))
        sink.publish(tick)
    assert len(tick_folders(out).numbers()) == 29
    other.release()
    sink.prepare(30, changes(30))
    sink.publish(30)
    assert tick_folders(out).numbers() == [29, 30]
    assert FolderLock.take(out, exclusive=True) is None
    sink.close()
    assert sums(out) == after(30)


def test_where_folders_cannot_be_exchanged_it_is_refused_before_the_first_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Path) -> None:
        raise OSError(22, "Invalid argument")

    write_changelog(tmp_path / "out", 9)
    monkeypatch.setattr(file_system, "exchange_folders", refuse)
    why = "cannot be compacted\n\nIts folder cannot be exchanged atomically .*: Invalid argument"
    with pytest.raises(BadInput, match=why):
        compact(tmp_path / "out")
    with pytest.raises(BadInput, match=why):
        write_changelog(tmp_path / "out", 1, 10, compact_after=1)
    monkeypatch.setattr(os.path, "ismount", lambda _: True)
    with pytest.raises(BadInput, match="it is where a file system is mounted"):
        compact(tmp_path / "out")
    assert sums(tmp_path / "out") == after(9)
    assert not list(tmp_path.glob(".*"))


# --- readers -------------------------------------------------------------------------


def by_name(names: list[str]) -> list[str]:
    return sorted(names)


def by_number(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: int(name.partition("=")[2]))


def as_listed(names: list[str]) -> list[str]:
    return names


def reading(path: Path, order: Callable[[list[str]], list[str]]) -> Iterator[Counter[Any] | None]:
    """The steps of the most forgiving reader, which leaves out what has disappeared until it opens files."""
    names = [name for name in os.listdir(path) if name.startswith("tick=")]
    found: list[Path] = []
    for name in order(names):
        yield None
        try:
            listed = os.listdir(path / name)
        except FileNotFoundError:
            continue
        for file in listed:
            yield None
            if (path / name / file).exists():
                found.append(path / name / file)
    rows: Counter[Any] = Counter()
    for file in found:
        yield None
        for row in pq.ParquetFile(file).read().to_pylist():
            rows[row["x"], row["label"]] += row["weight"]
    yield Counter({row: weight for row, weight in rows.items() if weight})


@pytest.mark.parametrize("order", [by_name, by_number, as_listed])
@pytest.mark.parametrize("ticks", [range(1, 10), range(8, 14)], ids=lambda ticks: f"{ticks[0]}-{ticks[-1]}")
def test_at_whatever_step_of_a_reader_it_sees_one_state_or_fails(
    tmp_path: Path, ticks: range, order: Callable[[list[str]], list[str]]
) -> None:
    given = tmp_path / "given"
    write_changelog(given, ticks[-1])
    for tick in range(1, ticks[0]):
        shutil.rmtree(given / f"tick={tick}")
    wanted = sums(given)
    steps = sum(1 for _ in reading(given, order))
    outcomes: Counter[str] = Counter()
    for at in range(steps):
        out = tmp_path / str(at)
        shutil.copytree(given, out)
        try:
            for step, found in enumerate(reading(out, order)):
                if step == at:
                    assert compact(out, keep=1).merged
                if found is not None:
                    outcomes["one state"] += 1
                    assert found == wanted, f"compacted at step {at} of {steps}"
        except FileNotFoundError:
            outcomes["failed"] += 1
    assert outcomes["one state"] > 1
    assert outcomes["failed"] > 1


def test_the_merged_rows_are_where_no_reader_looks_first() -> None:
    def chosen(ticks: list[int], listed: list[int]) -> int:
        group = [TickDirectory(tick, tick, tick, (), 1, 0.0) for tick in ticks]
        return tick_to_merge_into(group, ["_staging", "tick=1", *(f"tick={tick}" for tick in listed)])

    assert chosen([6, 7, 8, 9], [6, 7, 8, 9]) == 9
    assert chosen([6, 7, 8, 9], [9, 8, 7, 6]) == 8
    assert chosen([7, 8, 9, 10], [8, 9, 10, 7]) == 9
    assert chosen([7, 8, 9, 10], [9, 8, 10, 7]) == 8


@pytest.mark.verify
@pytest.mark.parametrize("name", READERS)
def test_readers_of_others_see_whole_ticks_while_it_is_written_and_compacted(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Far longer than a reader takes to list the folders, on a busy machine too.
    monkeypatch.setattr(compaction, "SETTLED_SECONDS", 0.5)
    monkeypatch.setattr(compaction, "LISTING_SECONDS", 0.5)
    out = tmp_path / "out"
    write_changelog(out, 8)
    reader = subprocess.Popen(
        [sys.executable, "-m", "tests.io.read_changelog", name, str(out)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    compactions, tick = 0, 8
    sink: Writer = open_sink(Changelog(out, compact_after=3), SinkRequest("points", schema_of(Point)))
    sink.recover(8)
    until = time.monotonic() + 4
    while time.monotonic() < until and reader.poll() is None:
        before, tick = os.stat(out).st_ino, tick + 1
        sink.prepare(tick, changes(tick))
        sink.publish(tick)
        compactions += os.stat(out).st_ino != before
        time.sleep(0.002)
    sink.close()
    (tmp_path / "done").touch()
    reads, errors, last = reader.communicate(timeout=60)[0].strip().split(" ", 2)
    assert last == "ok"
    assert compactions > 3
    assert int(reads) - int(errors) > 3
    assert sums(out) == after(tick)


# --- killed --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["command", pytest.param("run", marks=pytest.mark.verify)])
def test_killed_at_any_operation_it_leaves_the_state_before_or_after(tmp_path: Path, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.io.killed_compaction", what, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
    if what == "run":
        totals = {(shop, sum(range(shop, 48, 3))): 1 for shop in range(3)}
        assert sums(tmp_path / "out") == totals
        assert [name for name in files(tmp_path / "out") if "merged" in name]
