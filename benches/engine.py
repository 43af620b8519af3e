"""In-process engine against a hand-written straight-line function, in one run.

The flow: orders above an amount, joined with customers, count and sum of the
amounts per region; a third of the changes take an order back. The hand-written
function takes the same changes and gives the same ones out, for exactly this
flow, with dicts and nothing in between: no checks of its input, no engine.

    python benches/engine.py [--rows 100000] [--quick]

Prints the median microseconds per tick of both and their ratio; the ratio of
`tick_rows`, the same tick on rows that were checked before; and the memory per
row of state. The runs take turns. From 1,000 rows on it is CPU time, which other
work on the machine disturbs less; a clock of CPU time is too slow for one row.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import headrace as hr
from headrace import col


class Order(NamedTuple):
    id: int
    customer: int
    amount: int


class Customer(NamedTuple):
    customer: int
    region: str


def flow() -> hr.Flow:
    flow = hr.Flow("revenue per region")
    orders = flow.table("orders", Order)
    customers = flow.table("customers", Customer)
    flow.sink(
        "revenue",
        orders.filter(col.amount > 20)
        .join(customers, on="customer")
        .group_by("region")
        .agg(orders=hr.count(), revenue=hr.sum(col.amount)),
    )
    return flow


class ByHand:
    """The same flow as a person would write it, once and for nothing else."""

    def __init__(self) -> None:
        self.orders: dict[int, dict[Any, int]] = {}
        self.customers: dict[int, dict[Any, int]] = {}
        self.regions: dict[str, list[int]] = {}

    def tick(
        self, orders: list[hr.Change[Order]], customers: list[hr.Change[Customer]]
    ) -> list[tuple[Any, ...]]:
        all_orders, all_customers, regions = self.orders, self.customers, self.regions
        before: dict[str, tuple[int, int]] = {}
        for (order_id, customer, amount), weight in orders:
            if amount > 20:
                found = all_customers.get(customer)
                if found is not None:
                    for (_, region), n in found.items():
                        group = regions.get(region)
                        if group is None:
                            group = regions[region] = [0, 0]
                        if region not in before:
                            before[region] = (group[0], group[1])
                        group[0] += weight * n
                        group[1] += amount * weight * n
                row = (order_id, customer, amount)
                own = all_orders.get(customer)
                if own is None:
                    all_orders[customer] = {row: weight}
                else:
                    total = own.get(row, 0) + weight
                    if total:
                        own[row] = total
                    else:
                        del own[row]
        for (customer, region), weight in customers:
            found = all_orders.get(customer)
            if found is not None:
                for (_, _, amount), n in found.items():
                    group = regions.get(region)
                    if group is None:
                        group = regions[region] = [0, 0]
                    if region not in before:
                        before[region] = (group[0], group[1])
                    group[0] += weight * n
                    group[1] += amount * weight * n
            row = (customer, region)
            own = all_customers.get(customer)
            if own is None:
                all_customers[customer] = {row: weight}
            else:
                total = own.get(row, 0) + weight
                if total:
                    own[row] = total
                else:
                    del own[row]
        out: list[tuple[Any, ...]] = []
        for region, (count, revenue) in before.items():
            group = regions[region]
            if (count, revenue) != (group[0], group[1]):
                if count:
                    out.append((region, count, revenue, -1))
                if group[0]:
                    out.append((region, group[0], group[1], 1))
        return out


def changes(
    rng: random.Random, live: list[Order], size: int, next_id: Iterator[int]
) -> list[hr.Change[Order]]:
    """`size` changes of which a third take a live order back."""
    out: list[hr.Change[Order]] = []
    for _ in range(size):
        if rng.random() < 1 / 3 and live:
            at = rng.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            out.append(hr.delete(live.pop()))
        else:
            order = Order(next(next_id), rng.randrange(20_000), rng.randrange(100))
            live.append(order)
            out.append(hr.insert(order))
    return out


def timed(run: Callable[[], Any], clock: Callable[[], int]) -> tuple[float, Any]:
    """Microseconds, and what came of it."""
    start = clock()
    result = run()
    return (clock() - start) / 1000, result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000, help="rows of state before the measured ticks")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    arguments = parser.parse_args()
    rng = random.Random(1)
    ids = iter(range(10**12))
    live = [Order(next(ids), rng.randrange(20_000), rng.randrange(100)) for _ in range(arguments.rows)]
    customers = [Customer(i, f"region {i % 50}") for i in range(20_000)]

    tracemalloc.start()
    engine = hr.Engine(flow())
    engine.tick(orders=list(live), customers=customers)
    bytes_per_row = tracemalloc.get_traced_memory()[0] / (arguments.rows + len(customers))
    tracemalloc.stop()
    checked = hr.Engine(flow())
    checked.tick(orders=list(live), customers=customers)
    hand = ByHand()
    hand.tick([hr.insert(o) for o in live], [hr.insert(c) for c in customers])
    gc.collect()
    gc.freeze()

    print(f"filter + join + aggregate, a third retractions, {arguments.rows:,} orders of state")
    print(
        f"{'rows per tick':>14} {'by hand us':>12} {'headrace us':>12} {'ratio':>7} {'tick_rows ratio':>16}"
    )
    for size in (1, 10, 100, 1_000, 10_000):
        repeats = max(11, min(4_000, 60_000 // size) // (10 if arguments.quick else 1))
        clock = time.perf_counter_ns if size < 1_000 else time.thread_time_ns
        took: tuple[list[float], ...] = ([], [], [])
        for at in range(repeats):
            batch = changes(rng, live, size, ids)
            rows = checked.internal_rows("orders", batch)
            runs: list[Callable[[], Any]] = [
                lambda batch=batch: hand.tick(batch, []),
                lambda batch=batch: engine.tick(orders=batch)["revenue"].raw,
                lambda rows=rows: checked.tick_rows({"orders": rows}).get("revenue", []),
            ]
            # The first to run finds the rows in no cache, so they take turns.
            order = [(at + i) % 3 for i in range(3)]
            answers: dict[int, Any] = {}
            for which in order:
                microseconds, answers[which] = timed(runs[which], clock)
                took[which].append(microseconds)
            assert sorted(answers[0]) == sorted(answers[1]) == sorted(answers[2]), "they disagree"
        by_hand, ours, ours_checked = map(statistics.median, took)
        ratio, checked_ratio = ours / by_hand, ours_checked / by_hand
        print(f"{size:>14,} {by_hand:>12.1f} {ours:>12.1f} {ratio:>7.2f} {checked_ratio:>16.2f}")
    print(f"memory of state: {bytes_per_row:.0f} bytes per row, the row itself included")


if __name__ == "__main__":
    main()
