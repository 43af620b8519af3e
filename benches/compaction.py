"""A changelog with and without compaction: folders and bytes left, time of a tick, time of reading it all.

2,000 ticks of 10 changes each (5 of 1,000 totals go up). A tick of a run takes longer, so the time from which
ticks may be merged is shortened here, and waits for readers are left out.

python benches/compaction.py [ticks] [synced]

synced: to disk, as in a run with a checkpoint.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import duckdb

from headrace.expr.row_classes import schema_of
from headrace.io import Changelog, SinkRequest, open_sink
from headrace.io.files import compaction

TICKS = 2000
TOTALS = 1000
compaction.SETTLED_SECONDS = compaction.LISTING_SECONDS = 0.0


class Total(NamedTuple):
    shop: int
    total: int


def changes(numbers: random.Random, totals: list[int]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for shop in numbers.sample(range(TOTALS), 5):
        rows += [(shop, totals[shop], -1), (shop, totals[shop] + 1, 1)]
        totals[shop] += 1
    return rows


def read(out: Path) -> tuple[float, int]:
    """Seconds to sum the changelog with DuckDB, the best of three, and the rows of the sum."""
    files = f"read_parquet('{out}/tick=*/*.parquet')"
    query = f"select shop, total from {files} group by all having sum(weight) > 0"
    times: list[float] = []
    rows = 0
    for _ in range(3):
        start = time.perf_counter()
        rows = len(duckdb.connect().execute(query).fetchall())
        times.append(time.perf_counter() - start)
    return min(times), rows


def measure(folder: Path, ticks: int, compact_after: int | None, synced: bool) -> None:
    request = SinkRequest("totals", schema_of(Total), folder / "spool" if synced else None)
    sink = open_sink(Changelog(folder / "out", compact_after), request)
    sink.recover(0)
    numbers, totals = random.Random(1), [0] * TOTALS
    plain, compacting = list[float](), list[float]()
    for tick in range(1, ticks + 1):
        rows, before = changes(numbers, totals), os.stat(folder / "out").st_ino
        start = time.perf_counter()
        sink.prepare(tick, rows)
        sink.publish(tick)
        took = 1e3 * (time.perf_counter() - start)
        (plain if os.stat(folder / "out").st_ino == before else compacting).append(took)
    sink.close()
    files = list((folder / "out").glob("tick=*/*"))
    size = sum(file.stat().st_size for file in files) / 1e3
    seconds, rows_now = read(folder / "out")
    print(
        f"compact_after={compact_after!s:>5}: {len(files):5,} files, {size:7,.0f} kB, tick median "
        f"{median(plain):.2f} ms, mean {sum(plain + compacting) / ticks:.2f}; {len(compacting)} compactions, "
        f"median {median(compacting or [0]):.0f} ms, most {max(compacting, default=0):.0f}; "
        f"{rows_now:,} rows read in {1e3 * seconds:,.0f} ms"
    )


def main() -> None:
    ticks = int(sys.argv[1]) if len(sys.argv) > 1 else TICKS
    synced = "synced" in sys.argv
    for compact_after in (None, 100, 10):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            measure(Path(folder), ticks, compact_after, synced)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        measure(Path(folder), ticks, None, False)
        start = time.perf_counter()
        done = compaction.compact(f"{folder}/out")
        seconds = time.perf_counter() - start
        print(f"headrace compact: {done.merged:,} folders into {done.into} in {seconds:.1f} s")


if __name__ == "__main__":
    main()
