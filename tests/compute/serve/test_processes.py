"""Processes that are killed under load: nothing acknowledged is lost, nothing is seen twice.

The tests that take `served` share one controller and two replicas, in order.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from time import time_ns
from typing import Any

import pytest

import headrace as hr
from tests.compute.serve.processes import Cluster, Sale, cluster, totals

pytest.importorskip("grpc", reason="grpcio is not installed")

from headrace.compute import Client, UpdateBatch
from headrace.compute.collections.opening import open_collections
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.controller.status import ControllerStatus, ReplicaState
from headrace.compute.errors import ConnectionBroken, ReadTimeout, StoreUnavailable
from headrace.compute.plans import encode


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        started.replicas("r1", "r2")
        started.controller()
        with Client(started.addresses["controller"]) as client:
            client.create_view("totals", totals(), key="shop", keep="60s")
        yield started


class Writer:
    """Writes without a pause, and remembers what was acknowledged at which time."""

    def __init__(self, address: str, seed: int) -> None:
        self.acknowledged: list[tuple[int, list[hr.Change[Sale]]]] = []
        self.wrong: list[str] = []
        self._address = address
        self._random = Random(seed)
        self._end = threading.Event()
        self._failed: list[BaseException] = []
        self._shop = f"shop {seed}"
        self._there: Counter[Sale] = Counter()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        assert not self._failed, self._failed

    def _run(self) -> None:
        try:
            with Client(self._address, patience="60s") as client:
                while not self._end.is_set():
                    self._write(client)
        except BaseException as error:
            self._failed.append(error)

    def _write(self, client: Client) -> None:
        changes = [hr.insert(Sale(self._shop, self._random.randrange(100))) for _ in range(3)]
        if self._there and self._random.random() < 0.5:
            changes.append(hr.delete(self._random.choice(list(self._there))))
        time = client.write({"sales": changes})
        self.acknowledged.append((time, changes))
        for change in changes:
            self._there[change.row] += change.weight
        self._there = +self._there
        # What was acknowledged is seen at once, by whoever asks.
        (row,) = client.peek("totals", key=self._shop)
        if row.sales != self._there.total() or row.total != sum(s.price * n for s, n in self._there.items()):
            self.wrong.append(f"at {time}: {row}, not {self._there}")


END = Sale("the end", 0)


class Reader:
    """Subscribes, and remembers all batches, to the one with the row `END`."""

    def __init__(self, address: str) -> None:
        self.batches: list[UpdateBatch[Any]] = []
        self._address = address
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        assert not self._failed, self._failed

    def _run(self) -> None:
        try:
            with Client(self._address, patience="60s") as client, client.subscribe("totals") as found:
                for batch in found:
                    self.batches.append(batch)
                    if any(row.shop == END.shop for row, _, _ in batch.updates):
                        return
        except BaseException as error:
            self._failed.append(error)

    def accumulated(self) -> Counter[Any]:
        rows: Counter[Any] = Counter()
        for batch in self.batches:
            for row, time, weight in batch.updates:
                assert batch.lower <= time
                assert batch.upper is None or time < batch.upper
                rows[tuple(row)] += weight
            assert all(count >= 0 for count in rows.values())
        return +rows


def recomputed(changes: list[hr.Change[Sale]]) -> Counter[Any]:
    return Counter({tuple(row): weight for row, weight in hr.Engine(totals()).tick(sales=changes)["totals"]})


def wait_for(client: Client, fits: Any) -> ControllerStatus:
    """The first status that fits. Each question takes a turn of the controller, which works meanwhile."""
    while not fits(found := client.status()):
        pass
    return found


def all_connected(found: ControllerStatus) -> bool:
    return all(each.state is ReplicaState.CONNECTED for each in found.replicas)


def whole(found: ControllerStatus) -> bool:
    everywhere = all(len(view.replicas) == len(found.replicas) for view in found.views)
    return all_connected(found) and everywhere and all(on.hydrated for v in found.views for on in v.replicas)


@pytest.mark.verify
def test_replicas_and_the_controller_are_killed_while_clients_write_and_read(served: Cluster) -> None:
    address = served.addresses["controller"]
    reader = Reader(address)
    with Writer(address, 1) as first, Writer(address, 2) as second, Client(address, patience="60s") as client:

        def written(more: int) -> None:
            seen = len(first.acknowledged), len(second.acknowledged)
            while len(first.acknowledged) < seen[0] + more or len(second.acknowledged) < seen[1] + more:
                client.peek("totals", staleness="1h")

        written(5)
        for name in ("r1", "r2"):
            served.kill(name)
            written(5)
            served.replicas(name)
            wait_for(client, whole)
            written(5)
        served.kill("controller")
        served.controller()
        written(5)
        served.kill("r1")
        served.kill("r2")
        served.replicas("r2", "r1")
        written(5)
    assert not first.wrong
    assert not second.wrong
    with Client(address) as client:
        client.insert("sales", [END])
        answer = Counter(tuple(row) for row in client.peek("totals"))
    reader.join()
    assert all(before.upper == after.lower for before, after in pairwise(reader.batches))
    changes = [change for _, changes in first.acknowledged + second.acknowledged for change in changes]
    assert reader.accumulated() == answer == recomputed([*changes, hr.insert(END)])


def test_after_a_restart_of_the_controller_live_replicas_go_on_with_what_they_have(served: Cluster) -> None:
    with Client(served.addresses["controller"], patience="60s") as client:
        wait_for(client, whole)
        served.kill("controller")
        served.controller()
        found = wait_for(client, lambda status: whole(status) and all(r.says for r in status.replicas))
        for replica in found.replicas:
            says = dict(replica.says)
            assert (says["kept"], says["created"], says["dropped"]) == (1, 0, 0)


def test_a_second_controller_on_the_same_state_takes_over_and_the_first_one_ends(served: Cluster) -> None:
    served.controller("later")
    first = served.processes["controller"]
    assert first.wait() == 1
    assert "StaleEpoch" in (served.folder / "controller.log").read_text()
    with Client(served.addresses["later"]) as client:
        client.insert("sales", [Sale("another", 7)])
        assert client.peek("totals", key="another") == [("another", 7, 1)]


def test_a_controller_that_is_told_to_end_ends(served: Cluster) -> None:
    served.processes["later"].terminate()
    assert served.processes["later"].wait() == 143


def served_an_hour_ago(state: Path) -> None:
    """What a controller has left that took its last write an hour ago."""
    state.mkdir()
    then = time_ns() // 1_000_000 - 3_600_000
    store = open_collections(f"sqlite:{state / 'collections.db'}")
    kept = DurableCatalog.open(state / "controller.db")
    controller = Controller(kept, store, clock=lambda: then, random=Random(1))
    controller.create_view("totals", encode(totals()), key=["shop"])
    write = controller.begin_write({"sales": [(("a", 1), 1)]})
    store.append(write.appends)
    controller.end_write(write)
    kept.close()
    store.close()


def test_a_subscriber_to_a_view_that_was_quiet_goes_on_after_an_outage_of_the_controller(
    tmp_path: Path,
) -> None:
    served_an_hour_ago(tmp_path / "state")
    with cluster(tmp_path) as started:
        started.replicas("r1")
        started.controller()
        address = started.addresses["controller"]
        with Client(address) as client, client.subscribe("totals") as subscription:
            first = next(subscription)
            assert [(tuple(row), weight) for row, _, weight in first.updates] == [(("a", 1, 1), 1)]
            started.kill("controller")
            started.controller()
            began = ended = client.insert("sales", [Sale("a", 2)])
            while ended < began + 1_500:  # by then the controller has looked at what it may give up
                ended = client.insert("sales", [Sale("b", 0)])
            following = next(subscription)
            while following.upper is not None and following.upper <= began:
                following = next(subscription)
    changes = {(tuple(row), weight) for row, at, weight in following.updates if at == began}
    assert changes == {(("a", 1, 1), -1), (("a", 3, 2), 1)}


def test_a_replica_that_cannot_keep_large_answers_leaves_them_to_the_other(tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "stash").write_text("a file where the folder should be")
    with cluster(tmp_path) as started:
        started.replicas("r1", "r2")
        started.controller()
        with Client(started.addresses["controller"], patience="60s") as client:
            client.create_view("totals", totals(), key="shop")
            # More than a replica sends at once.
            shops = [str(n).zfill(20_000) for n in range(300)]
            client.insert("sales", [Sale(shop, 1) for shop in shops])
            wait_for(client, whole)
            for _ in range(3):
                assert sorted(row.shop for row in client.peek("totals")) == shops
            found = client.status()
            assert any(p.replica == "r1" and "cannot be kept" in p.text for p in found.problems)
            with pytest.raises(StoreUnavailable, match="cannot be kept"):
                client.peek("totals", replica="r1")
            started.kill("r2")
            wait_for(client, lambda status: not all_connected(status))
            with pytest.raises(StoreUnavailable, match="cannot be kept"):
                client.peek("totals")
            assert client.peek("totals", key=shops[7]) == [(shops[7], 1, 1)]


@contextmanager
def starved(*processes: subprocess.Popen[str], share: float = 0.1) -> Iterator[None]:
    """Give processes a share of their time."""
    end = threading.Event()

    def alternate() -> None:
        while not end.is_set():
            for pause, number in ((1 - share, signal.SIGSTOP), (share, signal.SIGCONT)):
                for process in processes:
                    process.send_signal(number)
                end.wait(pause)
        for process in processes:
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.verify
def test_replicas_that_fall_far_behind_catch_up_and_their_view_is_right(tmp_path: Path) -> None:
    sales = [Sale(f"shop {n % 50}", 1) for n in range(400)]
    with cluster(tmp_path) as started:
        started.replicas("r1", "r2")
        started.controller()
        with Client(started.addresses["controller"], patience="60s") as client:
            client.create_view("totals", totals(), key="shop", keep="2s")
            written, until = 0, time_ns() + 30_000_000_000
            with starved(started.processes["r1"], started.processes["r2"]):
                while time_ns() < until:
                    client.insert("sales", sales)
                    written += 1
            for replica in ("r1", "r2"):
                found = client.peek("totals", replica=replica)
                assert sorted(found) == sorted((f"shop {n}", 8 * written, 8 * written) for n in range(50))


@pytest.mark.verify
def test_a_replica_that_is_behind_for_too_long_rebuilds_its_view_and_nobody_notices(tmp_path: Path) -> None:
    sales = [Sale(f"shop {n % 50}", 1) for n in range(400)]
    with cluster(tmp_path) as started:
        started.replicas("r1", "r2")
        started.controller("controller", "--max-lag", "1s")
        with Client(started.addresses["controller"], patience="60s") as client:
            client.create_view("totals", totals(), key="shop", keep="1s")
            wait_for(client, whole)
            reader = Reader(started.addresses["controller"])
            written, given_up = 0, False
            with starved(started.processes["r2"], share=0.03):
                while not given_up:
                    for _ in range(20):
                        client.insert("sales", sales)
                    written += 20
                    assert client.peek("totals", key="shop 7") == [("shop 7", 8 * written, 8 * written)]
                    # A slow machine may give up on r1 as well; this is about r2.
                    problems = [note for note in client.status().problems if note.replica == "r2"]
                    given_up = any("rebuilds from a snapshot" in note.text for note in problems)
            client.insert("sales", [END])
            reader.join()
            right = Counter({(f"shop {n}", 8 * written, 8 * written): 1 for n in range(50)})
            right[(END.shop, 0, 1)] = 1
            assert reader.accumulated() == right

            def is_back(status: ControllerStatus) -> bool:
                return whole(status) and any(r.name == "r2" and r.connections > 1 for r in status.replicas)

            # That it rebuilds is noted before its connection is closed.
            found = wait_for(client, is_back)
            (r2,) = (replica for replica in found.replicas if replica.name == "r2")
            assert r2.deaths == 0
            assert Counter(map(tuple, client.peek("totals", replica="r2"))) == right


@pytest.mark.verify
def test_reads_while_replicas_are_stopped_or_gone_end_within_their_patience(tmp_path: Path) -> None:
    with cluster(tmp_path) as started:
        started.replicas("r1")
        started.controller()
        with Client(started.addresses["controller"], patience="60s") as client:
            client.create_view("totals", totals(), key="shop")
            client.insert("sales", [Sale("a", 1)])
            wait_for(client, whole)
            started.processes["r1"].send_signal(signal.SIGSTOP)
            client.insert("sales", [Sale("a", 2)])
            for read in (
                lambda: client.peek("totals", patience="2s"),
                lambda: client.peek("sales", patience="2s"),
                lambda: next(client.subscribe("totals", patience="2s")),
                lambda: client.copy("totals", "totals.jsonl", patience="2s"),
            ):
                with pytest.raises(ReadTimeout) as error:
                    read()
                assert error.value.facts["missing"] in ("answer", "time", "replica")
            started.processes["r1"].send_signal(signal.SIGCONT)
            assert client.peek("totals") == [("a", 3, 2)]
            started.kill("r1")
            wait_for(client, lambda status: not all_connected(status))
            with pytest.raises(ReadTimeout, match="no replica is connected"):
                client.peek("totals", patience="2s")
            started.processes["controller"].send_signal(signal.SIGSTOP)
            with (
                Client(started.addresses["controller"], patience="2s") as hasty,
                pytest.raises((ReadTimeout, ConnectionBroken)),
            ):
                hasty.status()
            started.processes["controller"].send_signal(signal.SIGCONT)
