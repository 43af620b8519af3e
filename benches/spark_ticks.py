"""Ticks on Spark against the floor: an empty `foreachBatch` over the same files, in the same run.

The flow is Nexmark q4, an average of maxima, which plain Structured Streaming
refuses. The floor is what any streaming query pays: list the files, read them,
call a Python function with the batch, write Spark's checkpoint. The second floor
adds one Python stage that hands rows through, which no engine in Python is without.

    python benches/spark_ticks.py [--ticks 12] [--sizes 1000,10000]

Prints, per size, the median milliseconds per micro-batch, rows per second, and
the ratios to the floors. The first ticks (start of workers, code generation)
are left out of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace as hr
from examples.nexmark.files import write_chunks
from examples.nexmark.queries import q4
from headrace import io

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WARM_UP = 3
SOURCES = ("auctions", "bids")


def files(spark: SparkSession, folder: Path) -> DataFrame:
    """The files of both sources as one stream of text, one file of each per micro-batch."""
    frames = [
        spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / source)) for source in SOURCES
    ]
    return frames[0].union(frames[1])


def between(moments: list[float]) -> list[float]:
    """Seconds from each moment to the next."""
    return [later - earlier for earlier, later in pairwise(moments)]


def batch_seconds(frame: DataFrame, checkpoint: Path, each: Callable[[DataFrame], None]) -> list[float]:
    """Run a query to the end of its files: seconds from the end of each batch's function to the next."""
    moments: list[float] = []

    def timed(batch: DataFrame, number: int) -> None:
        each(batch)
        moments.append(time.perf_counter())

    query = (
        frame.writeStream.foreachBatch(timed)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return between(moments)


def nothing(batch: DataFrame) -> None:
    """The empty function."""


def one_stage(batch: DataFrame) -> None:
    """One Python stage that hands every row through, and one action."""

    def through(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    batch.mapInArrow(through, batch.schema).write.format("noop").mode("overwrite").save()


def headrace_ticks(spark: SparkSession, folder: Path, checkpoint: Path) -> tuple[list[float], list[str]]:
    """Seconds from tick to tick, Spark's own part included, and the way each one took."""
    moments: list[float] = []
    ways: list[str] = []

    def ticked(progress: Any) -> None:
        moments.append(time.perf_counter())
        ways.append(str(progress.way))

    hr.spark.run(
        q4.flow(),
        spark,
        sources={name: io.JsonFiles(folder / name, files_per_tick=1) for name in SOURCES},
        sinks={"q4": io.Changelog(folder / "averages")},
        checkpoint=checkpoint,
        on_tick=ticked,
    )
    return between(moments), ways[1:]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ticks", type=int, default=12)
    parser.add_argument("--sizes", default="1000,10000", help="events per tick, with commas between")
    given = parser.parse_args()
    spark = hr.spark.session()
    print("Nexmark q4, milliseconds per micro-batch (median)")
    header = (
        "events per tick",
        "empty",
        "one stage",
        "headrace",
        "rows/s",
        "to empty",
        "to one stage",
        "way",
    )
    print("{:>16} {:>8} {:>10} {:>9} {:>9} {:>9} {:>13}  {}".format(*header))
    for size in map(int, given.sizes.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_chunks(folder, size * (given.ticks + WARM_UP), chunk=size)
            empty = batch_seconds(files(spark, folder), folder / "c1", nothing)
            staged = batch_seconds(files(spark, folder), folder / "c2", one_stage)
            ours, ways = headrace_ticks(spark, folder, folder / "c3")
        floor, stage, tick = (
            statistics.median(seconds[WARM_UP:]) * 1000 for seconds in (empty, staged, ours)
        )
        print(
            f"{size:>16,} {floor:>8.0f} {stage:>10.0f} {tick:>9.0f} {size / tick * 1000:>9,.0f} "
            f"{tick / floor:>9.2f} {tick / stage:>13.2f}  {statistics.mode(ways[WARM_UP:])}"
        )
    spark.stop()


if __name__ == "__main__":
    main()
