"""One row, one tick, a million rows of state: the median, the 99th percentile and the worst of it.

    python benches/latency.py [--rows 1000000]

Orders above an amount, joined with customers, count and sum per region. "append" takes
rows that only come; "changes" takes a row back in every third tick. The first million
rows come in ticks of 1,000 whose worst is shown too: that is where dicts grow.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from typing import Any

import headrace as hr
from benches.engine import Customer, Order
from benches.measure import Table
from headrace import col

_TICKS = 20_000


def flow(*, append: bool) -> hr.Flow:
    flow = hr.Flow("revenue per region")
    orders: Any = flow.source("orders", Order) if append else flow.table("orders", Order)
    customers = flow.source("customers", Customer)
    flow.sink(
        "revenue",
        orders.filter(col.amount > 20)
        .join(customers, on="customer")
        .group_by("region")
        .agg(orders=hr.count(), revenue=hr.sum(col.amount)),
    )
    return flow


def orders(rng: random.Random) -> Iterator[Order]:
    number = 0
    while True:
        yield Order(number, rng.randrange(50_000), rng.randrange(100))
        number += 1


def measure(table: Table, rows: int, *, append: bool, checked: bool) -> None:
    rng = random.Random(1)
    source = orders(rng)
    engine = hr.Engine(flow(append=append))
    engine.tick(customers=[Customer(n, f"region {n % 50}") for n in range(50_000)])
    live: list[Order] = []
    loading: list[int] = []
    for _ in range(rows // 1_000):
        batch = [next(source) for _ in range(1_000)]
        live += batch
        start = time.perf_counter_ns()
        engine.tick(orders=batch)
        loading.append(time.perf_counter_ns() - start)
    took: list[int] = []
    for at in range(_TICKS):
        change: Any = next(source)
        if not append:
            change = hr.delete(live.pop(rng.randrange(len(live)))) if at % 3 == 0 else hr.insert(change)
        given = engine.internal_rows("orders", [change])
        start = time.perf_counter_ns()
        if checked:
            engine.tick(orders=[change])
        else:
            engine.tick_rows({"orders": given})
        took.append(time.perf_counter_ns() - start)
    took.sort()
    table.add(
        f"{'append' if append else 'changes'}, {'tick' if checked else 'tick_rows'}",
        took[len(took) // 2] / 1000,
        took[len(took) * 99 // 100] / 1000,
        f"{took[-1] / 1000:,.0f}",
        f"{max(loading) / 1e6:,.1f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of state before the measured ticks")
    rows: int = parser.parse_args().rows
    table = Table(
        f"a tick of one row through filter, join and aggregate, {rows:,} rows of state",
        "",
        "median us",
        "p99 us",
        "worst us",
        "worst of loading, ms",
    )
    for append in (True, False):
        for checked in (True, False):
            measure(table, rows, append=append, checked=checked)
    table.show()


if __name__ == "__main__":
    main()
