"""What a tick costs as the state grows: some changes per tick against 100,000 groups and many more.

The flow keeps a sum and a count per key. Its state is built by large ticks; then
small ones change keys drawn at random from all of it, on the same checkpoint.
Medians of the small ticks; the ratio to the first size is of processor time. State MB are those of the
last commit's files.

    python benches/spark_state.py [--keys 100000,2000000] [--changes 1,1000] [--ticks 20]
                                 [--quick]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import headrace as hr
from benches.measure import Table
from headrace import col, io

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_UP = 4
AT_ONCE = 1_000_000


class Payment(NamedTuple):
    account: int
    cents: int


def balances() -> hr.Flow:
    flow = hr.Flow("balances")
    payments = flow.source("payments", Payment)
    sums = payments.group_by(col.account).agg(balance=hr.sum(col.cents), payments=hr.count())
    flow.sink("balances", sums)
    return flow


def ticks(spark: SparkSession, folder: Path, way: Any) -> list[Any]:
    """Run what is new in the folder; the progress of each tick."""
    frame = spark.readStream.schema("account long, cents long").option("maxFilesPerTrigger", 1)
    progress: list[Any] = []
    hr.spark.run(
        balances(),
        spark,
        sources={"payments": hr.spark.Frame(frame.parquet(str(folder / "payments")))},
        sinks={"balances": io.Changelog(folder / "balances")},
        checkpoint=folder / "checkpoint",
        on_tick=progress.append,
        way=way,
    )
    return progress


def write(folder: Path, number: int, accounts: list[int] | range) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.table({"account": list(accounts), "cents": [7] * len(accounts)})
    path = folder / "payments"
    path.mkdir(exist_ok=True)
    pq.write_table(rows, path / f".{number:06d}")
    (path / f".{number:06d}").rename(path / f"{number:06d}.parquet")


def measured(
    spark: SparkSession, keys: int, changes: int, count: int
) -> tuple[float, float, float, float, int]:
    """Seconds that the state took to build; of a small tick the median seconds, and those of all processors;
    the most memory of a worker, and the bytes of state.
    """
    choice = random.Random(5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = -(-keys // AT_ONCE)
        for number in range(built):
            write(folder, number, range(number * AT_ONCE, min((number + 1) * AT_ONCE, keys)))
        start = time.perf_counter()
        ticks(spark, folder, "stages")
        building = time.perf_counter() - start
        for number in range(built, built + WARM_UP + count):
            write(folder, number, [choice.randrange(keys) for _ in range(changes)])
        small = ticks(spark, folder, "one task")
        seconds = statistics.median(p.seconds for p in small[WARM_UP:])
        spent = statistics.median(p.cost.total for p in small[WARM_UP:])
        return building, seconds, spent, small[-1].cost.memory / 1e6, small[-1].state_bytes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", default="100000,2000000", help="sizes of the state, with commas between")
    parser.add_argument("--changes", default="1000", help="per small tick, with commas between")
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    given = parser.parse_args()
    if given.quick:
        given.keys, given.ticks = "2000,50000", 5
    spark = hr.spark.session(memory="2g")
    table = Table(
        "Small ticks on a state", "keys", "changes", "state, MB", "built in s", "ms per tick", "CPU ms",
        "to the first", "most memory, MB",
    )  # fmt: skip
    first: dict[int, float] = {}
    for keys, changes in product(*(map(int, text.split(",")) for text in (given.keys, given.changes))):
        building, seconds, spent, memory, size = measured(spark, keys, changes, given.ticks)
        ratio = spent / first.setdefault(changes, spent)
        times = f"{seconds * 1000:,.0f}", f"{spent * 1000:,.0f}"
        table.add(f"{keys:,}", f"{changes:,}", size / 1e6, building, *times, ratio, memory)
    table.show()
    spark.stop()


if __name__ == "__main__":
    main()
