"""Views that stay up: keyed peeks, freshness, and the time to rejoin after a kill, with real processes.

    python benches/serve.py [--rows 1000000] [--quick]

The floor is an empty gRPC echo of about as many bytes, measured in turns with the peeks. A peek makes
two such round trips, from the client to the controller and from there to a replica; the client, the
controller and the replicas share the cores of this machine.

What concerns all rows is measured in processor time and memory of each process: hydration of a filter, a join
and groups, a peek of the whole view, and the beginning of a subscription. A replica loads its libraries with
the first large view, so memory per row is that of a second one. What an insert and a peek of one row cost is
measured so, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import headrace as hr
from benches.measure import Table
from benches.measure.processes import forget_peak, peak, resident, seconds_of
from benches.serving.cluster import Cluster
from benches.serving.echo import Echo
from headrace import col, left, right
from headrace.compute.client.client import AsyncClient
from headrace.errors import HeadraceError

PAYLOAD = b"x" * 60
LANES = 32
"""How many ask at the same time, where what is done per second is measured."""


class Item(NamedTuple):
    id: int
    name: str
    amount: float


class Order(NamedTuple):
    number: int
    item: int
    pieces: int


def item(number: int) -> Item:
    return Item(number, f"item number {number}", number / 4)


def flow() -> hr.Flow:
    items = hr.Flow("items by id")
    items.sink("by_id", items.table("items", Item).filter(col.amount >= 0))
    return items


def joined() -> hr.Flow:
    orders = hr.Flow("orders with their items")
    items = orders.table("items", Item)
    orders.sink("out", orders.table("orders", Order).join(items, on=left.item == right.id))
    return orders


def grouped() -> hr.Flow:
    orders = hr.Flow("orders by item")
    groups = orders.table("orders", Order).group_by("item").agg(orders=hr.count(), pieces=hr.sum(col.pieces))
    orders.sink("out", groups)
    return orders


@dataclass(frozen=True)
class Measured:
    """Seconds of single calls, one after the other; calls per second from many at a time."""

    seconds: list[float]
    per_second: float

    def part(self, share: float) -> float:
        """A quantile of the seconds, in microseconds."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * share))] * 1e6


Ask = Callable[[], Awaitable[Any]]


async def one_by_one(ask: Ask, calls: int) -> list[float]:
    took: list[float] = []
    for _ in range(calls):
        begun = time.perf_counter()
        await ask()
        took.append(time.perf_counter() - begun)
    return took


async def many_at_a_time(ask: Ask, calls: int) -> float:
    async def lane() -> None:
        for _ in range(calls // LANES):
            await ask()

    begun = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(LANES)))
    return calls // LANES * LANES / (time.perf_counter() - begun)


async def in_turns(asked: dict[str, Ask], single: set[str], rounds: int, calls: int) -> dict[str, Measured]:
    """Each in turn, several times. single: cannot be asked by many at a time."""
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    rates: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds):
        for name, ask in asked.items():
            seconds[name] += await one_by_one(ask, calls)
            rates[name].append(0.0 if name in single else await many_at_a_time(ask, calls * 2))
    return {name: Measured(seconds[name], statistics.median(rates[name])) for name in asked}


