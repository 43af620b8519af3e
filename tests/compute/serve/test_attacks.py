"""A reader or a row that costs too much, against real processes: the others are served meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace import functions as f
from tests.compute.serve.processes import Cluster, Sale, cluster, totals

pytest.importorskip("grpc", reason="grpcio is not installed")

from headrace.compute import Client
from headrace.compute.errors import ComputeError, DataflowBroken, DataflowFailed, NotServable, ReadTimeout
from headrace.errors import LimitExceeded
from headrace.expr.tree import Expr

pytestmark = pytest.mark.verify
LEAVES_TIME = 30
"""Seconds after which a process that does not end has failed the test."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        started.replicas("r1")
        started.controller()
        yield started


@pytest.fixture(scope="module")
def client(served: Cluster) -> Iterator[Client]:
    with Client(served.addresses["controller"], patience="60s") as client:
        client.create_view("totals", totals(), key="shop")
        client.insert("sales", [Sale("north", 3), Sale("a" * 60 + "!", 4)])
        yield client


def north(client: Client) -> list[int]:
    return [row.total for row in client.peek("totals", key="north")]


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        (f.regexp_like(col.shop, "(a+)+$"), None),
        (col.shop.like("%a" * 20 + "b"), None),
        (f.repeat(col.shop, 2_000_000_000).length() > 0, LimitExceeded),
        # Each search reads to the end of the text: a piece of work that is interrupted.
        (f.regexp_count(f.repeat("a", 500_000), "a.*b|a") > 0, LimitExceeded),
        (f.levenshtein(f.repeat(col.shop, 500), f.repeat("ab", 5000)) > 0, LimitExceeded),
        (f.regexp_like(col.shop, r"(a)\1"), ComputeError),
    ],
    ids=["pattern", "like", "repeat", "searches", "levenshtein", "back reference"],
)
def test_a_hostile_peek_is_answered_or_refused_and_the_next_is_answered(
    client: Client, condition: Expr, error: type[Exception] | None
) -> None:
    if error is None:
        assert client.peek("totals", where=condition) == []
    else:
        with pytest.raises(error):
            client.peek("totals", where=condition)
    assert north(client) == [3]


def branching() -> hr.Flow:
    flow = hr.Flow("branching")
    seed = flow.table("sales", Sale)
    rows = flow.fixpoint(
        lambda rows: seed.union(
            rows.select(col.shop, price=col.price * 2), rows.select(col.shop, price=col.price * 2 + 1)
        ).filter(col.price < 1 << 40),
        seed.filter(col.price > 0),
    )
    flow.sink("branching", rows)
    return flow


def _written(file: Path) -> int:
    """Return when a file was written, in nanoseconds; 0 where there is none."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that comes within a second or so; fail after a minute."""
    end = time.monotonic() + 2 * LEAVES_TIME
    while not true():
        assert time.monotonic() < end, "it has not come"
        time.sleep(0.05)


def said_of(view: str, client: Client) -> str:
    (status,) = [each for each in client.status().views if each.name == view]
    return status.replicas[0].says


def test_a_view_that_makes_too_much_of_a_row_is_stopped_alone(client: Client) -> None:
    client.create_view("branching", branching(), tick_rows=100_000)
    with pytest.raises(DataflowFailed, match=r"a tick made .* and 100,000 is the limit"):
        client.peek("branching")
    assert north(client) == [3]
    # Replicas say how their dataflows are once a second.
    wait_until(lambda: "100,000 is the limit" in said_of("branching", client))
    client.drop("branching")
    assert north(client) == [3]


def exploding() -> hr.Flow:
    """A row becomes a billion within one operator, which nothing counts before it ends."""
    flow = hr.Flow("exploding")
    sales = flow.table("sales", Sale)
    numbers = sales.select(col.shop, n=f.sequence(1, 1000)).explode("n")
    for at in range(2):
        numbers = numbers.with_columns(**{f"m{at}": f.sequence(1, 1000)}).explode(f"m{at}")
    flow.sink("exploding", numbers)
    return flow


def test_a_tick_that_fills_the_memory_is_interrupted(client: Client) -> None:
    client.create_view("exploding", exploding(), state_bytes=200_000_000)
    with pytest.raises(DataflowBroken, match="a tick takes more than 200 MB of memory"):
        client.peek("exploding")
    assert north(client) == [3]
    client.drop("exploding")


def test_a_view_with_a_pattern_that_backtracks_is_refused(client: Client) -> None:
    flow = hr.Flow("looking")
    flow.sink("looking", flow.table("sales", Sale).filter(f.regexp_like(col.shop, "n(?=orth)")))
    with pytest.raises(NotServable, match="looking"):
        client.create_view("looking", flow)


class Pair(NamedTuple):
    one: str
    other: str


def slow() -> hr.Flow:
    flow = hr.Flow("slow")
    pairs = flow.table("pairs", Pair)
    flow.sink("slow", pairs.select(distance=f.levenshtein(col.one, col.other)))
    return flow


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_a_busy_replica_ends_when_it_is_asked_to(tmp_path: Path, end: signal.Signals) -> None:
    with cluster(tmp_path) as started:
        started.replicas("r1")
        started.controller()
        with Client(started.addresses["controller"]) as client:
            client.create_view("slow", slow())
            client.peek("slow")
            client.insert("pairs", [Pair("a" * 30_000, "b" * 30_000)])
            with pytest.raises(ReadTimeout):
                client.peek("slow", patience="3s")
            busy = started.processes.pop("r1")
            busy.send_signal(end)
            busy.communicate(timeout=LEAVES_TIME)
        log = (tmp_path / "r1.log").read_text()
        assert "Traceback" not in log, log


def test_a_view_that_killed_its_replica_twice_is_quarantined(tmp_path: Path) -> None:
    with cluster(tmp_path) as started:
        started.replicas("r1")
        started.controller()
        with Client(started.addresses["controller"], patience="60s") as client:
            client.create_view("totals", totals(), key="shop")
            client.create_view("slow", slow())
            client.insert("sales", [Sale("north", 3)])
            assert north(client) == [3]
            client.insert("pairs", [Pair("a" * 30_000, "b" * 30_000)])
            at_work = tmp_path / "r1" / "at-work.txt"
            seen = 0
            for _ in range(2):
                wait_until(lambda: _written(at_work) > seen)  # noqa: B023
                seen = _written(at_work)
                # As the kernel does when memory is used up.
                started.kill("r1")
                started.replicas("r1")
            started.kill("controller")
            started.controller()
            with pytest.raises(DataflowBroken, match="crashed twice"):
                client.peek("slow", patience="10s")
            assert north(client) == [3]
