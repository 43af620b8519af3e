"""Views under overload and kills, as long as you like; in the end, all of it has to be right.

    python benches/soak.py [--minutes 30] [--seed 0] [--subscribers 20]

Two replicas serve three views, one of them of another. Each other minute, rows are written at twice the rate
at which the replicas keep up; where no writer is that fast, the replicas get a part of their time only, and
one of them even less, so that it has to rebuild. Each minute a replica is killed, each third the controller.
One subscriber is slow. Checked are: strict reads between these minutes, that no view is broken, that each
subscriber has seen each time once and adds up to the rows, and the answers of each replica against those of
DuckDB. A seed determines the rows and whom it hits, not when exactly.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import headrace as hr
from benches.measure import Table
from benches.serving.cluster import Cluster
from headrace import col
from headrace.compute.client.client import AsyncClient
from headrace.compute.controller.status import ControllerStatus, ReplicaState
from headrace.compute.errors import SinceViolation

REPLICAS = ("a", "b")
SHOPS = 20
BATCH = 400
KEEP = "5s"
MAX_LAG = "5s"
"""Of the controller: short, so that replicas are given up, and rebuild."""
PATIENCE = "5 min"
HIGH_PRICE, MANY_SALES = 90, 1_000


class Sale(NamedTuple):
    shop: str
    price: int


class Total(NamedTuple):
    shop: str
    total: int
    sales: int


def totals() -> hr.Flow:
    flow = hr.Flow("totals")
    sales = flow.table("sales", Sale)
    flow.sink("totals", sales.group_by("shop").agg(total=hr.sum(col.price), sales=hr.count()))
    return flow


def expensive() -> hr.Flow:
    flow = hr.Flow("expensive")
    flow.sink("expensive", flow.table("sales", Sale).filter(col.price >= HIGH_PRICE))
    return flow


def large() -> hr.Flow:
    flow = hr.Flow("large")
    flow.sink("large", flow.table("totals", Total).filter(col.sales >= MANY_SALES))
    return flow


VIEWS = {"totals": totals, "expensive": expensive, "large": large}
QUERIES = {
    "totals": "SELECT shop, sum(price * n), sum(n) FROM sales GROUP BY shop",
    "expensive": f"SELECT shop, price, n FROM sales WHERE price >= {HIGH_PRICE}",
    "large": f"SELECT shop, sum(price * n), sum(n) FROM sales GROUP BY shop HAVING sum(n) >= {MANY_SALES}",
}


def answers_of_duckdb(sales: Counter[Sale]) -> dict[str, Counter[Any]]:
    """The rows of each view with their multiplicities. sales: with theirs."""
    import duckdb

    with duckdb.connect() as database:
        database.execute("CREATE TABLE sales (shop TEXT, price BIGINT, n BIGINT)")
        database.executemany("INSERT INTO sales VALUES (?, ?, ?)", [(*sale, n) for sale, n in sales.items()])
        found = {view: database.execute(query).fetchall() for view, query in QUERIES.items()}
    counted = {view: Counter({tuple(row): 1 for row in rows}) for view, rows in found.items()}
    counted["expensive"] = Counter({(shop, price): n for shop, price, n in found["expensive"]})
    return counted


@dataclass
class Follower:
    """Subscriber. rows: what the changes add up to. anew: how often it was away for longer than `KEEP`."""

    view: str
    slow: bool
    rows: Counter[Any] = field(default_factory=Counter[Any])
    upper: int = 0
    anew: int = 0
    wrong: list[str] = field(default_factory=list[str])

    async def follow(self, client: AsyncClient, last: asyncio.Future[int]) -> None:
        """Apply all changes up to the time in `last`, once that is known."""
        while True:
            self.rows.clear()
            self.upper = 0
            subscription = client.subscribe(self.view, progress=True, patience=PATIENCE)
            try:
                async for batch in subscription:
                    self._apply(batch)
                    if last.done() and self.upper > last.result():
                        return
                    if self.slow and not last.done():
                        await asyncio.sleep(0.5)
            except SinceViolation:
                self.anew += 1
            finally:
                await subscription.aclose()

    def _apply(self, batch: Any) -> None:
        if batch.lower != self.upper:
            self.wrong.append(f"a batch of {self.view} begins at {batch.lower}, not at {self.upper}")
        self.upper = batch.upper
        for row, at, weight in batch.updates:
            if not batch.lower <= at < batch.upper:
                self.wrong.append(f"a change of {self.view} at {at}, outside {batch.lower} to {batch.upper}")
            self.rows[tuple(row)] += weight


class Soak:
    """One run. wrong: what was not as it should be."""

    def __init__(self, cluster: Cluster, client: AsyncClient, seed: int, subscribers: int) -> None:
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.sales: Counter[Sale] = Counter()
        self._cluster, self._client = cluster, client
        self._rows, self._chance = random.Random(seed), random.Random(seed + 1)
        views = list(VIEWS)
        self._followers = [Follower(views[n % len(views)], n == 0) for n in range(subscribers)]
        self._share = 1.0
        self._overloaded = False
        self._slowest = 0
        self._rebuilt: set[tuple[int, str | None]] = set()

    # -- writing --------------------------------------------------------------------------------

    async def write(self) -> int:
        """Write a batch of sales, some of them taken back. Returns its time."""
        draw, changes, taken = self._rows, [], Counter[Sale]()
        there = list(self.sales)
        for _ in range(BATCH):
            sale = draw.choice(there) if there and draw.random() < 0.3 else None
            if sale is not None and self.sales[sale] > taken[sale]:
                taken[sale] += 1
                changes.append(hr.delete(sale))
            else:
                changes.append(hr.insert(Sale(f"shop {draw.randrange(SHOPS)}", draw.randrange(100))))
        at = await self._client.write({"sales": changes})
        for change in changes:
            self.sales[change.row] += change.weight
        self.sales = +self.sales
        self.counts["rows written"] += BATCH
        return at

    async def _write_until(self, until: float) -> None:
        while time.monotonic() < until:
            await self.write()
            if not self._overloaded:
                await self._read()
                await asyncio.sleep(0.2)

    async def _read(self) -> None:
        """A strict read sees all that was written."""
        shop = f"shop {self._rows.randrange(SHOPS)}"
        found = await self._client.peek("totals", key=shop, patience=PATIENCE)
        wanted = [(s.price * n, n) for s, n in self.sales.items() if s.shop == shop]
        expected = [(shop, sum(t for t, _ in wanted), sum(n for _, n in wanted))] if wanted else []
        self.counts["strict reads"] += 1
        if [tuple(row) for row in found] != expected:
            self.wrong.append(f"a strict read saw {found}, not {expected}")

    async def measure(self) -> None:
        """Find the share of their time in which replicas keep up with half of what can be written."""
        for name in REPLICAS:
            self._cluster.send(name, signal.SIGSTOP)
        begun = time.monotonic()
        for _ in range(25):
            await self.write()
        wrote = time.monotonic() - begun
        for name in REPLICAS:
            self._cluster.send(name, signal.SIGCONT)
        begun = time.monotonic()
        await self._settled()
        self._share = min(1.0, (time.monotonic() - begun) / (2 * wrote))

    # -- what happens to the processes ----------------------------------------------------------

    async def _starve(self) -> None:
        """Give overloaded replicas their share of each second, and the last one less than that."""
        first, last = REPLICAS
        while True:
            if self._overloaded:
                self._cluster.send(first, signal.SIGSTOP)
                self._cluster.send(last, signal.SIGSTOP)
                await asyncio.sleep(1 - self._share)
                self._cluster.send(first, signal.SIGCONT)
                await asyncio.sleep(self._share * 0.9)
                self._cluster.send(last, signal.SIGCONT)
            await asyncio.sleep(self._share * 0.1)

    async def _kill(self, name: str, away: float) -> None:
        self._cluster.kill(name)
        self.counts["controllers killed" if name == "controller" else "replicas killed"] += 1
        await asyncio.sleep(away)
        await asyncio.to_thread(self._cluster.again, name)

    async def _watch(self) -> None:
        """No view is ever broken or failed, whatever else status tells."""
        while True:
            found = await self._client.status()
            self.counts["statuses"] += 1
            # A controller that is killed forgets them.
            self._rebuilt |= {(p.at, p.replica) for p in found.problems if "rebuilds" in p.text}
            for view in found.views:
                self._slowest = max(self._slowest, *(on.lag for on in view.replicas), 0)
                self.wrong += [
                    f"{view.name} is {on.failure} on {on.replica}" for on in view.replicas if on.failure
                ]
            await asyncio.sleep(2)

    async def run(self, minutes: int) -> None:
        """Run for some minutes, then check everything."""
        last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        following = [asyncio.create_task(each.follow(self._client, last)) for each in self._followers]
        beside = [asyncio.create_task(self._starve()), asyncio.create_task(self._watch())]
        for minute in range(minutes):
            begun = time.monotonic()
            self._overloaded = minute % 2 == 0
            writing = asyncio.create_task(self._write_until(begun + 60))
            await asyncio.sleep(self._chance.uniform(10, 40))
            await self._kill(self._chance.choice(REPLICAS), self._chance.uniform(0, 5))
            if minute % 3 == 2:
                await self._kill("controller", self._chance.uniform(0, 3))
            await writing
            _fail_early(*beside, *following)
            print(f"minute {minute + 1}: {self.counts.total():,} {dict(self.counts)}", flush=True)
        self._overloaded = False
        last.set_result(await self.write())
        await self._settled()
        for task in beside:
            task.cancel()
        for ended in await asyncio.gather(*beside, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                self.wrong.append(f"a background task ended early: {ended!r}")
        await asyncio.wait_for(asyncio.gather(*following), 600)
        await self._check()

    # -- the end --------------------------------------------------------------------------------

    async def _settled(self) -> ControllerStatus:
        while not _is_settled(found := await self._client.status()):
            await asyncio.sleep(0.1)
        return found

    async def _check(self) -> None:
        right = answers_of_duckdb(self.sales)
        for view in VIEWS:
            for replica in REPLICAS:
                rows = await self._client.peek(view, replica=replica, patience=PATIENCE)
                self._compare(f"{view} on {replica}", Counter(map(tuple, rows)), right[view])
        for number, each in enumerate(self._followers):
            who = f"subscriber {number} of {each.view}"
            self.wrong += [f"{who}: {what}" for what in each.wrong]
            self._compare(who, Counter({row: n for row, n in each.rows.items() if n}), right[each.view])
            if each.anew and not each.slow:
                self.wrong.append(f"{who} had to begin anew {each.anew} times")
        self.counts["rebuilds of replicas far behind"] = len(self._rebuilt)
        self.counts["share of time of overloaded replicas, %"] = round(self._share * 100)
        self.counts["slowest replica behind by, ms"] = self._slowest
        self.counts["new starts of the slow subscriber"] = self._followers[0].anew

    def _compare(self, what: str, found: Counter[Any], right: Counter[Any]) -> None:
        if found != right:
            missing, surplus = right - found, found - right
            self.wrong.append(f"{what}: missing {list(missing)[:3]}, surplus {list(surplus)[:3]}")


def _is_settled(found: ControllerStatus) -> bool:
    connected = all(each.state is ReplicaState.CONNECTED for each in found.replicas)
    on = [on for view in found.views for on in view.replicas]
    return connected and len(on) == len(VIEWS) * len(REPLICAS) and all(o.hydrated and not o.lag for o in on)


def _fail_early(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        if task.done():
            task.result()


async def soak(minutes: int, seed: int, subscribers: int, folder: Path) -> Soak:
    """Run a soak in a folder, and return what came of it."""
    cluster = Cluster(folder)
    try:
        cluster.controller("--max-lag", MAX_LAG)
        async with AsyncClient(cluster.addresses["controller"], patience=PATIENCE) as client:
            for name in REPLICAS:
                await client.add_replica(name, cluster.replica(name))
            for name, flow in VIEWS.items():
                await client.create_view(name, flow(), key=() if name == "expensive" else "shop", keep=KEEP)
            found = Soak(cluster, client, seed, subscribers)
            await found.measure()
            await found.run(minutes)
        return found
    finally:
        cluster.end()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subscribers", type=int, default=20)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="headrace-soak-") as folder:
        found = asyncio.run(soak(given.minutes, given.seed, given.subscribers, Path(folder)))
    table = Table(f"{given.minutes} minutes, seed {given.seed}", "what happened", "times")
    for what, times in sorted(found.counts.items()):
        table.add(what, f"{times:,}")
    table.show()
    for what in found.wrong:
        print(f"wrong: {what}")
    print(f"{len(found.wrong)} things are wrong")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
