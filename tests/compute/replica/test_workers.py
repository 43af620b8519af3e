"""A replica of several processes: what it answers, and how it ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace import functions as f
from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import ComputeError, ConnectionBroken, ResultGone
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import encode, schema_to_bytes
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Epoch,
    Finishing,
    IndexExport,
    IndexImport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    Schedule,
    SubscribeExport,
    TimelyConfig,
)
from headrace.compute.protocol.responses import (
    Counted,
    DroppedAt,
    PeekResponse,
    Problem,
    Response,
    RowsResponse,
    Stashed,
    SubscribeResponse,
)
from headrace.compute.replica import make_runtime
from headrace.compute.replica.replica import Replica
from headrace.compute.replica.runtime import ReplicaRuntime
from headrace.compute.replica.workers.runtime import Workers
from headrace.errors import Origin
from headrace.expr.row_classes import schema_of
from tests.compute.runtimes.stage import BEST, Best, Bid, Stage, at_time


def make(config: InstanceConfig, wake: Callable[[], None], folder: Path) -> ReplicaRuntime:
    return Workers(config, wake, number=2, folder=folder)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One replica for all tests of the module, with 20 auctions in a view `u1` of `s1`."""
    folder = tmp_path_factory.mktemp("workers")
    stage = Stage(make, f"sqlite:{folder}/collections.db", folder / "replica")
    stage.collection("s1")
    stage.write("s1", *(((n, 10 * n), 3, 1) for n in range(20)), upper=5)
    stage.view("u1", "s1", 3)
    yield stage
    stage.close()


AUCTIONS = [(n, 10 * n) for n in range(20)]


