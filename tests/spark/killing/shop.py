"""The flow that is run while its processes are killed, its input, and the same answers from DuckDB.

All that is hard to get exactly once is in it: a join, an aggregate of an
aggregate, rows that are taken back, a loop whose rows are taken back, and four
sinks of four kinds.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import duckdb

import headrace as hr
from headrace import Flow, col

Row: TypeAlias = dict[str, int]
SOURCES = ("customers", "orders", "referrals")
CUSTOMERS, REGIONS = 40, 5


class Customer(NamedTuple):
    customer: int
    region: int


class Order(NamedTuple):
    id: int
    customer: int
    amount: int


class Referral(NamedTuple):
    by: int
    of: int


class Reached(NamedTuple):
    customer: int


def flow() -> Flow:
    """Sinks: `best` and `regions` (aggregate, and aggregate of it), `large` (join), `reached` (loop)."""
    built = Flow("shop")
    customers = built.table("customers", Customer)
    orders = built.table("orders", Order)
    referrals = built.table("referrals", Referral)
    placed = orders.join(customers, on="customer")
    best = placed.group_by(col.customer, col.region).agg(best=hr.max(col.amount), orders=hr.count())
    regions = best.group_by(col.region).agg(
        customers=hr.count(), orders=hr.sum(col.orders), average=hr.mean(col.best)
    )
    built.sink("best", best)
    built.sink("regions", regions)
    built.sink("large", placed.filter(col.amount >= 80).select(col.id, col.region, col.amount))
    first = referrals.filter(col.by == 0).select(customer=col.of, into=Reached)
    reached = built.fixpoint(
        lambda found: found.join(referrals, on=col.customer == col.by).select(customer=col.of, into=Reached),
        first,
    )
    built.sink("reached", reached)
    return built


ANSWERS = {
    "best": """
        select o.customer, c.region, max(o.amount), count(*)
        from orders o join customers c using (customer) group by all""",
    "regions": """
        with placed as (
            select customer, o.amount, c.region
            from orders o join customers c using (customer)),
        best as (
            select customer, region, max(amount) as best, count(*) as orders
            from placed group by customer, region)
        select region, count(*), sum(orders)::bigint, avg(best) from best group by region""",
    "large": """
        select o.id, c.region, o.amount from orders o join customers c using (customer)
        where o.amount >= 80""",
    "reached": """
        with recursive reached as (
            select "of" as customer from referrals where "by" = 0
            union select r."of" from referrals r join reached on r."by" = reached.customer)
        select customer from reached""",
}
"""Per sink the query whose rows it must hold, over tables of the rows that are there at the end."""


def recomputed(folder: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """What the sinks must hold, from all files of the input, by DuckDB."""
    found: dict[str, Counter[tuple[Any, ...]]] = {}
    with duckdb.connect() as database:
        for source in SOURCES:
            database.execute(
                f"""create table {source} as select * exclude (weight, copy) from (
                    select * exclude weight, sum(weight)::int as weight
                    from read_json('{folder / source}/*.json') group by all), range(weight) as copies(copy)"""
            )
        for sink, query in ANSWERS.items():
            found[sink] = Counter(database.execute(query).fetchall())
    return found


@dataclass(slots=True)
class Supplier:
    """Writes the input file by file: each holds new rows, and takes some older ones back."""

    folder: Path
    choice: random.Random
    rows: int = 40
    written: int = 0
    _there: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])

    def write(self) -> None:
        """One more file of each source; it appears whole."""
        number = self.choice.randrange
        first = self.written * self.rows
        orders = [
            {"id": first + n, "customer": number(CUSTOMERS), "amount": number(100)} for n in range(self.rows)
        ]
        referrals = [{"by": number(CUSTOMERS), "of": number(CUSTOMERS)} for _ in range(10)]
        self._write("customers", *self._moves())
        self._write("orders", orders, self._taken_back("orders", orders, self.rows // 4))
        self._write("referrals", referrals, self._taken_back("referrals", referrals, 3))
        self.written += 1

    def _moves(self) -> tuple[list[Row], list[Row]]:
        """Customers as they are now and as they were: all of them at first, then some that move."""
        there = self._there.setdefault("customers", [])
        if not there:
            there.extend({"customer": n, "region": n % REGIONS} for n in range(CUSTOMERS))
            return there, []
        moving = self.choice.sample(range(CUSTOMERS), 3)
        before = [there[n] for n in moving]
        for n in moving:
            there[n] = {**there[n], "region": self.choice.randrange(REGIONS)}
        return [there[n] for n in moving], before

    def _taken_back(self, source: str, new: list[Row], count: int) -> list[Row]:
        """Some of the rows that are there; the new ones come to them."""
        there = self._there.setdefault(source, [])
        gone = [there.pop(self.choice.randrange(len(there))) for _ in range(min(count, len(there)))]
        there.extend(new)
        return gone

    def _write(self, source: str, new: list[Row], gone: list[Row]) -> None:
        lines = [{**row, "weight": 1} for row in new] + [{**row, "weight": -1} for row in gone]
        target = self.folder / source / f"{self.written:04d}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_suffix(".tmp")
        aside.write_text("".join(json.dumps(line) + "\n" for line in lines))
        aside.rename(target)
