"""How long a run takes to its first commit after a kill, with a million rows of state.

A driver builds the state and is killed (-9) in the tick after. Then a new one
goes on, and is compared with one that was ended in peace.

    PYTHONPATH=. python benches/spark_recovery.py [--rows 1000000] [--repeats 3]

Prints medians in seconds: from the start of the process to the session, to the
first commit, and to the second; and the ratio of the first commit to that of
the run that was ended in peace.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benches.measure import Table
from headrace.state.arranged_store import stored_entries
from headrace.state.checkpoint import Checkpoint
from headrace.state.manifest import as_it_is

CHANGES = 1_000
DRIVER = """
import sys, time
from pathlib import Path
import headrace as hr
import headrace.spark
from headrace import io
from benches.spark_state import balances

folder = Path(sys.argv[1])
spark = headrace.spark.session()
print("session", time.time(), flush=True)
headrace.spark.run(
    balances(), spark, shards=2, checkpoint=folder / "checkpoint",
    sources={"payments": io.ParquetFiles(folder / "payments", files_per_tick=1)},
    sinks={"balances": io.Changelog(folder / "balances")},
    on_tick=lambda progress: print("tick", time.time(), flush=True),
)
"""


def write(folder: Path, number: int, accounts: range) -> None:
    (folder / "payments").mkdir(parents=True, exist_ok=True)
    aside = folder / "payments" / f"{number:06d}.tmp"
    pq.write_table(pa.table({"account": list(accounts), "cents": [7] * len(accounts)}), aside)
    aside.rename(aside.with_suffix(".parquet"))


class Driver:
    """A driver process; `next` says how many seconds after its start it came to its next point."""

    def __init__(self, folder: Path) -> None:
        self._start = time.time()
        self._process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(folder)], stdout=subprocess.PIPE, text=True
        )

    def next(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the driver ended too early"
        return float(line.split()[1]) - self._start

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self._process.kill()
        self._process.communicate()


def opening(folder: Path) -> tuple[float, float]:
    """CPU seconds to open the checkpoint, and to read all files of state, one after the other."""
    began = time.process_time()
    with Checkpoint.open(folder / "checkpoint", as_it_is) as checkpoint:
        opened = time.process_time() - began
        assert checkpoint.last is not None
        began = time.process_time()
        for chain in checkpoint.last.chains.values():
            for _ in stored_entries(checkpoint.folder, chain, lambda slot: False):
                pass
            for slot, form in checkpoint.manifest.arranged(chain):
                for _ in form.pieces(checkpoint.folder, chain.arranged[slot]):
                    pass
        return opened, time.process_time() - began


def measured(folder: Path, number: int) -> list[float]:
    """Seconds to the session, to the first commit and to the second one of a run over two small files."""
    for at in range(2):
        write(folder, number + at, range(at, CHANGES + at))
    driver = Driver(folder)
    points = [driver.next() for _ in range(3)]
    driver.end()
    return points


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[list[float]]] = {"empty checkpoint": [], "after a peaceful end": []}
    found["after kill -9"] = []
    with tempfile.TemporaryDirectory(prefix="headrace-recovery-") as name:
        folder, files = Path(name), 100
        for _ in range(given.repeats):
            found["empty checkpoint"].append(measured(folder / "empty", 0))
            shutil.rmtree(folder / "empty")
        write(folder, 0, range(given.rows))
        driver = Driver(folder)
        driver.end()
        for _ in range(given.repeats):
            for kind in list(found)[1:]:
                if "kill" in kind:
                    for at in range(3):
                        write(folder, files + at, range(CHANGES))
                    driver = Driver(folder)
                    for _ in range(2):
                        driver.next()
                    driver.end(kill=True)
                found[kind].append(measured(folder, files + 10))
                files += 20
        opened, mapped = opening(folder)
    table = Table(
        f"Seconds to a commit, {given.rows:,} rows of state", "", "session", "first", "second", "to peaceful"
    )
    peaceful = statistics.median(points[1] for points in found["after a peaceful end"])
    for kind, runs in found.items():
        session, first, second = (statistics.median(column) for column in zip(*runs, strict=True))
        table.add(kind, session, first, second, first / peaceful)
    table.show()
    print(f"CPU: opening the checkpoint {opened:.2f} s; mapping and checking all state {mapped:.2f} s.")


if __name__ == "__main__":
    main()
