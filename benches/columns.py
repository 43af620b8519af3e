"""One operator over 500,000 rows of state: what a tick costs in rows, and where its state may lie in columns.

Per operator and number of changed rows: processor milliseconds of a tick, mean and worst, in dicts
(`columnar="never"`, rows given as changes) and as the engine decides (an Arrow table from 100 rows on), and
how many times cheaper the mean is. Half of a tick's rows take back ones that are there, the others come.
Both answers are compared. The load is one tick of all rows, given as an Arrow table.

    python -m benches.columns [OPERATOR ...] [--rows 500000]
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

import penstock as ps
from benches.measure import LiveTable
from penstock import col

if TYPE_CHECKING:
    from collections.abc import Callable


class Item(NamedTuple):
    id: int
    group: int
    amount: int
    name: str


class Group(NamedTuple):
    group: int
    label: str


Stream = ps.Stream[Any, Any, Any, Any]

OPERATORS: dict[str, Callable[[Stream, Stream], Stream]] = {
    "join": lambda items, groups: items.join(groups, on="group"),
    "left join": lambda items, groups: items.join(groups, on="group", how="left"),
    "aggregate": lambda items, groups: items.group_by("group").agg(n=ps.count(), total=ps.sum(col.amount)),
    "distinct": lambda items, groups: items.select("group", "amount").distinct(),
    "top-k": lambda items, groups: items.top_k(3, by=col.amount.desc(), per=col.group),
    "max": lambda items, groups: items.group_by("group").agg(most=ps.max(col.amount)),
    "rank": lambda items, groups: items.with_columns(
        rank=ps.rank().over(partition_by="group", order_by=col.amount.desc())
    ),
}
SIZES = (1, 10, 100, 1_000, 10_000, 100_000)


def flow_of(operator: str) -> ps.Flow:
    flow = ps.Flow(operator.replace(" ", "_"))
    items, groups = flow.table("items", Item), flow.table("groups", Group)
    answer = OPERATORS[operator](items, groups)
    flow.sink("out", answer)
    return flow


class Business:
    """Rows that come and go; every tenth of them in a group of its own."""

    def __init__(self, rows: int) -> None:
        self._choice = random.Random(7)
        self._groups = max(1, rows // 10)
        self.there: list[Item] = []
        self._next = 0
        self.load = self.come(rows)
        self.there = list(self.load)
        self.groups = [Group(number, f"group {number}") for number in range(self._groups)]

    def come(self, count: int) -> list[Item]:
        choice = self._choice
        made = [
            Item(
                self._next + at,
                choice.randrange(self._groups),
                choice.randrange(1_000_000),
                f"item {at % 97}",
            )
            for at in range(count)
        ]
        self._next += count
        return made

    def tick(self, count: int) -> list[ps.Change[Item]]:
        gone: list[Item] = []
        for _ in range(count // 2):
            at = self._choice.randrange(len(self.there))
            self.there[at], self.there[-1] = self.there[-1], self.there[at]
            gone.append(self.there.pop())
        new = self.come(count - count // 2)
        self.there += new
        return [*map(ps.delete, gone), *map(ps.insert, new)]


def table_of(changes: list[ps.Change[Any]]) -> pa.Table:
    columns = list(zip(*(change.row for change in changes), strict=True))
    names = type(changes[0].row)._fields
    weights = pa.array([change.weight for change in changes], pa.int64())
    return pa.table([*map(pa.array, columns), weights], names=[*names, "weight"])


def spent(work: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    before = time.process_time()
    made = work()
    return (time.process_time() - before) * 1000, made


def ticks_of(size: int) -> int:
    return 30 if size < 1_000 else 16 if size < 100_000 else 6


def measure(operator: str, rows: int, shown: LiveTable) -> None:
    business = Business(rows)
    engines = {way: ps.Engine(flow_of(operator), columnar=way) for way in ("never", "auto")}
    load = [table_of([ps.insert(row) for row in some]) for some in (business.groups, business.load)]
    loads = {way: spent(lambda e=e: e.tick(groups=load[0], items=load[1]))[0] for way, e in engines.items()}
    shown.add(operator, "load", *_cells(*([each] for each in loads.values())))
    for size in SIZES:
        taken: dict[str, list[float]] = {way: [] for way in engines}
        for number in range(ticks_of(size) + 1):
            changes = business.tick(size)
            given: dict[str, Any] = {"never": changes, "auto": table_of(changes) if size >= 100 else changes}
            made: dict[str, Any] = {}
            for way, engine in engines.items():
                milliseconds, out = spent(lambda e=engine, g=given[way]: e.tick(items=g)["out"])
                made[way] = out
                if number:  # what a size costs for the first time is not what it costs
                    taken[way].append(milliseconds)
            assert Counter(made["never"].raw) == Counter(made["auto"].raw), operator
        shown.add(operator, f"{size:,}", *_cells(*taken.values()))


def _cells(rows: list[float], columns: list[float]) -> list[str]:
    means = [statistics.mean(each) for each in (rows, columns)]
    worst = [max(each) for each in (rows, columns)]
    return [
        *(f"{each:,.2f}" for pair in zip(means, worst, strict=True) for each in pair),
        f"{means[0] / means[1]:,.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--rows", type=int, default=500_000)
    given = parser.parse_args()
    shown = LiveTable(
        f"One operator over {given.rows:,} rows, processor milliseconds",
        "operator", "changed rows", "rows", "worst", "columns", "worst", "times cheaper",
    )  # fmt: skip
    for operator in OPERATORS:
        if not given.operators or operator in given.operators:
            measure(operator, given.rows, shown)


if __name__ == "__main__":
    main()
