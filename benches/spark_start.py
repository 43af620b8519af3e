"""Starts and memory: `headrace run` of a flow of one row on Spark, and what processes take during q4.

Cold is a start without the archive of classes that `python -m headrace.spark`
makes, warm one with it; plain is the time of `python -c "import headrace"` and of the
same flow in-process, for comparison. Memory is the resident set (RSS, `/proc`) of the
driver's Python, of the JVM and of the workers' Pythons together, the most seen while
q4 runs; pages that processes share count in each.

    python benches/spark_start.py [--repeats 3] [--quick]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import headrace as hr
from benches.measure import Table
from benches.measure.processes import below, resident
from examples.nexmark.files import write_chunks
from examples.nexmark.queries import q4
from headrace import io

FLOW = """
import headrace as hr

flow = hr.Flow("one row")
flow.sink("out", flow.source("numbers", int).filter(hr.col.value > 0))
"""


def start_seconds(folder: Path, arguments: list[str], cache: Path | None, repeats: int) -> float:
    """Median seconds from the start of a process to its end."""
    environment = dict(os.environ) | ({} if cache is None else {"HEADRACE_CACHE": str(cache)})
    took: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(arguments, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def starts(repeats: int) -> None:
    table = Table("From the start of the process to its end", "what", "seconds")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one.py").write_text(FLOW)
        (folder / "numbers").mkdir()
        (folder / "numbers" / "1.json").write_text('{"value": 1}\n')
        run = [sys.executable, "-m", "headrace.cli", "run", "one.py:flow", "--source", "numbers=json:numbers"]
        archive = folder / "cache"
        made = [sys.executable, "-m", "headrace.spark"]
        importing = [sys.executable, "-c", "import headrace"]
        table.add("import headrace", start_seconds(folder, importing, None, repeats))
        table.add("headrace run, in-process", start_seconds(folder, run, None, repeats))
        spark = [*run, "--on", "spark"]
        table.add("headrace run --on spark, cold", start_seconds(folder, spark, archive, repeats))
        table.add("python -m headrace.spark (once)", start_seconds(folder, made, archive, 1))
        table.add("headrace run --on spark, warm", start_seconds(folder, spark, archive, repeats))
    table.show()


class Watch(threading.Thread):
    """The most memory seen: of this process, the JVM, the Python workers together, and how many they were."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = [0, 0, 0, 0]
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.2):
            others = below(os.getpid())
            workers = [resident(number) for number, name in others if name != "java"]
            machines = [resident(number) for number, name in others if name == "java"]
            now = (resident(os.getpid()), sum(machines), sum(workers), len(workers))
            self.most = list(map(max, self.most, now))


def memory(ticks: int, size: int) -> None:
    spark = hr.spark.session()
    watch = Watch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_chunks(folder, ticks * size, chunk=size)
        watch.start()
        hr.spark.run(
            q4.flow(),
            spark,
            sources={s: io.JsonFiles(folder / s, files_per_tick=1) for s in ("auctions", "bids")},
            sinks={"q4": io.Changelog(folder / "changes")},
            checkpoint=folder / "checkpoint",
        )
        watch.ended.set()
        watch.join()
    spark.stop()
    driver, jvm, workers, count = watch.most
    table = Table(f"Memory during q4, {ticks} ticks of {size:,} events", "process", "MB at most")
    table.add("driver, Python", f"{driver / 1e6:,.0f}")
    table.add("JVM (heap at most 1 GB)", f"{jvm / 1e6:,.0f}")
    table.add(f"Python daemon and workers ({count})", f"{workers / 1e6:,.0f}")
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    given = parser.parse_args()
    if not given.quick:
        starts(given.repeats)
    memory(*((4, 1_000) if given.quick else (15, 10_000)))


if __name__ == "__main__":
    main()
