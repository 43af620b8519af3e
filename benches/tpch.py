"""TPC-H kept up to date in this process, against recomputing it with Spark.

Per query: processor seconds of the initial load from Parquet files, of a tick that changes 0.1 % of the
orders (they come with their line items, or go) and the accounts of a customer and a supplier, and of Spark's
own batch query over the same files, all processes together. Medians of the ticks and of Spark's later runs.

    python -m benches.tpch [QUERY ...] [--scale 0.1] [--ticks 10]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow.parquet import read_table

import penstock as ps
from benches.measure import Table
from benches.measure.processes import processor_seconds
from examples.tpch.tables import TABLES, Business, generate, queries, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def timed(clock: Callable[[], float], work: Callable[[], object]) -> float:
    before = clock()
    work()
    return clock() - before


def incremental(
    spark: SparkSession, text: str, folder: Path, loaded: dict[str, list[Any]], ticks: int
) -> tuple[float, float]:
    """Processor seconds of the load, and of a tick."""
    engine = ps.Engine(ps.sql(text, tables=TABLES, spark=spark))
    sources = engine.program.graph.sources.keys()

    def tick(given: dict[str, list[Any]]) -> float:
        rows = {table: rows for table, rows in given.items() if table in sources}
        return timed(time.process_time, lambda: engine.tick(**rows))

    def fill() -> None:
        engine.tick(**{table: read_table(folder / f"{table}.parquet") for table in sources})

    load = timed(time.process_time, fill)
    business = Business({table: list(rows) for table, rows in loaded.items()}, random.Random(7))
    return load, statistics.median(map(tick, business.ticks(ticks)))


def recomputed(spark: SparkSession, text: str, repeats: int = 4) -> float:
    """Processor seconds of Spark's query."""
    again = [timed(processor_seconds, lambda: spark.sql(text).collect()) for _ in range(repeats)]
    return statistics.median(again[1:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queries", nargs="*")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--ticks", type=int, default=10)
    given = parser.parse_args()
    table = Table(
        f"TPC-H at scale {given.scale}, processor milliseconds",
        "query", "load", "tick", "Spark", "Spark / tick", "load / Spark",
    )  # fmt: skip
    spark = ps.spark.session(memory="2g")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, given.scale)
        loaded = {name: read(folder, name) for name in TABLES}
        for name in TABLES:
            spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
        for query, text in queries().items():
            if given.queries and query not in given.queries:
                continue
            load, tick = incremental(spark, text, folder, loaded, given.ticks)
            again = recomputed(spark, text)
            cells = [f"{seconds * 1000:,.1f}" for seconds in (load, tick, again)]
            table.add(query, *cells, f"{again / tick:,.0f}", f"{load / again:.1f}")
    spark.stop()
    table.show()


if __name__ == "__main__":
    main()
