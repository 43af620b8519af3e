"""State that is divided anew is the same state: a run goes on as if nothing had been done."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, Flow, col, left, right
from headrace.errors import BadInput, CheckpointInUse, FlowChanged, NotOnSpark
from headrace.spark.resharding import reshard
from headrace.state.arranged_store import stored_entries
from headrace.state.checkpoint import Checkpoint
from headrace.state.commit import CommitLog
from headrace.state.inspection import inspect
from headrace.state.manifest import Manifest, as_it_is
from headrace.state.rewind import rewind
from tests.spark.streamed_flows import EXAMPLES
from tests.spark.tasks_with_checkpoint import CheckpointedTasks

pytest.importorskip("pyspark")


Tick = dict[str, list[Any]]


class Bid(NamedTuple):
    item: str
    price: int
    at: datetime


class Item(NamedTuple):
    item: str
    owner: str


START = datetime(2026, 1, 1, tzinfo=UTC)


def tables() -> Flow:
    """Joins of all kinds, difference, distinct, top k, aggregates of aggregates; rows are taken back."""
    flow = Flow("tables")
    bids, items = flow.table("bids", Bid), flow.table("items", Item)
    prices = bids.select(col.item, col.price)
    flow.sink("joined", prices.join(items, on="item"))
    flow.sink("left", prices.join(items, on="item", how="left"))
    flow.sink("anti", prices.join(items, on="item", how="anti"))
    best = prices.group_by(col.item).agg(best=hr.max(col.price), n=hr.count())
    flow.sink("best", best)
    flow.sink("by number", best.group_by(col.n).agg(sum=hr.sum(col.best)))
    flow.sink("distinct", prices.distinct())
    flow.sink("rest", prices.select(col.item).difference(items.select(col.item)))
    flow.sink("top", prices.top_k(2, by=col.price.desc(), per=col.item))
    flow.sink("all", prices.group_by().agg(n=hr.count(), sum=hr.sum(col.price)))
    return flow


def appended() -> Flow:
    flow = Flow("appended")
    bids, items = flow.source("bids", Bid), flow.source("items", Item)
    prices = bids.select(col.item, col.price)
    flow.sink("joined", prices.join(items, on="item"))
    flow.sink("distinct", prices.select(col.item).distinct())
    flow.sink("late", prices.defer_tick().group_by(col.item).agg(n=hr.count()))
    latest = {"sequence": "at", "deleted": col.price < 3, "on_misfit": "trust_key", "tombstones": "4s"}
    flow.sink("latest", bids.upsert("item", **latest))
    flow.sink("versions", bids.history("item", sequence="at", deleted=col.price < 3, on_misfit="trust_key"))
    return flow


def windows() -> Flow:
    """All that forgets: windows of each shape, updates of them, distinct and joins of times."""
    flow = Flow("windows")
    bids = flow.source("bids", Bid).watermark(col.at, lateness="5s")
    for name, window in (
        ("tumbling", hr.tumbling(col.at, "10s")),
        ("sliding", hr.sliding(col.at, "9s", "3s")),
    ):
        flow.sink(name, bids.group_by("item", window=window).agg(n=hr.count()))
    session = hr.session(col.at, "3s")
    closed = bids.group_by("item", window=session)
    flow.sink("sessions", closed.agg(n=hr.count(), best=hr.max(col.price)))
    flow.sink("open sessions", bids.group_by("item", window=session, emit="updates").agg(n=hr.count()))
    flow.sink("distinct", bids.distinct())
    flow.sink("first", bids.first_within("6s", by="item"))
    soon = (left.item == right.item) & right.at.between(left.at, left.at + timedelta(seconds=4))
    flow.sink("pairs", bids.join(bids, on=soon, suffix="_next"))
    return flow


def slices() -> Flow:
    """Windows of which each shard sums up its rows first."""
    flow = Flow("slices")
    bids = flow.source("bids", Bid).watermark(col.at, lateness="5s")
    flow.sink("tumbling", bids.group_by("item", window=hr.tumbling(col.at, "10s")).agg(n=hr.count()))
    sliding = bids.group_by("item", window=hr.sliding(col.at, "9s", "3s"))
    flow.sink("sliding", sliding.agg(n=hr.count(), best=hr.max(col.price)))
    uneven = bids.group_by("item", window=hr.sliding(col.at, "9s", "4s"))
    flow.sink("uneven", uneven.agg(n=hr.count(), best=hr.max(col.price)))
    return flow


def rows(choice: random.Random, tick: int) -> list[Bid]:
    return [
        Bid(
            choice.choice("abcdefgh"),
            choice.randrange(6),
            START + timedelta(seconds=3 * tick + choice.randrange(9)),
        )
        for _ in range(choice.randrange(8))
    ]


def ticks_of(seed: int, *, tables: bool, count: int = 6) -> list[Tick]:
    choice = random.Random(seed)
    there: dict[str, list[Any]] = {"bids": [], "items": []}
    ticks: list[Tick] = []
    for tick in range(count):
        items = [Item(choice.choice("abcdefgh"), choice.choice("xyz")) for _ in range(choice.randrange(3))]
        new: dict[str, list[Any]] = {"bids": rows(choice, tick), "items": items}
        if tables:
            changes: Tick = {}
            for name, added in new.items():
                gone = [row for row in there[name] if choice.random() < 0.3]
                for row in gone:
                    there[name].remove(row)
                there[name] += added
                changes[name] = [hr.insert(row) for row in added] + [hr.delete(row) for row in gone]
            ticks.append(changes)
        else:
            ticks.append(new)
    return ticks


def summed(outputs: list[dict[str, list[tuple[Any, ...]]]]) -> dict[str, dict[tuple[Any, ...], int]]:
    sums: dict[str, Counter[Any]] = {}
    for tick in outputs:
        for name, found in tick.items():
            for *row, weight in found:
                sums.setdefault(name, Counter())[tuple(row)] += weight
    return {
        name: {row: n for row, n in total.items() if n} for name, total in sums.items() if +total or -total
    }


def in_process(flow: Flow, ticks: list[Tick]) -> list[dict[str, Any]]:
    engine = Engine(flow)
    names = flow.graph().sources
    return [summed([internal(engine, engine.tick(**{n: t.get(n, []) for n in names}))]) for t in ticks]


def internal(engine: Engine, outputs: Any) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: [(*(row if isinstance(row, tuple) else (row,)), weight) for row, weight in changes]
        for name, changes in outputs.items()
    }


def resharded(
    flow: Callable[[], Flow], ticks: list[Tick], folder: Path, plan: list[int]
) -> list[dict[str, Any]]:
    """Run tick by tick, on the number of shards that `plan` says for each."""
    names = flow().graph().sources
    found: list[dict[str, Any]] = []
    for at, (tick, shards) in enumerate(zip(ticks, plan, strict=True)):
        if at and shards != plan[at - 1]:
            reshard(folder, shards, flow())
        with CheckpointedTasks(flow(), folder, shards=shards) as tasks:
            found.append(summed([tasks.tick({n: tick.get(n, []) for n in names})]))
    return found


FLOWS = {
    "tables": (tables, True),
    "appended": (appended, False),
    "windows": (windows, False),
    "slices": (slices, False),
}
plans = st.lists(st.integers(1, 5), min_size=6, max_size=6)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "tables" else pytest.mark.verify) for name in FLOWS]
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 20), plan=plans)
def test_outputs_equal_those_of_a_run_that_was_left_alone(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, plan: list[int]
) -> None:
    flow, takes_back = FLOWS[name]
    ticks = ticks_of(seed, tables=takes_back)
    assert resharded(flow, ticks, tmp_path_factory.mktemp("c"), plan) == in_process(flow(), ticks)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_flows_of_other_tests_go_on_on_other_shards(tmp_path: Path, name: str) -> None:
    example = EXAMPLES[name]
    ticks = example.ticks()
    plan = [(3, 1, 4, 2)[at % 4] for at in range(len(ticks))]
    assert resharded(example.flow, ticks, tmp_path / "c", plan) == in_process(example.flow(), ticks)


def state_of(folder: Path) -> list[tuple[str, str, str]]:
    """All that the last commit holds by slot and key, whatever shard it is on."""
    last = CommitLog(folder).last()
    assert last is not None
    manifest = Manifest.read(folder, last.manifest)
    found: list[tuple[str, Any, Any]] = []
    for chain in last.chains.values():
        found += stored_entries(folder, chain)
        for slot, form in manifest.arranged(chain):
            for piece in form.pieces(folder, chain.arranged[slot]):
                for at, key in enumerate(piece.keys):
                    value = piece.value(at)
                    found.append((slot, key, sorted(value.items()) if isinstance(value, dict) else value))
    return sorted((slot, repr(key), repr(value)) for slot, key, value in found)


def begun(folder: Path, shards: int = 2, ticks: int = 3) -> list[Tick]:
    """A checkpoint with some ticks; the ticks that are still to come."""
    given = ticks_of(5, tables=True)
    with CheckpointedTasks(tables(), folder, shards=shards) as tasks:
        for tick in given[:ticks]:
            tasks.tick(tick)
    return given[ticks:]


def test_state_whose_keys_are_divided_otherwise_is_refused(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.spark.resumption.DIVISION", "checksums")
        begun(tmp_path, shards=3)
    for use in (lambda: CheckpointedTasks(tables(), tmp_path), lambda: reshard(tmp_path, 2, tables())):
        with pytest.raises(FlowChanged, match="by checksums, not by codes"):
            use()


def test_state_stays_the_same_and_only_the_last_tick_is_moved(tmp_path: Path) -> None:
    rest = begun(tmp_path)
    before = state_of(tmp_path)
    done = reshard(tmp_path, 3, tables())
    keys = {(slot, key) for slot, key, _ in before}
    assert (done.tick, done.shards_before, done.shards, done.keys) == (3, 2, 3, len(keys))
    assert state_of(tmp_path) == before
    held = inspect(tmp_path)
    assert (held.tick, held.shards, held.oldest, held.damage) == (3, 3, 1, ())
    assert len({shard for slot in held.slots for shard in slot.shards}) > 1
    reshard(tmp_path, 2, tables())
    assert state_of(tmp_path) == before
    with CheckpointedTasks(tables(), tmp_path, shards=2) as tasks:
        tasks.tick(rest[0])


def test_going_back_behind_it_goes_back_to_the_shards_of_then(tmp_path: Path) -> None:
    begun(tmp_path)
    reshard(tmp_path, 3, tables())
    rewind(tmp_path, 2)
    assert inspect(tmp_path).shards == 2
    with CheckpointedTasks(tables(), tmp_path) as tasks:
        assert (
            summed([tasks.tick(ticks_of(5, tables=True)[2])])
            == in_process(tables(), ticks_of(5, tables=True)[:3])[-1]
        )


CHANGES = ("open", "os.rename", "os.remove", "os.link", "os.mkdir")


def killed_at(step: int, folder: Path) -> bool:
    """Reshard in a process that is ended at its `step`th change of the folder; whether it got through."""
    # A process that has computed on columns cannot be forked: their threads would be missing in the child.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    child = processes.Process(target=_reshard_up_to, args=(step, folder))
    child.start()
    child.join()
    return child.exitcode == 0


def _reshard_up_to(step: int, folder: Path) -> None:
    left = step

    def count(event: str, arguments: Any) -> None:
        nonlocal left
        writes = event != "open" or (isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"))
        if event in CHANGES and writes and str(folder) in str(arguments[0]):
            left -= 1
            if not left:
                os._exit(9)

    sys.addaudithook(count)
    reshard(folder, 3, tables())


def test_wherever_it_is_killed_one_of_both_divisions_is_whole(tmp_path: Path) -> None:
    rest = begun(tmp_path / "c", ticks=2)
    before = state_of(tmp_path / "c")
    expected = in_process(tables(), ticks_of(5, tables=True)[:3])[-1]
    seen: set[int] = set()
    step, is_through = 0, False
    while not is_through:
        step += 1
        shutil.copytree(tmp_path / "c", tmp_path / f"{step}")
        is_through = killed_at(step, tmp_path / f"{step}")
        held = inspect(tmp_path / f"{step}")
        assert held.damage == ()
        assert state_of(tmp_path / f"{step}") == before
        if held.shards not in seen or is_through:
            with CheckpointedTasks(tables(), tmp_path / f"{step}") as tasks:
                assert summed([tasks.tick(rest[0])]) == expected
            seen.add(held.shards)
        shutil.rmtree(tmp_path / f"{step}")
    assert seen == {2, 3}
    assert step > 10


def test_a_checkpoint_in_use_is_left_alone(tmp_path: Path) -> None:
    begun(tmp_path)
    with CheckpointedTasks(tables(), tmp_path), pytest.raises(CheckpointInUse):
        reshard(tmp_path, 3, tables())


def test_another_flow_is_refused(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(FlowChanged, match="would lack"):
        reshard(tmp_path, 3, appended())
    assert inspect(tmp_path).shards == 2


def test_a_checkpoint_of_one_process_has_no_shards_to_change(tmp_path: Path) -> None:
    hr.run(appended(), {"bids": [], "items": [Item("a", "x")]}, checkpoint=tmp_path)
    with pytest.raises(FlowChanged, match="of a run on one process"):
        reshard(tmp_path, 3, appended())


def test_each_engine_names_the_other_whose_checkpoint_it_was_given(tmp_path: Path) -> None:
    hr.run(appended(), {"bids": [], "items": [Item("a", "x")]}, checkpoint=tmp_path / "here")
    with pytest.raises(FlowChanged, match="is of a run on one process, and this one is on Spark"):
        CheckpointedTasks(appended(), tmp_path / "here", shards=3)
    with CheckpointedTasks(appended(), tmp_path / "there") as tasks:
        tasks.tick({"items": [Item("a", "x")]})
    with pytest.raises(FlowChanged, match="is of a run on Spark, and this one is on one process"):
        hr.run(appended(), {"bids": [], "items": []}, checkpoint=tmp_path / "there")


def test_a_number_of_shards_is_one_or_more(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="0 shards"):
        CheckpointedTasks(appended(), tmp_path, shards=0)


def test_nothing_is_made_where_no_checkpoint_is(tmp_path: Path) -> None:
    with pytest.raises(FlowChanged, match="has no ticks"):
        reshard(tmp_path / "nothing", 3, appended())
    assert not (tmp_path / "nothing").exists()


def test_an_entry_that_is_not_where_its_key_says_stops_it(tmp_path: Path) -> None:
    begun(tmp_path, shards=2)
    with Checkpoint.open(tmp_path, as_it_is) as checkpoint:
        last = checkpoint.last
        assert last is not None
        stage = max(last.chains) // 2
        turned = {2 * stage: last.chain(2 * stage + 1), 2 * stage + 1: last.chain(2 * stage)}
        checkpoint.move({**last.chains, **turned}, last.counters)
    with pytest.raises(NotOnSpark, match="cannot be moved to other shards"):
        reshard(tmp_path, 3, tables())
    assert inspect(tmp_path).shards == 2


def test_a_join_of_all_pairs_cannot_be_divided_anew(tmp_path: Path) -> None:
    def pairs() -> Flow:
        flow = Flow("pairs")
        bids, items = flow.table("bids", Bid), flow.table("items", Item)
        flow.sink("pairs", bids.cross_join(items, suffix="_2"))
        return flow

    with CheckpointedTasks(pairs(), tmp_path, shards=2) as tasks:
        tasks.tick({"bids": [Bid("a", 1, START), Bid("b", 2, START)], "items": [Item("a", "x")]})
    with pytest.raises(NotOnSpark, match="does not follow from the keys"):
        reshard(tmp_path, 3, pairs())
    assert inspect(tmp_path).shards == 2


def test_a_run_on_other_shards_says_how_to_divide_anew(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(FlowChanged, match=f"headrace reshard {tmp_path} 3 FLOW"):
        CheckpointedTasks(tables(), tmp_path, shards=3)
