"""State that lies in arrangements is shown, moved, erased and checked as all state is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

import headrace as hr
from headrace import Flow, col
from headrace.engine.columnar.columnar_option import Columnar
from headrace.engine.columnar.loop_rounds import ColumnarLoop
from headrace.errors import CheckpointDamaged, FlowChanged
from headrace.spark.resharding import reshard
from headrace.state.checkpoint import erase
from headrace.state.commit import CommitLog
from headrace.state.inspection import StateSize, inspect, rows_of_key
from headrace.state.manifest import DescribedRows
from headrace.state.rewind import rewind
from tests.spark.tasks_with_checkpoint import CheckpointedTasks

pytest.importorskip("pyspark")


SECRET = "a text that is longer than a view holds by itself"
START = datetime(2026, 1, 1, tzinfo=UTC)


class Bid(NamedTuple):
    item: str
    price: int
    at: datetime


class Item(NamedTuple):
    item: str
    owner: str


def flow() -> Flow:
    flow = Flow("joined")
    bids, items = flow.table("bids", Bid), flow.table("items", Item)
    joined = bids.join(items, on="item", name="owned")
    flow.sink("joined", joined)
    flow.sink("sums", joined.group_by(col.owner).agg(sum=hr.sum(col.price), name="sums"))
    at_times = bids.join(bids.select(col.at, first=col.price), on="at", how="semi", name="at times")
    flow.sink("times", at_times)
    return flow


TICKS: list[dict[str, list[Any]]] = [
    {"items": [hr.insert(Item(f"i{n}", f"o{n % 3}")) for n in range(6)]},
    {"bids": [hr.insert(Bid(f"i{n % 6}", n, START.replace(day=1 + n % 4))) for n in range(24)]},
    {"items": [hr.insert(Item("i9", SECRET))], "bids": [hr.insert(Bid("i9", 5, START))]},
    {"items": [hr.delete(Item("i9", SECRET))], "bids": [hr.delete(Bid("i9", 5, START))]},
    {"bids": [hr.insert(Bid("i1", 100, START)), hr.delete(Bid("i2", 2, START.replace(day=3)))]},
]


def ran(folder: Path, ticks: list[Any], shards: int | None = None) -> Counter[Any]:
    """The changes of some ticks."""
    made: Counter[Any] = Counter()
    with CheckpointedTasks(flow(), folder, shards=shards) as tasks:
        for tick in ticks:
            for name, rows in tasks.tick(tick).items():
                for *row, weight in rows:
                    made[name, *row] += weight
    return made


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    ran(tmp_path / "c", TICKS[:4], shards=2)
    return tmp_path / "c"


@pytest.fixture
def last(tmp_path: Path) -> Counter[Any]:
    """What the last tick changes in a run that was left alone."""
    ran(tmp_path / "whole", TICKS[:4], shards=2)
    return ran(tmp_path / "whole", TICKS[4:])


def held(folder: Path) -> dict[tuple[str | None, str], int]:
    return {(slot.called, slot.what): slot.whole.keys for slot in inspect(folder).slots}


KEYS = {
    ("owned", "left"): 6,
    ("owned", "right"): 6,
    ("sums", "groups"): 3,
    ("at times", "left"): 4,
    ("at times", "right"): 4,
}


def test_sizes_are_those_of_what_is_held(checkpoint: Path) -> None:
    assert held(checkpoint) == KEYS
    assert all(slot.whole.bytes > 0 for slot in inspect(checkpoint).slots)
    assert (
        sum((of for slot in inspect(checkpoint).slots for of in slot.shards.values()), StateSize()).keys == 23
    )


def test_the_rows_of_a_key_are_shown(checkpoint: Path) -> None:
    (left, right) = rows_of_key(checkpoint, "owned", "i1")
    bids = [Bid("i1", n, START.replace(day=1 + n % 4)) for n in (1, 7, 13, 19)]
    assert (left.what, left.key, left.value) == ("left", "i1", dict.fromkeys(map(tuple, bids), 1))
    assert (right.what, right.value) == ("right", {("i1", "o1"): 1})
    left, right = rows_of_key(checkpoint, "at times", "2026-01-03 00:00:00+00:00")
    assert (left.key, len(left.value), right.key, right.value) == (START.replace(day=3), 6, left.key, 6)
    assert rows_of_key(checkpoint, "owned", "i9") == []


@pytest.mark.parametrize("shards", [1, 3])
def test_on_other_shards_a_run_goes_on_as_if_nothing_had_been(
    checkpoint: Path, last: Counter[Any], shards: int
) -> None:
    assert reshard(checkpoint, shards, flow()).keys == sum(KEYS.values())
    assert held(checkpoint) == KEYS
    assert ran(checkpoint, TICKS[4:], shards) == last
    rewind(checkpoint, 4)
    assert ran(checkpoint, TICKS[4:]) == last


def test_a_tick_is_run_again_after_going_back(checkpoint: Path, last: Counter[Any]) -> None:
    third = ran(checkpoint, [])
    rewind(checkpoint, 2)
    assert rows_of_key(checkpoint, "owned", "i9") == [] == [*third]
    ran(checkpoint, TICKS[2:4])
    assert ran(checkpoint, TICKS[4:]) == last


def files_with(folder: Path, text: str) -> list[Path]:
    return [file for file in folder.glob("state/*/*") if text.encode() in file.read_bytes()]


def test_what_was_taken_back_is_erased(checkpoint: Path, last: Counter[Any]) -> None:
    assert files_with(checkpoint, SECRET)
    done = erase(checkpoint)
    assert files_with(checkpoint, SECRET) == []
    assert (done.tick, held(checkpoint)) == (4, KEYS)
    assert ran(checkpoint, TICKS[4:]) == last


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def altered(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])


@pytest.mark.parametrize("harm", [cut_off, altered, Path.unlink])
def test_a_damaged_file_is_named(checkpoint: Path, harm: Callable[[Path], Any]) -> None:
    commit = CommitLog(checkpoint).last()
    assert commit is not None
    named = [
        file.name
        for chain in commit.chains.values()
        for runs in chain.arranged.values()
        for run in runs
        for file in run.files()
    ]
    for name in named[:2]:
        content = (checkpoint / name).read_bytes()
        harm(checkpoint / name)
        assert any(name in damage for damage in inspect(checkpoint).damage)
        for use in (erase, lambda folder: reshard(folder, 3, flow()), lambda folder: ran(folder, TICKS[4:])):
            with pytest.raises(CheckpointDamaged, match=Path(name).name):
                use(checkpoint)
        (checkpoint / name).write_bytes(content)


def test_files_of_late_attempts_go(checkpoint: Path) -> None:
    late = checkpoint / "state" / "002" / "000000000004-late.a0"
    late.parent.mkdir(exist_ok=True)
    late.write_bytes(b"x")
    ran(checkpoint, TICKS[4:])
    assert not late.exists()


def test_a_run_whose_state_has_other_columns_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = DescribedRows.to_text
    monkeypatch.setattr(DescribedRows, "to_text", lambda self: text(self).replace("Int64", "Int32"))
    with pytest.raises(FlowChanged, match="its left and right"):
        ran(checkpoint, TICKS[4:])


class Change(NamedTuple):
    id: int
    city: str
    at: int
    op: str


def of_records() -> Flow:
    flow = Flow("records")
    changes, row = flow.source("changes", Change), hr.struct(id=col.id, city=col.city)
    options: Any = {"sequence": "at", "row": row, "deleted": col.op == "D", "on_misfit": "trust_key"}
    flow.sink("rows", changes.upsert("id", **options, name="rows"))
    flow.sink("versions", changes.history("id", **options))
    return flow


RECORDS: list[dict[str, list[Any]]] = [
    {"changes": [Change(n, f"c{n}", at, "I") for n in range(8) for at in (1, 5)]},
    {"changes": [*(Change(n, f"d{n}", 9, "I") for n in range(4)), Change(9, SECRET, 3, "I")]},
    {"changes": [Change(9, SECRET, 3, "D"), Change(1, "", 12, "D"), Change(2, "old", 2, "I")]},
    {"changes": [Change(1, "back", 14, "I"), Change(0, "late", 11, "I"), Change(9, "older", 2, "I")]},
]


def versions_of(folder: Path, ticks: list[Any], shards: int | None = None) -> list[Counter[Any]]:
    """The changes of each tick."""
    made: list[Counter[Any]] = []
    with CheckpointedTasks(of_records(), folder, shards=shards) as tasks:
        for tick in ticks:
            changes: Counter[Any] = Counter()
            for name, rows in tasks.tick(tick).items():
                for *row, weight in rows:
                    changes[name, *row] += weight
            made.append(changes)
    return made


def test_records_by_key_are_shown_moved_and_erased(tmp_path: Path) -> None:
    engine = hr.Engine(of_records())
    wanted = [
        Counter({(name, *row): n for name, rows in engine.tick(**tick).items() for *row, n in rows.raw})
        for tick in RECORDS
    ]
    folder = tmp_path / "c"
    assert versions_of(folder, RECORDS[:3], shards=2) == wanted[:3]
    keys = {("rows", "rows"): 9, (None, "rows"): 9}
    assert {what: n for what, n in held(folder).items() if what[1] == "rows"} == keys
    (row,) = rows_of_key(folder, "rows", 2)
    # The sequence, the kind, the next older sequence with digests of its rows, the row, its own digests.
    (((sequence, kind, older, digests, *others), copies),) = row.value.items()
    assert (sequence, kind, older, len(digests), *others, copies) == (9, 1, 5, 8, 2, "d2", None, 1)
    (history,) = {slot.name for slot in inspect(folder).slots if slot.called is None and slot.what == "rows"}
    (versions,) = rows_of_key(folder, history, 2)
    assert sorted(versions.value) == [
        (at, 1, 2, c, None) for at, c in [(1, "c2"), (2, "old"), (5, "c2"), (9, "d2")]
    ]
    assert files_with(folder, SECRET)
    erase(folder)
    assert files_with(folder, SECRET) == []
    assert {what: n for what, n in held(folder).items() if what[1] == "rows"} == keys
    reshard(folder, 3, of_records())
    # The row that the deletion of its sequence hid is known by its digest alone, and stays hidden.
    assert versions_of(folder, RECORDS[3:]) == wanted[3:]


def test_versions_are_those_of_a_run_that_never_went_back(tmp_path: Path) -> None:
    wanted = versions_of(tmp_path / "whole", RECORDS, shards=2)
    versions_of(tmp_path / "c", RECORDS[:3], shards=2)
    rewind(tmp_path / "c", 1)
    assert versions_of(tmp_path / "c", RECORDS[1:]) == wanted[1:]


# -- sums of floats -----------------------------------------------------------------------------------


class Reading(NamedTuple):
    meter: str
    value: float


def readings() -> Flow:
    flow = Flow("readings")
    by_meter = flow.table("readings", Reading).group_by("meter")
    flow.sink("out", by_meter.agg(total=hr.sum(col.value), mean=hr.mean(col.value), name="totals"))
    return flow


FLOATS = (0.1, -2.5, 1e308, 1e308, 2.0**-1074, 1e-300, float("inf"), float("nan"), 1e16, 1.0)


def test_sums_of_any_floats_survive_restarts_and_shards(tmp_path: Path) -> None:
    """The largest and the smallest floats have columns in files, though large ticks compute with none."""
    changes = [Reading(f"m{n % 3}", value) for n, value in enumerate(FLOATS * 3)]
    ticks = [[hr.insert(row) for row in changes[at : at + 6]] for at in range(0, 30, 6)]
    ticks += [[hr.delete(row)] for row in changes if row.value != 0.1]
    engine = hr.Engine(readings())
    for at, tick in enumerate(ticks):
        shards = 2 + at % 2
        if at:
            reshard(tmp_path / "c", shards, readings())
        with CheckpointedTasks(readings(), tmp_path / "c", shards=shards) as tasks:
            made = tasks.tick({"readings": tick})
        expected = Counter(repr((*c.row, c.weight)) for c in engine.tick(readings=tick).get("out", ()))
        assert Counter(map(repr, made.get("out", []))) == expected
    assert held(tmp_path / "c") == {("totals", "groups"): 3}


def reach() -> Flow:
    """Nodes that are reached from some roots: a loop, whose state lies in arrangements, too."""
    flow = Flow("reach")
    edges, roots = flow.source("edges", Edge), flow.source("roots", int)

    def further(found: Any) -> Any:
        return found.join(edges, on=hr.left.value == hr.right.a, name="along").select(value=col.b, into=int)

    reached = flow.feedback(int)
    reached.close(roots.union(further(reached)))
    flow.sink("out", reached)
    return flow


class Edge(NamedTuple):
    a: int
    b: int


def test_rounds_that_are_large_and_small_in_turn_leave_few_batches(tmp_path: Path) -> None:
    hubs, leaves = 40, 310
    edges = [Edge(10**6 + n, 2 * 10**6 + n) for n in range(5 * hubs * leaves)]
    for at in range(hubs * leaves):
        edges += [Edge(at // leaves, 10**5 + at), Edge(10**5 + at, at // leaves + 1)]
    batches: list[int] = []
    go_on: Any = ColumnarLoop.go_on

    def noted(loop: ColumnarLoop, *given: Any) -> Any:
        made = go_on(loop, *given)
        batches.append(max(len(slots.spine(name).batches) for slots in loop._slots for name in slots.forms))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ColumnarLoop, "go_on", noted)
        with CheckpointedTasks(reach(), tmp_path / "c", shards=1, loops="one shard") as tasks:
            tasks.tick({"edges": edges})
            assert len(tasks.tick({"roots": [0]})["out"]) == hubs * (leaves + 1) + 1
    assert len(batches) == hubs
    assert max(batches) < 10


REACH: list[dict[str, list[Any]]] = [
    # Rounds of many rows, and of few.
    {"edges": [Edge(n, 2 * n + more) for n in range(1, 600) for more in (0, 1)], "roots": [4]},
    {"edges": [Edge(n, n + 1) for n in range(2_000, 2_020)]},
    {"edges": [Edge(700, 2_000)], "roots": [1, 10]},
    {"edges": [Edge(2_020, n) for n in range(3_000, 3_400)] + [Edge(3_000, 5_000), Edge(5_000, 5_001)]},
    {"edges": [Edge(5_001, 700), Edge(3_399, 6_000)], "roots": [3_000, 7_000]},
]


def test_the_state_of_a_loop_lies_in_arrangements(tmp_path: Path) -> None:
    folder, engine = tmp_path / "c", hr.Engine(reach(), columnar="never")
    wanted = [sorted(engine.tick(**tick)["out"].raw) for tick in REACH]

    def gone_on(begin: int, end: int, shards: int | None = None) -> list[Any]:
        with CheckpointedTasks(reach(), folder, shards=shards, loops="one shard") as tasks:
            return [sorted(tasks.tick(tick).get("out", [])) for tick in REACH[begin:end]]

    assert gone_on(0, 3, shards=2) == wanted[:3]
    assert gone_on(3, 5) == wanted[3:]
    reached = sum(map(len, wanted))
    sizes = held(folder)
    assert sizes[None, "rows"] == sizes["along", "left"] == reached
    (one,) = (slot for slot in inspect(folder).slots if slot.what == "rows")
    assert [found.value for found in rows_of_key(folder, str(one.operator), [6_000])] == [1]
    assert [found.value for found in rows_of_key(folder, "along", 3_399)] == [
        {(3_399,): 1},
        {(3_399, 6_000): 1},
    ]
    rewind(folder, 3)
    assert reshard(folder, 3, reach()).keys
    assert gone_on(3, 5, shards=3) == wanted[3:]
    assert held(folder) == sizes


def test_a_sum_that_grew_in_columns_leaves_nothing_where_rows_take_it_back(tmp_path: Path) -> None:
    one, other = Reading("m", 2e17), Reading("m", 2.5e17)
    ticks = [[hr.insert(one)], [hr.insert(other)], [hr.delete(one), hr.delete(other)]]
    made: dict[str, list[Any]] = {}
    for at, tick in enumerate(ticks):
        cells = Columnar(1, always=at < 2, release=lambda name: None)
        with (
            mock.patch("headrace.spark.ticks.cell.ARRANGED", cells),
            CheckpointedTasks(readings(), tmp_path / "c") as tasks,
        ):
            made = tasks.tick({"readings": tick})
    assert made["out"] == [("m", 4.5e17, 2.25e17, -1)]
    assert held(tmp_path / "c") == {}


def test_a_sum_whose_small_bits_went_leaves_nothing_when_it_goes(tmp_path: Path) -> None:
    small, large = Reading("m", 2.0**-200), Reading("m", 2.0**-110)
    for tick in ([hr.insert(small), hr.insert(large)], [hr.delete(small)], [hr.delete(large)]):
        with CheckpointedTasks(readings(), tmp_path / "c") as tasks:
            tasks.tick({"readings": tick})
    assert held(tmp_path / "c") == {}


class Measured(NamedTuple):
    id: int
    value: float


def test_rows_that_are_only_added_keep_their_negative_zeros(tmp_path: Path) -> None:
    flow = Flow("zeros")
    left, right = (flow.source(name, Measured) for name in ("left", "right"))
    flow.sink("out", left.join(right.select("id"), on="id"))
    with CheckpointedTasks(flow, tmp_path / "c") as tasks:
        for zeros in ([0.0], [-0.0], [-0.0, 0.0, -0.0]):
            tasks.tick({"left": [Measured(1, zero) for zero in zeros]})
        made = tasks.tick({"right": [Measured(1, 0.5)]})["out"]
    assert Counter(map(repr, made)) == {"(1, -0.0, 1)": 3, "(1, 0.0, 1)": 2}
