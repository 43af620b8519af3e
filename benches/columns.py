"""One operator over 500,000 rows of state: what a tick costs in rows, and where its state may lie in columns.

Per operator and number of changed rows: processor milliseconds of a tick, mean and worst, in dicts
(`columnar="never"`, rows given as changes) and as the engine decides (an Arrow table from 100 rows on), and
how many times cheaper the mean is. Half of a tick's rows take back ones that are there, the others come.
Both answers are compared. The load is one tick of all rows, given as an Arrow table. An upsert and a history
take records by a sequence instead, of which one in twenty deletes the row of its key.

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

import headrace as hr
from benches.measure import LiveTable
from headrace import col

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Item(NamedTuple):
    id: int
    group: int
    amount: int
    name: str


class Group(NamedTuple):
    group: int
    label: str


class Record(NamedTuple):
    id: int
    amount: int
    name: str
    at: int
    op: str


Stream = hr.Stream[Any, Any, Any, Any]

OPERATORS: dict[str, Callable[[Stream, Stream], Stream]] = {
    "join": lambda items, groups: items.join(groups, on="group"),
    "left join": lambda items, groups: items.join(groups, on="group", how="left"),
    "aggregate": lambda items, groups: items.group_by("group").agg(n=hr.count(), total=hr.sum(col.amount)),
    "sums of floats": lambda items, groups: items.group_by("group").agg(
        total=hr.sum(col.amount / 7), mean=hr.mean(col.amount / 7)
    ),
    "distinct": lambda items, groups: items.select("group", "amount").distinct(),
    "top-k": lambda items, groups: items.top_k(3, by=col.amount.desc(), per=col.group),
    "max": lambda items, groups: items.group_by("group").agg(most=hr.max(col.amount)),
    "rank": lambda items, groups: items.with_columns(
        rank=hr.rank().over(partition_by="group", order_by=col.amount.desc())
    ),
}
OWN: Any = {
    "row": hr.struct(id=col.id, amount=col.amount, name=col.name),
    "deleted": col.op == "D",
    "sequence": "at",
}
OF_RECORDS: dict[str, Callable[[Stream], Stream]] = {
    "upsert": lambda records: records.upsert("id", **OWN),
    "history": lambda records: records.history("id", **OWN),
}
SIZES = (1, 10, 100, 1_000, 10_000, 100_000)


def flow_of(operator: str) -> hr.Flow:
    flow = hr.Flow(operator.replace(" ", "_"))
    if operator in OF_RECORDS:
        flow.sink("out", OF_RECORDS[operator](flow.source("items", Record)))
        return flow
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

    def tick(self, count: int) -> list[hr.Change[Item]]:
        gone: list[Item] = []
        for _ in range(count // 2):
            at = self._choice.randrange(len(self.there))
            self.there[at], self.there[-1] = self.there[-1], self.there[at]
            gone.append(self.there.pop())
        new = self.come(count - count // 2)
        self.there += new
        return [*map(hr.delete, gone), *map(hr.insert, new)]


class Records:
    """Records of keys that are there, each later than those before."""

    def __init__(self, rows: int) -> None:
        self._choice = random.Random(7)
        self._rows = rows
        self._at = 0
        self.load = self._of(range(rows))

    def _of(self, keys: Iterable[int]) -> list[Record]:
        choice, self._at = self._choice, self._at + 1
        return [
            Record(
                key, choice.randrange(1_000_000), f"item {key % 97}", self._at,
                "D" if choice.randrange(20) == 0 else "U",
            )
            for key in keys
        ]  # fmt: skip

    def tick(self, count: int) -> list[Record]:
        return self._of(self._choice.sample(range(self._rows), count))


def table_of(changes: list[Any]) -> pa.Table:
    if isinstance(changes[0], Record):
        return pa.table([*map(pa.array, zip(*changes, strict=True))], names=[*Record._fields])
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
    business = Records(rows) if operator in OF_RECORDS else Business(rows)
    engines = {way: hr.Engine(flow_of(operator), columnar=way) for way in ("never", "auto")}
    if isinstance(business, Records):
        load = {"items": table_of(business.load)}
    else:
        given_first = {"items": business.load, "groups": business.groups}
        load = {name: table_of([hr.insert(row) for row in some]) for name, some in given_first.items()}
    loads = {way: spent(lambda e=e: e.tick(**load))[0] for way, e in engines.items()}
    shown.add(operator, "load", *_cells(*([each] for each in loads.values())))
    for size in SIZES:
        taken: dict[str, list[float]] = {way: [] for way in engines}
        for number in range(ticks_of(size) + 1):
            changes: Any = business.tick(size)
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
    for operator in (*OPERATORS, *OF_RECORDS):
        if not given.operators or operator in given.operators:
            measure(operator, given.rows, shown)


if __name__ == "__main__":
    main()
