"""TPC-H kept up to date, in this process or on Spark, against recomputing it with Spark.

Per query: processor seconds of the initial load from Parquet files, of a tick that changes 0.1 % of the
orders (they come with their line items, or go) and the accounts of a customer and a supplier, of a tick in
which nothing comes (the floor), and of Spark's own batch query over the same files, all processes together.
Medians of the ticks and of Spark's later runs. Net is a tick without the floor. On Spark the load includes
the start of the run; a smaller one warms up processes and JVM before.

    python -m benches.tpch [QUERY ...] [--on spark] [--scale 0.1] [--ticks 10]
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow.parquet import read_table

import penstock as ps
from benches.measure import LiveTable
from benches.measure.processes import processor_seconds
from examples.tpch.tables import TABLES, Business, Changes, generate, queries, read, write_ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from pyspark.sql import SparkSession

EMPTY_TICKS = 6


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds of the load, of a tick of changes, and of an empty tick."""

    load: float
    tick: float
    floor: float

    @classmethod
    def of(cls, seconds: list[float]) -> Cost:
        """Take the load, then ticks of changes, then empty ones."""
        return cls(
            seconds[0],
            statistics.median(seconds[1:-EMPTY_TICKS]),
            statistics.median(seconds[-EMPTY_TICKS:]),
        )


def timed(clock: Callable[[], float], work: Callable[[], object]) -> float:
    before = clock()
    work()
    return clock() - before


def in_process(flow: ps.Flow, folder: Path, ticks: list[Changes]) -> Cost:
    engine = ps.Engine(flow)
    sources = engine.program.graph.sources.keys()

    def tick(given: Changes) -> float:
        rows: Any = {table: rows for table, rows in given.items() if table in sources}
        return timed(time.process_time, lambda: engine.tick(**rows))

    def fill() -> None:
        engine.tick(**{table: loaded_frame(folder, table, engine.columns_read(table)) for table in sources})

    return Cost.of([timed(time.process_time, fill), *map(tick, ticks)])


def on_spark(spark: SparkSession, flow: ps.Flow, folder: Path, ticks: list[Changes], verbose: bool) -> Cost:
    """Run a flow with files as sources, in a checkpoint of its own."""
    place = folder / "run"
    tables = flow.graph().sources.keys()
    write_ticks(place / "in", folder, tables, ticks)
    moments = [processor_seconds()]

    def note(progress: ps.spark.Progress) -> None:
        moments.append(processor_seconds())
        if verbose and progress.tick in {1, len(ticks) // 2, 1 + len(ticks)}:
            print(
                f"    tick {progress.tick}, {progress.way}: {moments[-1] - moments[-2]:.2f}, {progress.cost}"
            )

    ps.spark.run(
        flow,
        spark,
        sources={name: ps.io.ParquetFiles(place / "in" / name, files_per_tick=1) for name in tables},
        sinks={"answer": ps.io.Changelog(place / "out")},
        checkpoint=place / "checkpoint",
        on_tick=note,
    )
    shutil.rmtree(place)
    return Cost.of([after - before for before, after in pairwise(moments)])


def loaded_frame(folder: Path, table: str, columns: Set[str]) -> Any:
    """Return the columns of a table that a query reads, as Spark does; one where it only counts the rows."""
    return read_table(folder / f"{table}.parquet", columns=sorted(columns) or TABLES[table].names[:1])


def recomputed(spark: SparkSession, text: str, repeats: int = 4) -> float:
    """Processor seconds of Spark's query."""
    again = [timed(processor_seconds, lambda: spark.sql(text).collect()) for _ in range(repeats)]
    return statistics.median(again[1:])


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
    parser.add_argument(
        "--verbose", action="store_true", help="on Spark, print what some ticks cost by phase"
    )
    given = parser.parse_args()
    spark = ps.spark.session(memory="2g")
    with tempfile.TemporaryDirectory() as name:
        small, folder = Path(name) / "small", Path(name) / "tables"
        generate(folder, given.scale)
        ticks, few = changes_of(folder, given.ticks), []
        if given.on == "spark":
            generate(small, 0.01)
            few = changes_of(small, 2)
        for table in TABLES:
            spark.read.parquet(str(folder / f"{table}.parquet")).createOrReplaceTempView(table)
        shown = LiveTable(
            f"TPC-H at scale {given.scale}, on {given.on}, processor milliseconds",
            "query", "load", "tick", "floor", "Spark", "Spark / tick", "Spark / net", "load / Spark",
        )  # fmt: skip
        for query, text in queries().items():
            if given.queries and query not in given.queries:
                continue
            flow = ps.sql(text, tables=TABLES, spark=spark)
            if given.on == "spark":
                on_spark(spark, flow, small, few, verbose=False)
                cost = on_spark(spark, flow, folder, ticks, given.verbose)
            else:
                cost = in_process(flow, folder, ticks)
            again = recomputed(spark, text)
            cells = [f"{seconds * 1000:,.1f}" for seconds in (cost.load, cost.tick, cost.floor, again)]
            net = max(cost.tick - cost.floor, 1e-3)
            shown.add(
                query, *cells, f"{again / cost.tick:,.1f}", f"{again / net:,.0f}", f"{cost.load / again:.1f}"
            )
    spark.stop()


if __name__ == "__main__":
    main()