class Bench:
    def __init__(self, cluster: Cluster, client: AsyncClient, rows: int, quick: bool) -> None:
        self._cluster, self._client, self._rows = cluster, client, rows
        self._rounds, self._calls = (2, 200) if quick else (5, 1_000)
        self._draw = random.Random(1)
        self._orders = rows // 2

    async def peek(self) -> None:
        """One row by key, checked."""
        number = self._draw.randrange(self._rows)
        (found,) = await self._client.peek("by_id", key=number)
        assert found == item(number), found

    # -- all rows -------------------------------------------------------------------------------

    async def whole(self) -> None:
        """Hydration, a peek of all rows, and the beginning of a subscription, per process."""
        names = {name: self._cluster.process(name) for name in ("a", "controller")}
        names["client"] = os.getpid()
        columns = [f"{name}, {unit}" for name in names for unit in ("CPU s", "peak +MB")]
        table = Table(f"all of {self._rows:,} rows", "", "CPU s", "rows per CPU s", *columns)

        async def measure(what: str, ask: Callable[[], Awaitable[int]], rows: int = self._rows) -> None:
            for process in names.values():
                forget_peak(process)
            before = {name: (seconds_of(process), resident(process)) for name, process in names.items()}
            assert await ask() == rows
            cells: list[float] = []
            for name, process in names.items():
                cells += [seconds_of(process) - before[name][0], (peak(process) - before[name][1]) / 1e6]
            total = sum(cells[::2])
            table.add(what, total, f"{rows / total:,.0f}", *cells)

        async def hydrate(name: str, made: hr.Flow, key: str, rows: int) -> int:
            await self._client.create_view(name, made, key=key)
            await self.answers("a", name)
            return rows

        async def peek() -> int:
            return len(await self._client.peek("again"))

        async def subscribe() -> int:
            subscription = self._client.subscribe("again")
            batch = await anext(subscription)
            await subscription.aclose()
            return len(batch.updates)

        held = resident(names["a"])
        await measure("hydration of a second view", lambda: hydrate("again", flow(), "id", self._rows))
        per_row = (resident(names["a"]) - held) / self._rows
        await measure("peek of the view", peek)
        await measure("again", peek)
        await measure("subscription with its snapshot", subscribe)
        both = self._rows + self._orders
        await measure(
            "hydration of a join, of the rows of both",
            lambda: hydrate("joined", joined(), "number", both),
            both,
        )
        await measure(
            "hydration of groups",
            lambda: hydrate("grouped", grouped(), "item", self._orders),
            self._orders,
        )
        table.show()
        print(f"memory of the replica per row of the second view: {per_row:,.0f} bytes\n")
        await self.small(names)
        for name in ("again", "joined", "grouped"):
            await self._client.drop(name)

    async def small(self, processes: dict[str, int]) -> None:
        """An insert of one row, which all views follow, and a peek of one."""
        table = Table("one row, the client's part included", "", *(f"{name}, CPU us" for name in processes))
        numbers = iter(range(self._orders, 2 * self._rows))

        async def insert() -> None:
            await self._client.insert("orders", [Order(next(numbers), self._draw.randrange(self._rows), 1)])

        for what, ask in (("insert into three views", insert), ("peek by key", self.peek)):
            before = {name: seconds_of(process) for name, process in processes.items()}
            calls = 10 * self._calls
            await one_by_one(ask, calls)
            await asyncio.sleep(0.1)
            spent = (seconds_of(process) - before[name] for name, process in processes.items())
            table.add(what, *(seconds / calls * 1e6 for seconds in spent))
        table.show()

    async def load(self) -> None:
        table = Table(f"{self._rows:,} rows", "", "s", "rows/s", "replica a, MB")
        begun = time.perf_counter()
        for start in range(0, self._rows, 10_000):
            await self._client.insert("items", map(item, range(start, min(self._rows, start + 10_000))))
        took = time.perf_counter() - begun
        table.add("inserted, 10,000 at a time", took, f"{self._rows / took:,.0f}", "")
        for start in range(0, self._orders, 10_000):
            numbers = range(start, min(self._orders, start + 10_000))
            orders = [Order(n, self._draw.randrange(self._rows), n % 10) for n in numbers]
            await self._client.insert("orders", orders)
        begun = time.perf_counter()
        await self._client.create_view("by_id", flow(), key="id")
        await self.answered_by("a")
        took = time.perf_counter() - begun
        table.add(
            "view created to first answer", took, f"{self._rows / took:,.0f}", self._cluster.megabytes("a")
        )
        table.show()

    async def answered_by(self, replica: str, view: str = "by_id") -> None:
        """Wait until a replica answers a peek."""
        while True:
            with suppress(HeadraceError):
                (found,) = await self._client.peek(view, key=7, replica=replica)
                assert found == item(7)
                return
            await asyncio.sleep(0.02)

    async def answers(self, replica: str, view: str) -> None:
        """Wait until a replica answers a peek of anything."""
        while True:
            with suppress(HeadraceError):
                await self._client.peek(view, key=7, replica=replica)
                return
            await asyncio.sleep(0.02)

    # -- peeks ----------------------------------------------------------------------------------

    async def peeks(self, echo: Echo, replicas: int) -> None:
        asked: dict[str, Ask] = {
            "echo, one call each": lambda: echo.one(PAYLOAD),
            "echo, over a stream": lambda: echo.over_stream(PAYLOAD),
            f"peek by key, {replicas} replica{'s' * (replicas > 1)}": self.peek,
        }
        found = await in_turns(asked, {"echo, over a stream"}, self._rounds, self._calls)
        floor = found["echo, one call each"]
        table = Table(
            f"a keyed peek of {self._rows:,} rows beside an empty gRPC echo",
            "", "p50 us", "p99 us", "p50 to floor", f"per second, {LANES} at a time", "floor to it",
        )  # fmt: skip
        for name, one in found.items():
            rate = (
                (f"{one.per_second:,.0f}", floor.per_second / one.per_second) if one.per_second else ("", "")
            )
            table.add(name, one.part(0.5), one.part(0.99), one.part(0.5) / floor.part(0.5), *rate)
        table.show()

    # -- freshness ------------------------------------------------------------------------------

    async def freshness(self) -> None:
        subscription = self._client.subscribe("by_id", snapshot=False, progress=True)
        await anext(subscription)
        since_called: list[float] = []
        since_acknowledged: list[float] = []
        for number in range(self._rounds * self._calls // 5):
            row = item(self._rows + number)
            seen = asyncio.create_task(_seen(subscription, row))
            called = time.perf_counter()
            await self._client.insert("items", [row])
            acknowledged = time.perf_counter()
            at = await seen
            since_called.append(at - called)
            since_acknowledged.append(max(0.0, at - acknowledged))
            await asyncio.sleep(self._draw.random() * 0.01)
        await subscription.aclose()
        table = Table("from an insert of one row to a subscription", "", "p50 ms", "p99 ms", "worst ms")
        for name, took in (("called", since_called), ("acknowledged", since_acknowledged)):
            measured = Measured(took, 0)
            table.add(f"since it was {name}", *(measured.part(q) / 1e3 for q in (0.5, 0.99, 1.0)))
        table.show()

    # -- kills ----------------------------------------------------------------------------------

    async def rejoin(self) -> None:
        table = Table(f"from a start after kill -9 to the first answer, {self._rows:,} rows", "", "s", "")
        table.add("a replica, whose view is made afresh", *await self._killed("a", "a"))
        table.add("the controller; the replica keeps its view", *await self._killed("controller", "a"))
        table.show()

    async def _killed(self, process: str, asked: str) -> tuple[float, str]:
        took: list[float] = []
        for _ in range(3 if self._rounds > 2 else 1):
            self._cluster.kill(process)
            begun = time.perf_counter()
            await asyncio.to_thread(self._cluster.again, process)
            await self.answered_by(asked)
            took.append(time.perf_counter() - begun)
        return statistics.median(took), f"median of {len(took)}"


async def _seen(subscription: Any, row: Item) -> float:
    async for batch in subscription:
        if any(update.row == row for update in batch.updates):
            return time.perf_counter()
    raise AssertionError("the subscription has ended")


async def run(rows: int, quick: bool, folder: Path) -> None:
    cluster = Cluster(folder)
    try:
        echo = Echo(cluster.echo())
        async with AsyncClient(cluster.controller()) as client:
            bench = Bench(cluster, client, rows, quick)
            await client.create_collection("items", Item)
            await client.create_collection("orders", Order)
            await client.add_replica("a", cluster.replica("a"))
            await bench.load()
            await bench.whole()
            await bench.peeks(echo, 1)
            await client.add_replica("b", cluster.replica("b"))
            await bench.answered_by("b")
            await bench.peeks(echo, 2)
            await bench.freshness()
            await bench.rejoin()
        await echo.close()
    finally:
        cluster.end()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the view")
    parser.add_argument("--quick", action="store_true", help="100,000 rows, fewer calls")
    given = parser.parse_args()
    rows: int = min(given.rows, 100_000) if given.quick else given.rows
    with TemporaryDirectory(prefix="headrace-serve-") as folder:
        asyncio.run(run(rows, given.quick, Path(folder)))


if __name__ == "__main__":
    main()
