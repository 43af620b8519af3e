"""Nexmark in this process: processor time per query, by how many events a tick has and how they arrive.

    python -m benches.nexmark [QUERY ...] [--sizes 1 100 10000 100000 1000000]

CPU seconds per million events (46 bids, 3 auctions, 1 person of 50) where a tick's events are lists of rows,
and where they are Arrow tables: with `columnar="never"` and with `"auto"`, the default. Three engines get
the same ticks in turn, and what each says is read as rows. The ratio is the median of the pairs of ticks,
"auto" to "never". Their answers are compared.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import headrace as hr
from benches.measure import Table
from examples.nexmark.events import SOURCES
from examples.nexmark.generator import Generator
from examples.nexmark.queries import QUERIES

if TYPE_CHECKING:
    from collections.abc import Mapping

SIZES = (1, 100, 10_000, 100_000, 1_000_000)
WARM_UP = 1


def ticks_of(size: int) -> int:
    """Ticks measured: enough events to tell them from noise, in as little time as that takes."""
    return max(2, min(500, 500_000 // size))


class Contestant:
    """An engine, and the processor seconds of each of its ticks."""

    def __init__(self, query: str, columnar: Any) -> None:
        self.engine = hr.Engine(QUERIES[query].flow(), columnar=columnar)
        self.took: list[float] = []

    def tick(self, given: Mapping[str, Any]) -> Counter[Any]:
        start = time.process_time()
        changes = self.engine.tick(**given)
        output = {name: sink.raw for name, sink in changes.items()}
        self.took.append(time.process_time() - start)
        return Counter((name, *change) for name, rows in output.items() for change in rows)


def measure(query: str, size: int, table: Table) -> None:
    """Add a line to the table: a query at a number of events per tick."""
    generator = Generator()
    sources: list[Any] = [name for name in SOURCES if name in QUERIES[query].sources]
    rows, never, auto = Contestant(query, "auto"), Contestant(query, "never"), Contestant(query, "auto")
    ticks = ticks_of(size)
    for tick in range(WARM_UP + ticks):
        start = tick * size
        lists = {name: generator.rows(name, start, start + size) for name in sources}
        tables = {name: generator.table(name, start, start + size) for name in sources}
        order = [(rows, lists), (never, tables), (auto, tables)]
        answers = [one.tick(given) for one, given in order[tick % 3 :] + order[: tick % 3]]
        assert answers[0] == answers[1] == answers[2], f"{query}: they disagree in tick {tick}"
        if size >= 10_000:
            gc.collect()
    per_million = [statistics.median(one.took[WARM_UP:]) * 1e6 / size for one in (rows, never, auto)]
    pairs = zip(auto.took[WARM_UP:], never.took[WARM_UP:], strict=True)
    ratio = statistics.median(a / b for a, b in pairs)
    table.add(f"{query}, {size:,}", *(f"{seconds:.2f}" for seconds in per_million), f"{ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queries", nargs="*", default=sorted(QUERIES, key=lambda name: int(name[1:])))
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    arguments = parser.parse_args()
    for query in arguments.queries:
        table = Table("CPU s per 1M events", "events per tick", "rows", "tables, never", "auto", "ratio")
        for size in arguments.sizes:
            measure(query, size, table)
        table.show()


if __name__ == "__main__":
    main()
