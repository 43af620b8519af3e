"""Latency of `headrace pipeline run --continuous`: from the moment a file appears to the published tables.

    PYTHONPATH=. python benches/pipeline_latency.py [--orders 200000] [--repeats 10] [--project FOLDER]

The project is examples/pipeline, ten tables. Each file brings one order, or a hundred, to its input folder by
a rename; published is when the link to the catalogue has moved. CPU seconds are those of the process, with
those of looking at files in between. The highest latency is that of the first file, for which the flows are
compiled.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.measure import Table
from benches.measure.processes import seconds_of
from examples.pipeline.make_input import add_customers, add_orders, customer_records
from tests.pipelines.test_example import EXAMPLE

RUN = [sys.executable, "-m", "headrace.cli", "pipeline", "run"]
ROWS = (1, 100)
_SETTLED = 0.5
"""Seconds after a publication in which the run ends and the watch begins again."""


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--orders", type=int, default=200_000)
    options.add_argument("--repeats", type=int, default=10)
    options.add_argument("--project", type=Path, help="a project that this bench has made, to go on with")
    given = options.parse_args()
    customers = max(10, given.orders // 50)
    with tempfile.TemporaryDirectory() as folder:
        project = given.project or Path(folder, "project")
        if not project.exists():
            make_project(project, given.orders, customers)
        headings = ("orders in a file", "seconds, median", "highest", "CPU seconds, median")
        table = Table(f"{given.orders:,} orders", *headings)
        for rows in ROWS:
            latencies, costs = measure(project, rows, customers, given.repeats)
            median = statistics.median(latencies)
            table.add(f"{rows}", median, max(latencies), statistics.median(costs))
        table.show()


def make_project(folder: Path, orders: int, customers: int) -> None:
    """Copy the example, make its input, and run it once, by Spark."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("input", "storage", "__pycache__"))
    for number in (1, 2):
        add_orders(folder / "input/orders", number, orders // 2, customers)
    add_customers(folder / "input/customers", 1, customer_records(1, customers, customers))
    subprocess.run(RUN, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def measure(project: Path, rows: int, customers: int, repeats: int) -> tuple[list[float], list[float]]:
    """Add files to a project that a process follows; return the latency and the CPU seconds of each."""
    current = project / "storage/catalog/current"
    latencies: list[float] = []
    costs: list[float] = []
    # Numbers of files never come again, also if the project is used again.
    first = time.time_ns() // 100_000_000
    with following(project) as process:
        for number in range(first, first + repeats):
            aside = project / "input/aside"
            add_orders(aside, number, rows, customers)
            before, cost, start = os.readlink(current), seconds_of(process), time.perf_counter()
            (aside / f"{number}.parquet").rename(project / "input/orders" / f"{number}.parquet")
            while os.readlink(current) == before:
                time.sleep(0.001)
            latencies.append(time.perf_counter() - start)
            time.sleep(_SETTLED)
            costs.append(seconds_of(process) - cost)
    return latencies, costs


@contextmanager
def following(project: Path) -> Iterator[int]:
    """Run `--continuous` in the block; yield the number of its process once it waits for files."""
    process = subprocess.Popen(
        [*RUN, "--continuous", "--every", "3600"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("following"):
                break
        yield process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


if __name__ == "__main__":
    main()