def of_totals(flow_name: str = "of totals") -> hr.Flow:
    """How many auctions have a best price, by its last digit but one: groups that another key makes."""
    flow = hr.Flow(flow_name)
    best = flow.table("input", Best)
    flow.sink("output", best.group_by(bucket=col.best // 100).agg(n=hr.count()))
    return flow


def test_an_index_that_is_divided_is_peeked_whole_and_by_key(stage: Stage) -> None:
    assert stage.rows("u1", 4) == AUCTIONS
    assert stage.rows("u1", 4, keys=[(n,) for n in (3, 11, 99)]) == [(3, 30), (11, 110)]


def test_an_order_a_limit_and_an_offset_are_those_of_all_rows(stage: Stage) -> None:
    down = Finishing(order_by=((1, True),), limit=4, offset=2, project=(0,))
    assert stage.rows("u1", 4, finishing=down) == [(17,), (16,), (15,), (14,)]
    assert len(stage.rows("u1", 4, finishing=Finishing(limit=7, offset=15))) == 5
    assert stage.rows("u1", 4, finishing=Finishing(limit=0)) == []


def test_a_view_of_a_view_that_groups_otherwise_has_all_its_rows(stage: Stage) -> None:
    exports = (IndexExport("u2", "output"),)
    stage.create(Dataflow(encode(of_totals()), (), (IndexImport("input", "u1"),), exports, Frontier(3)))
    assert stage.rows("u2", 4) == [(0, 10), (1, 10)]
    stage.on_index(IndexExport("u3", "output"), "u1", 3)
    stage.runtime.allow_compaction("u2", END)
    assert stage.reached("u2", END).input == END
    stage.runtime.forget("u2")
    assert stage.rows("u3", 4) == AUCTIONS


def test_a_divided_view_written_into_a_collection_is_written_whole_and_once(stage: Stage) -> None:
    stage.collection("s2", Best, upper=0)
    stage.on_index(CollectionExport("u4", "output", "s2"), "u1", 3)
    stage.runtime.allow_writes("u4")

    def written() -> list[tuple[int, ...]] | None:
        (bounds,) = stage.store.bounds(["s2"])
        if bounds.upper < Frontier(5):
            return None
        return sorted(row for part in stage.store.snapshot("s2", 4) for row, _ in part)

    assert stage.until(written) == AUCTIONS


def test_a_large_result_is_fetched_from_all_workers_and_ends_as_one(stage: Stage) -> None:
    stage.runtime.configure(Parameters(peek_stash_size=50))
    answer = stage.answer(stage.ask("u1", 4))
    assert isinstance(answer, Stashed)
    assert answer.rows == 20
    assert sorted(row for part in stage.runtime.fetch(answer.token) for row, _ in part) == AUCTIONS
    with pytest.raises(ResultGone):
        stage.runtime.fetch(answer.token)
    ordered = stage.answer(stage.ask("u1", 4, finishing=Finishing(order_by=((0, True),), limit=12)))
    assert isinstance(ordered, Stashed)
    assert [row for part in stage.runtime.fetch(ordered.token) for row, _ in part] == AUCTIONS[:7:-1]
    stage.runtime.configure(Parameters(max_result_size=300))
    together = stage.answer(stage.ask("u1", 4))
    assert isinstance(together, Problem)
    assert together.code == "P731"
    stage.runtime.configure(Parameters())


def test_a_subscription_to_a_divided_view_is_one_and_is_dropped_where_it_was(stage: Stage) -> None:
    stage.on_index(SubscribeExport("t1", "output"), "u1", 4)
    stage.write("s1", *(((n, 1000), 6, 1) for n in range(0, 20, 2)), upper=8)
    updates = stage.updates("t1", Frontier(8))
    assert at_time(updates, 4) == dict.fromkeys(AUCTIONS, 1)
    assert at_time(updates, 7) == dict.fromkeys([(n, 10 * n if n % 2 else 1000) for n in range(20)], 1)
    stage.runtime.allow_compaction("t1", END)
    dropped = SubscribeResponse("t1", DroppedAt(Frontier(8)))
    assert stage.until(lambda: [a for a in stage.told if a == dropped] or None) == [dropped]


def test_of_an_earlier_connection_nothing_is_told(stage: Stage) -> None:
    stage.on_index(SubscribeExport("t2", "output"), "u1", 7)
    stage.batches("t2", Frontier(8))
    lost = stage.ask("u1", 7)
    stage.runtime.forget_answers()
    stage.told.clear()
    stage.write("s1", ((1, 2000), 9, 1))
    assert (1, 2000) in stage.rows("u1", 9)
    said = [a for a in stage.told if getattr(a, "uuid", None) == lost or getattr(a, "id", None) == "t2"]
    assert said == []


def test_an_id_that_is_made_anew_does_not_tell_the_frontiers_of_the_old_one(stage: Stage) -> None:
    (bounds,) = stage.store.bounds(["s1"])
    stage.view("u5", "s1", 7)
    stage.reached("u5", bounds.upper)
    stage.runtime.allow_compaction("u5", END)
    stage.runtime.forget("u5")
    stage.view("u5", "s1", 8)
    assert stage.runtime.frontiers().get("u5") is None
    assert stage.reached("u5", bounds.upper).since == Frontier(8)


def test_workers_end_with_their_replica_and_a_replica_with_its_workers(tmp_path: Path) -> None:
    woken = threading.Event()
    config = InstanceConfig(f"sqlite:{tmp_path}/c.db")
    workers = Workers(config, woken.set, number=2, folder=tmp_path / "replica")
    first, second = workers.pids
    os.kill(first, signal.SIGKILL)
    assert woken.wait(20)
    with pytest.raises(ConnectionBroken, match="worker 0"):
        workers.step(0)
    workers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


@pytest.mark.verify
def test_a_view_that_crashed_a_worker_twice_is_quarantined_there(tmp_path: Path) -> None:
    stage = Stage(make, f"sqlite:{tmp_path}/collections.db", tmp_path / "replica")
    stage.collection("s1")
    stage.write("s1", ((1, 30_000), 3, 1), upper=5)
    flow = hr.Flow("slow")
    long = f.levenshtein(f.repeat("a", col.price), f.repeat("b", col.price))
    flow.sink("slow", flow.table("bids", Bid).select(distance=long))
    slow = Dataflow(
        encode(flow), (CollectionImport("bids", "s1"),), (), (IndexExport("u1", "slow"),), Frontier(3)
    )
    for _ in range(2):
        stage.create(slow)
        noted = stage.until(lambda: next((tmp_path / "replica").glob("worker-*/at-work.txt"), None))
        assert isinstance(stage.runtime, Workers)
        # As the kernel does when memory is used up.
        os.kill(stage.runtime.pids[int(noted.parent.name.removeprefix("worker-"))], signal.SIGKILL)
        stage.restart()
        stage.until(lambda: None if noted.exists() else True)  # noqa: B023
    stage.create(slow)
    problem = stage.problem("u1", 4)
    assert problem.origin is Origin.PROCESS, "other replicas may still answer"
    assert "crashed twice while it computed" in problem.message
    stage.view("u2", "s1", 3)
    assert stage.rows("u2", 4) == [(1, 30_000)]
    stage.close()


def test_a_replica_of_workers_keeps_its_dataflows_for_the_next_controller(tmp_path: Path) -> None:
    woken = threading.Event()
    uri = f"sqlite:{tmp_path}/collections.db"
    store = open_collections(uri)
    store.create("s1", schema_to_bytes(schema_of(Bid)))
    store.append([CollectionAppend("s1", Frontier(0), Frontier(5), [((1, 10), 2, 1), ((2, 20), 2, 1)])])
    halted: list[ComputeError] = []
    replica = Replica(
        partial(make_runtime, state=tmp_path / "replica"), clock=lambda: 0, wake=woken.set, halt=halted.append
    )
    view = Dataflow(BEST, (CollectionImport("bids", "s1"),), (), (IndexExport("u1", "best"),), Frontier(2))
    said: list[Response] = []

    def connect(number: int, *commands: Command) -> None:
        nonce = bytes([number] * 16)
        replica.begin_connection(nonce)
        said.clear()
        timely = CreateTimely(TimelyConfig(workers=2), Epoch(1, number), nonce)
        for command in (timely, CreateInstance(InstanceConfig(uri)), *commands, InitializationComplete()):
            replica.receive(command)

    def answer() -> list[Counted]:
        peek = Peek(bytes(16), IndexTarget("u1"), 3)
        replica.receive(peek)
        while not (found := [r.answer for r in said if isinstance(r, PeekResponse)]):
            woken.clear()
            replica.step(0.01)
            said.extend(replica.responses())
            woken.wait(0.05)
        (rows,) = found
        assert isinstance(rows, RowsResponse)
        return sorted(rows.rows)

    both = [((1, 10), 1), ((2, 20), 1)]
    connect(1, CreateDataflow(view), Schedule("u1"))
    assert answer() == both
    # Built again it could not be read at its as-of any more.
    store.compact("s1", Frontier(4))
    connect(2, CreateDataflow(view.at(Frontier(3))), Schedule("u1"))
    assert answer() == both
    assert halted == []
    replica.close()
    store.close()
