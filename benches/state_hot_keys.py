"""One key with very many rows: what a tick that changes one of them writes, and how long it takes.

python benches/state_hot_keys.py [rows]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import headrace as hr
from headrace import Flow, col
from headrace.io import Rows

TICKS = 30


class Bid(NamedTuple):
    item: str
    price: int


class Item(NamedTuple):
    item: str
    owner: str


def join_of_added_rows(flow: Flow) -> None:
    flow.sink("out", flow.source("rows", Bid).join(flow.source("items", Item), on="item"))


def join_of_a_table(flow: Flow) -> None:
    flow.sink("out", flow.table("rows", Bid).join(flow.source("items", Item), on="item"))


def left_join_of_a_table(flow: Flow) -> None:
    flow.sink("out", flow.table("rows", Bid).join(flow.table("items", Item), on="item", how="left"))


def max_of_a_table(flow: Flow) -> None:
    flow.sink("out", flow.table("rows", Bid).group_by(col.item).agg(best=hr.max(col.price)))


def top_of_a_table(flow: Flow) -> None:
    flow.sink("out", flow.table("rows", Bid).top_k(3, by=col.price.desc(), per=col.item))


FLOWS: list[Callable[[Flow], None]] = [
    join_of_added_rows, join_of_a_table, left_join_of_a_table, max_of_a_table, top_of_a_table,
]  # fmt: skip


def measure(build: Callable[[Flow], None], rows: int) -> tuple[float, float]:
    """Median bytes written and seconds of a tick with one new row, its commit included."""
    flow = Flow("hot")
    build(flow)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = [Bid("hot", n) for n in range(rows)]
        batches = [first, *([Bid("hot", rows + 7 * n % 50)] for n in range(TICKS))]
        sources: dict[str, Any] = {"rows": Rows(batches)}
        if "items" in flow.graph().sources:
            sources["items"] = []
        written: list[int] = []
        seen: dict[str, int] = {}
        seconds: list[float] = []
        start = time.perf_counter()

        def look(_: object) -> None:
            nonlocal start
            seconds.append(time.perf_counter() - start)
            new = {p.name: p.stat().st_size for p in folder.glob("c/state/*/*") if p.name not in seen}
            seen.update(new)
            written.append(sum(new.values()))
            start = time.perf_counter()

        hr.run(flow, sources, {"out": []}, checkpoint=folder / "c", on_tick=look)
    return median(written[2:]), median(seconds[2:])


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for build in FLOWS:
        small, few = measure(build, 100), measure(build, rows)
        print(
            f"{build.__name__:24} {rows:,} rows: {few[0]:12,.0f} bytes {few[1] * 1e3:8.2f} ms a tick; "
            f"100 rows: {small[0]:8,.0f} bytes {small[1] * 1e3:8.2f} ms"
        )


if __name__ == "__main__":
    main()
