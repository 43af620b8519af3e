"""Throughput of Nexmark queries on Spark: ours against what Spark itself offers, in one run.

Where Structured Streaming has a form of the query (q0 and q2 without state; q3, q5, q7, q8), that runs over
the same Parquet files, as many per micro-batch, and writes Parquet as ours does:
"rows/s" are events divided by the time from the end of the warm-up to the end.
Where it has none (q4), the batch query is run again over all files so far, which
is what is left to do without us: its cost follows the history, ours the tick.

    python benches/spark_throughput.py [--ticks 12] [--size 20000] [--history 100] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import headrace as hr
from benches.contestants.spark_nexmark import RECOMPUTED, STREAMED
from benches.measure import Table
from benches.measure.processes import processor_seconds
from examples.nexmark.events import SOURCES
from examples.nexmark.files import write_chunks
from examples.nexmark.queries import QUERIES
from headrace import io

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

WARM_UP = 3


def arriving(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """The sources as streams, one file of each per micro-batch."""
    return {
        name: spark.readStream.schema(schema_of(spark, folder / name))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        for name in SOURCES
    }


def schema_of(spark: SparkSession, folder: Path) -> Any:
    return spark.read.parquet(str(folder)).schema


class Took(NamedTuple):
    """Seconds by the clock, and of processor time of all processes: less at the mercy of other work."""

    clock: float
    processor: float


def now() -> Took:
    return Took(time.perf_counter(), processor_seconds())


def between(moments: list[Took]) -> list[Took]:
    """From each moment to the next."""
    return [Took(b.clock - a.clock, b.processor - a.processor) for a, b in pairwise(moments)]


def medians(of: Sequence[Took]) -> Took:
    return Took(statistics.median(t.clock for t in of), statistics.median(t.processor for t in of))


def ours(spark: SparkSession, query: str, folder: Path, out: Path) -> list[Took]:
    """What each tick took, Spark's own part included."""
    moments: list[Took] = []
    asked = QUERIES[query]
    frames = arriving(spark, folder)
    hr.spark.run(
        asked.flow(),
        spark,
        sources={name: hr.spark.Frame(frames[name]) for name in asked.sources},
        sinks={query: io.Changelog(out / "changes")},
        checkpoint=out / "checkpoint",
        on_tick=lambda _: moments.append(now()),
    )
    return between(moments)


def plain(spark: SparkSession, query: str, folder: Path, out: Path) -> list[float]:
    """Seconds of each micro-batch of Structured Streaming."""
    answer = STREAMED[query](arriving(spark, folder))
    writer = answer.writeStream.format("parquet").option("path", str(out / "rows")).outputMode("append")
    running = writer.option("checkpointLocation", str(out / "plain")).trigger(availableNow=True).start()
    running.awaitTermination()
    return [p["durationMs"]["triggerExecution"] / 1000 for p in running.recentProgress]


def recomputed(spark: SparkSession, query: str, folder: Path, repeats: int) -> Took:
    """What the batch query over all there is takes, once the JVM is warm: the median."""
    took: list[Took] = []
    for _ in range(repeats):
        frames = {name: spark.read.parquet(str(folder / name)) for name in SOURCES}
        start = now()
        RECOMPUTED[query](frames).write.format("noop").mode("overwrite").save()
        took += between([start, now()])
    return medians(took[1:])


def against_streaming(spark: SparkSession, queries: list[str], ticks: int, size: int) -> None:
    table = Table(
        f"{size:,} events per tick, against plain Structured Streaming",
        "query", "ours, events/s", "Spark, events/s", "ratio", "ms per tick", "ms of Spark",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_chunks(folder, size * (ticks + WARM_UP), chunk=size, format="parquet")
        for query in queries:
            mine = [t.clock for t in ours(spark, query, folder, folder / query)[WARM_UP - 1 :]]
            theirs = plain(spark, query, folder, folder / query)[WARM_UP:]
            print(f"{query}: {len(mine)} ticks, {len(theirs)} micro-batches", flush=True)
            # A micro-batch without data, which only moves windows on, is part of what a tick costs.
            rates = [size * ticks / sum(seconds) for seconds in (mine, theirs)]
            table.add(
                query, f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", rates[0] / rates[1],
                f"{statistics.median(mine) * 1000:,.0f}", f"{sum(theirs) / ticks * 1000:,.0f}",
            )  # fmt: skip
    table.show()


def against_recomputing(spark: SparkSession, history: int, size: int) -> None:
    table = Table(
        f"{size:,} events per tick, against the batch query over all ticks so far",
        "query", "ticks so far", "ours, ms", "recomputed, ms", "ratio", "CPU, ms", "recomputed", "ratio",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_chunks(folder, size * history, chunk=size, format="parquet")
        for query in RECOMPUTED:
            tick = medians(ours(spark, query, folder, folder / query)[-10:])
            again = recomputed(spark, query, folder, 4)
            cells: list[Any] = [query, history]
            for mine, theirs in zip(tick, again, strict=True):
                cells += [f"{mine * 1000:,.0f}", f"{theirs * 1000:,.0f}", theirs / mine]
            table.add(*cells)
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ticks", type=int, default=12)
    parser.add_argument("--size", type=int, default=20_000, help="events per tick")
    parser.add_argument("--history", type=int, default=100, help="ticks before the recomputed one")
    parser.add_argument("--queries", default=",".join(STREAMED))
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    given = parser.parse_args()
    if given.quick:
        given.ticks, given.size, given.history = 3, 2_000, 10
    spark = hr.spark.session()
    if given.queries:
        against_streaming(spark, given.queries.split(","), given.ticks, given.size)
    if given.history:
        against_recomputing(spark, given.history, max(given.size // 2, 100))
    spark.stop()


if __name__ == "__main__":
    main()
