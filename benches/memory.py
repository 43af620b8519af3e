"""Memory of an engine's state against the same dicts by hand, in bytes per row or key.

Each flow gets its rows in ticks of 1,000, which are dropped behind it; the loop by hand keeps, for exactly
this flow, what is needed and no more. What is traced is what Python allocates, values of the rows included.

    python benches/memory.py [--rows 200000]
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import headrace as hr
from benches.measure import Table
from headrace import col

TICK = 1_000


class Order(NamedTuple):
    id: int
    customer: int
    amount: int


class Customer(NamedTuple):
    customer: int
    region: str


class Event(NamedTuple):
    key: int
    at: int
    value: int


Ticks = Iterator[dict[str, list[Any]]]


def orders(rows: int) -> Ticks:
    """Orders of a tenth as many customers, ids beyond those that Python keeps anyway."""
    for begin in range(0, rows, TICK):
        yield {
            "orders": [
                Order(10**6 + n, 10**6 + n % (rows // 10), 10**6 + n * 7) for n in range(begin, begin + TICK)
            ]
        }


def orders_and_customers(rows: int) -> Ticks:
    count = rows // 10
    yield {"customers": [Customer(10**6 + n, f"region {n % 50}") for n in range(count)]}
    yield from orders(rows)


def events(rows: int) -> Ticks:
    """Events of half as many windows; the watermark stays below all of them."""
    for begin in range(0, rows, TICK):
        yield {
            "events": [
                Event(n % (rows // 20), 10**6 + n // (rows // 10), 10**6 + n)
                for n in range(begin, begin + TICK)
            ]
        }


# -- the flows, and the same by hand --------------------------------------------------------------


def join() -> hr.Flow:
    flow = hr.Flow("join")
    joined = flow.table("orders", Order).join(flow.table("customers", Customer), on="customer")
    flow.sink("out", joined.group_by("region").agg(ids=hr.sum(col.id), amount=hr.sum(col.amount)))
    return flow


def join_by_hand(ticks: Ticks) -> Any:
    left: defaultdict[int, dict[Any, int]] = defaultdict(dict)
    right: defaultdict[int, dict[Any, int]] = defaultdict(dict)
    for tick in ticks:
        for side, name in ((left, "orders"), (right, "customers")):
            for row in tick.get(name, ()):
                key = row.customer
                rows, plain = side[key], tuple(row)
                rows[plain] = rows.get(plain, 0) + 1
    return left, right


def aggregate() -> hr.Flow:
    flow = hr.Flow("aggregate")
    flow.sink("out", flow.source("orders", Order).group_by("id").agg(n=hr.count(), sum=hr.sum(col.amount)))
    return flow


def aggregate_by_hand(ticks: Ticks) -> Any:
    groups: dict[int, list[Any]] = {}
    for tick in ticks:
        for row in tick["orders"]:
            group = groups.setdefault(row.id, [0, 0])
            group[0] += 1
            group[1] += row.amount
    return groups


def distinct() -> hr.Flow:
    flow = hr.Flow("distinct")
    flow.sink("out", flow.table("orders", Order).distinct().group_by().agg(n=hr.count()))
    return flow


def distinct_by_hand(ticks: Ticks) -> Any:
    copies: dict[Any, int] = {}
    for tick in ticks:
        for row in tick["orders"]:
            plain = tuple(row)
            copies[plain] = copies.get(plain, 0) + 1
    return copies


def windows() -> hr.Flow:
    flow = hr.Flow("windows")
    on_time = flow.source("events", Event).watermark(col.at, lateness=10**9)
    flow.sink(
        "out", on_time.group_by("key", window=hr.tumbling(col.at, 1)).agg(n=hr.count(), sum=hr.sum(col.value))
    )
    return flow


def windows_by_hand(ticks: Ticks) -> Any:
    groups: dict[Any, list[Any]] = {}
    ends: defaultdict[int, list[Any]] = defaultdict(list)
    for tick in ticks:
        for row in tick["events"]:
            key = (row.key, row.at)
            group = groups.get(key)
            if group is None:
                group = groups[key] = [0, 0]
                ends[row.at + 1].append(key)
            group[0] += 1
            group[1] += row.value
    return groups, ends


FLOWS: dict[str, tuple[Callable[[], hr.Flow], Callable[[Ticks], Any], Callable[[int], Ticks]]] = {
    "join, per order": (join, join_by_hand, orders_and_customers),
    "aggregate, per group": (aggregate, aggregate_by_hand, orders),
    "distinct, per row": (distinct, distinct_by_hand, orders),
    "windows, per event (half as many windows)": (windows, windows_by_hand, events),
}


def traced(keep: Callable[[], Any]) -> int:
    """Bytes that stay allocated while what `keep` returns is kept."""
    gc.collect()
    tracemalloc.start()
    kept = keep()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept is not None
    return size


def run(flow: hr.Flow, ticks: Ticks) -> hr.Engine:
    engine = hr.Engine(flow)
    for tick in ticks:
        engine.tick(**tick)
    return engine


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    rows = parser.parse_args().rows
    table = Table("Bytes per row of state", "flow", "engine", "by hand", "ratio")
    for name, (flow, by_hand, ticks) in FLOWS.items():
        run(flow(), ticks(2 * TICK))  # what is loaded or compiled once is no state
        ours = traced(lambda flow=flow, ticks=ticks: run(flow(), ticks(rows)))
        theirs = traced(lambda by_hand=by_hand, ticks=ticks: by_hand(ticks(rows)))
        table.add(name, ours / rows, theirs / rows, ours / theirs)
    table.show()


if __name__ == "__main__":
    main()
