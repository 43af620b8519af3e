"""Processor time of Nexmark queries on Spark, by process: driver, JVM, workers.

Each query reads Parquet files, one of each source per tick, through `headrace.spark.Frame` or (with
`--files`) through `io.ParquetFiles`, and writes a changelog. CPU seconds are per million events, warm-up left
out, children that have ended included. Beside it, in the same run: the in-process engine on the same ticks,
what plain Structured Streaming takes where it has the query, and the floor of a tick, which is an empty
`foreachBatch` with one `mapInArrow` that hands through what the query reads.

    python -m benches.spark_cost [QUERY ...] [--size 200000] [--ticks 10] [--files]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace as hr
from benches.contestants.spark_nexmark import STREAMED
from benches.measure import Table
from benches.measure.processes import below, processor_seconds, seconds_of
from benches.spark_throughput import arriving
from examples.nexmark.events import SOURCES
from examples.nexmark.files import write_chunks
from examples.nexmark.generator import Generator
from examples.nexmark.queries import QUERIES
from headrace import io

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

WARM_UP = 3
ASKED = ("q0", "q3", "q4", "q5", "q7", "q8", "q9", "q11", "q15", "q17", "q18", "q20")


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds so far, or between two moments."""

    driver: float
    jvm: float
    workers: float

    @classmethod
    def now(cls) -> Cost:
        jvm = workers = 0.0
        for process, name in below(os.getpid()):
            if name == "java":
                jvm += seconds_of(process, ended=False)
            else:
                workers += seconds_of(process)
        return cls(seconds_of(os.getpid(), ended=False), jvm, workers)

    @property
    def total(self) -> float:
        return self.driver + self.jvm + self.workers

    def since(self, before: Cost, events: int) -> Cost:
        """Per million of the events since another moment."""
        times = 1e6 / events
        return Cost(
            (self.driver - before.driver) * times,
            (self.jvm - before.jvm) * times,
            (self.workers - before.workers) * times,
        )


def after_warm_up(moments: list[Cost], size: int) -> Cost:
    return moments[-1].since(moments[WARM_UP - 1], size * (len(moments) - WARM_UP))


def ours(spark: SparkSession, query: str, folder: Path, out: Path, size: int, *, files: bool) -> Cost:
    """A tick per file of each source."""
    moments: list[Cost] = []
    asked = QUERIES[query]
    frames = arriving(spark, folder)
    sources: dict[str, Any] = {
        name: io.ParquetFiles(folder / name, files_per_tick=1) if files else hr.spark.Frame(frames[name])
        for name in asked.sources
    }
    hr.spark.run(
        asked.flow(),
        spark,
        sources=sources,
        sinks={query: io.Changelog(out / "changes")},
        checkpoint=out / "checkpoint",
        on_tick=lambda _: moments.append(Cost.now()),
    )
    return after_warm_up(moments, size)


def streamed(frame: DataFrame, out: Path, size: int, do: Callable[[DataFrame, int], object] | None) -> Cost:
    """A query of Structured Streaming, to Parquet files or to a function."""
    moments: list[Cost] = []

    def batch(rows: DataFrame, number: int) -> None:
        if do is None:
            rows.write.parquet(str(out / "rows" / str(number)))
        else:
            do(rows, number)
        moments.append(Cost.now())

    writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(out / "plain"))
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    return after_warm_up(moments, size)


def pass_through(rows: DataFrame, _: int) -> None:
    def same(batches: Iterator[Any]) -> Iterator[Any]:
        return batches

    rows.mapInArrow(same, rows.schema).write.format("noop").mode("append").save()


def in_process(query: str, size: int, ticks: int) -> float:
    """CPU seconds per million events of the in-process engine, rows already there."""
    asked, generator = QUERIES[query], Generator()
    engine = hr.Engine(asked.flow())
    took = 0.0
    for tick in range(ticks + WARM_UP):
        rows = {
            name: generator.rows(name, tick * size, (tick + 1) * size)
            for name in SOURCES
            if name in asked.sources
        }
        before = processor_seconds()
        engine.tick(**rows)
        if tick >= WARM_UP:
            took += processor_seconds() - before
    return took * 1e6 / (size * ticks)


def compare(queries: list[str], size: int, ticks: int, *, files: bool) -> None:
    table = Table(
        f"CPU seconds per 1M events, {size:,} per tick",
        "query", "driver", "JVM", "workers", "all", "floor", "in-process", "times", "plain", "times",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_chunks(folder, size * (ticks + WARM_UP), chunk=size, format="parquet")
        alone = {query: in_process(query, size, min(ticks, 5)) for query in queries}
        spark = hr.spark.session(memory="2g")
        for query in queries:
            out = folder / query
            mine = ours(spark, query, folder, out, size, files=files)
            streams = arriving(spark, folder)
            read = [streams[source] for source in QUERIES[query].sources]
            floor = sum(
                streamed(frame, out / str(at), size, pass_through).total for at, frame in enumerate(read)
            )
            plain = (
                streamed(STREAMED[query](streams), out / "streamed", size, None).total
                if query in STREAMED
                else None
            )
            table.add(
                query, mine.driver, mine.jvm, mine.workers, mine.total, floor, alone[query],
                mine.total / alone[query] if alone[query] else "-", "-" if plain is None else plain,
                "-" if plain is None else mine.total / plain,
            )  # fmt: skip
            print(f"{query}: {mine}", flush=True)
        spark.stop()
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("queries", nargs="*", default=list(ASKED))
    parser.add_argument("--size", type=int, default=200_000)
    parser.add_argument("--ticks", type=int, default=10)
    parser.add_argument("--files", action="store_true", help="read by io.ParquetFiles instead of Frame")
    given = parser.parse_args()
    compare(given.queries, given.size, given.ticks, files=given.files)


if __name__ == "__main__":
    main()
