"""TPC-H kept up to date, in this process or on Spark, against recomputing it with DuckDB and with Spark.

Per query, in processor seconds of all processes together: the first load from Parquet files, reading
included; the first tick after it, the median and the worst of all ticks, each of which changes 0.1 % of the
orders (they come with their line items, or go) and the accounts of a customer and a supplier; a tick in which
nothing comes (the floor); DuckDB's and Spark's query over the Parquet files; and, for ticks in process,
DuckDB's over its own tables in memory: what a user with one machine would do instead. DuckDB has two threads.
Memory is what the process grows by in the load, what the read tables held included where it is not given
back. On Spark the load includes the start of the run; a smaller one warms up processes and JVM before. Other
queries are medians of later runs.

    python -m benches.tpch [QUERY ...] [--on spark] [--scale 0.1] [--ticks 10] [--no-spark]
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import random
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from pyarrow.parquet import read_table

import headrace as hr
from benches.measure import LiveTable
from benches.measure.processes import processor_seconds, resident
from examples.tpch.tables import TABLES, Business, Changes, generate, queries, read, write_ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from pyspark.sql import SparkSession

EMPTY_TICKS = 6


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds of the load, of each tick of changes, and of an empty tick; bytes of memory."""

    load: float
    ticks: list[float]
    floor: float
    memory: int = 0

    @classmethod
    def of(cls, seconds: list[float], memory: int = 0) -> Cost:
        """Take the load, then ticks of changes, then empty ones."""
        floor = statistics.median(seconds[-EMPTY_TICKS:])
        return cls(seconds[0], seconds[1:-EMPTY_TICKS], floor, memory)

    @property
    def tick(self) -> float:
        return statistics.median(self.ticks)


def timed(clock: Callable[[], float], work: Callable[[], object]) -> float:
    before = clock()
    work()
    return clock() - before


def in_process(flow: hr.Flow, folder: Path, ticks: list[Changes]) -> Cost:
    engine = hr.Engine(flow, columnar="always", columnar_rows=100)
    sources = engine.program.graph.sources.keys()

    def tick(given: Changes) -> float:
        rows: Any = {table: rows for table, rows in given.items() if table in sources}
        return timed(time.process_time, lambda: engine.tick(**rows))

    def fill() -> None:
        engine.tick(**{table: loaded_frame(folder, table, engine.columns_read(table)) for table in sources})

    gc.collect()
    before = resident(os.getpid())
    load = timed(time.process_time, fill)
    memory = resident(os.getpid()) - before
    return Cost.of([load, *map(tick, ticks)], memory)


def on_spark(spark: SparkSession, flow: hr.Flow, folder: Path, ticks: list[Changes], verbose: bool) -> Cost:
    """Run a flow with files as sources, in a checkpoint of its own."""
    place = folder / "run"
    tables = flow.graph().sources.keys()
    write_ticks(place / "in", folder, tables, ticks)
    moments = [processor_seconds()]

    def note(progress: hr.spark.Progress) -> None:
        moments.append(processor_seconds())
        if verbose and progress.tick in {1, len(ticks) // 2, 1 + len(ticks)}:
            print(
                f"    tick {progress.tick}, {progress.way}: {moments[-1] - moments[-2]:.2f}, {progress.cost}"
            )

    hr.spark.run(
        flow,
        spark,
        sources={name: hr.io.ParquetFiles(place / "in" / name, files_per_tick=1) for name in tables},
        sinks={"answer": hr.io.Changelog(place / "out")},
        checkpoint=place / "checkpoint",
        on_tick=note,
    )
    shutil.rmtree(place)
    return Cost.of([after - before for before, after in pairwise(moments)])


def loaded_frame(folder: Path, table: str, columns: Set[str]) -> Any:
    """Return the columns of a table that a query reads, as Spark does; one where it only counts the rows."""
    return read_table(folder / f"{table}.parquet", columns=sorted(columns) or TABLES[table].names[:1])


def again(clock: Callable[[], float], query: Callable[[], object], repeats: int = 4) -> float:
    """Processor seconds of a query that has run before."""
    return statistics.median([timed(clock, query) for _ in range(repeats)][1:])


class InDuckDB:
    """The tables in DuckDB, in its memory or as files."""

    def __init__(self, folder: Path) -> None:
        self._files, self._tables = (duckdb.connect(config={"threads": 2}) for _ in range(2))
        for table in TABLES:
            path = folder / f"{table}.parquet"
            self._files.execute(f"CREATE VIEW {table} AS FROM read_parquet('{path}')")
            self._tables.execute(f"CREATE TABLE {table} AS FROM read_parquet('{path}')")

    def from_files(self, text: str) -> float:
        return again(time.process_time, lambda: self._files.execute(text).fetchall())

    def from_tables(self, text: str) -> float:
        return again(time.process_time, lambda: self._tables.execute(text).fetchall())


def changes_of(folder: Path, ticks: int) -> list[Changes]:
    business = Business({name: read(folder, name) for name in TABLES}, random.Random(7))
    return [*business.ticks(ticks), *({} for _ in range(EMPTY_TICKS))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queries", nargs="*")
    parser.add_argument("--on", choices=("process", "spark"), default="process")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--ticks", type=int, default=10)
    parser.add_argument("--no-spark", action="store_true", help="do not measure Spark's own queries")
    parser.add_argument(
        "--verbose", action="store_true", help="on Spark, print what some ticks cost by phase"
    )
    given = parser.parse_args()
    spark = hr.spark.session(memory="2g")
    with tempfile.TemporaryDirectory() as name:
        measure(spark, Path(name), given)
    spark.stop()


def measure(spark: SparkSession, place: Path, given: argparse.Namespace) -> None:
    small, folder = place / "small", place / "tables"
    generate(folder, given.scale)
    ticks, few = changes_of(folder, given.ticks), []
    if given.on == "spark":
        generate(small, 0.01)
        few = changes_of(small, 2)
    for table in TABLES:
        spark.read.parquet(str(folder / f"{table}.parquet")).createOrReplaceTempView(table)
    shown = LiveTable(
        f"TPC-H at scale {given.scale}, on {given.on}, processor milliseconds",
        "query", "load", "1st tick", "median", "worst", "floor", "MB", "DuckDB", "from files", "Spark",
        "load/files", "DuckDB/tick", "Spark/tick", "load/Spark",
    )  # fmt: skip
    duck = InDuckDB(folder)
    for query, text in queries().items():
        if given.queries and query not in given.queries:
            continue
        flow = hr.sql(text, tables=TABLES, spark=spark)
        if given.on == "spark":
            on_spark(spark, flow, small, few, verbose=False)
            cost = on_spark(spark, flow, folder, ticks, given.verbose)
        else:
            cost = in_process(flow, folder, ticks)
        files, tables = duck.from_files(text), duck.from_tables(text)
        own = math.nan
        if not given.no_spark:
            own = again(processor_seconds, lambda text=text: spark.sql(text).collect())
        seconds = (cost.load, cost.ticks[0], cost.tick, max(cost.ticks), cost.floor)
        cells = [*(f"{each * 1000:,.1f}" for each in seconds), f"{cost.memory / 1e6:,.0f}"]
        cells += [f"{each * 1000:,.1f}" for each in (tables, files, own)]
        ratios = (cost.load / files, tables / cost.tick, own / cost.tick, cost.load / own)
        shown.add(query, *cells, *(f"{ratio:,.1f}" for ratio in ratios))


if __name__ == "__main__":
    main()
