"""CPU seconds of a pipeline's second run: by Headrace, and by `spark-pipelines`, which recomputes its views.

    PYTHONPATH=. python benches/pipeline_refresh.py [--orders 10000000] [--changes 0.001] [--peer PATH]

The project is examples/pipeline; the peer's has views for the AUTO CDC tables, which fail there. Each run is
a process of its own, with its Java; starting costs what a dry run does, which analyses and runs nothing.
`tests/pipelines/test_peer.py` compares the tables.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.pipeline.make_input import add_customers, add_orders, customer_records
from tests.pipelines.peer import Peer
from tests.pipelines.test_example import EXAMPLE

OURS = [sys.executable, "-m", "headrace.cli", "pipeline"]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--orders", type=int, default=10_000_000)
    options.add_argument("--changes", type=float, default=0.001)
    options.add_argument("--peer", help="path of spark-pipelines, with pyspark[pipelines] installed")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), given.orders, given.changes, given.peer)


def compare(folder: Path, orders: int, changes: float, peer: str | None) -> None:
    ours, theirs = folder / "ours", folder / "theirs"
    shutil.copytree(EXAMPLE, ours, ignore=shutil.ignore_patterns("input", "storage", "__pycache__"))
    customers = max(1_000, orders // 100)
    files = max(1, orders // 1_000_000)
    for number in range(files):
        add_orders(ours / "input/orders", number + 1, orders // files, customers)
    add_customers(ours / "input/customers", 1, customer_records(1, customers, customers))
    projects: list[tuple[str, Path, Sequence[str], Mapping[str, str]]] = [
        ("Headrace", ours, OURS, os.environ)
    ]
    if peer:
        other = Peer(Path(peer))
        other.prepare(ours, theirs)
        projects.append(("spark-pipelines", theirs, other.command, other.environment))
    print("| runner | start, analysis | first run | second run | without start |\n|---|---|---|---|---|")
    results: dict[str, tuple[float, float]] = {}
    for name, at, command, environment in projects:
        results[name] = (
            cpu_of([*command, "dry-run"], at, environment),
            cpu_of([*command, "run"], at, environment),
        )
    add_orders(ours / "input/orders", files + 1, int(orders * changes), customers)
    records = customer_records(2, int(customers * changes), customers)
    add_customers(ours / "input/customers", 2, records)
    for name, at, command, environment in projects:
        start, first = results[name]
        second = cpu_of([*command, "run"], at, environment)
        print(f"| {name} | {start:.1f} | {first:.1f} | {second:.1f} | {second - start:.1f} |", flush=True)


def cpu_of(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> float:
    """Run a command in a folder; return the CPU seconds of all its processes."""
    log = folder / "run.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True
        )
        seconds: dict[int, float] = {}
        while process.poll() is None:
            seconds |= cpu_of_session(process.pid)
            time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text()[-3_000:]}")
    return sum(seconds.values())


def cpu_of_session(leader: int) -> dict[int, float]:
    """Return the CPU seconds so far of the processes of a session, by their numbers."""
    found: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            found[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


if __name__ == "__main__":
    main()
