"""`kill -9` of the driver at any moment, and a restart: the output holds exactly the right rows."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
FILES, KILLS, WAYS = 14, 4, ("one task", "stages")

DRIVER = """
import sys
from pathlib import Path
import penstock as ps
import penstock.spark
from penstock import io
from tests.spark.streamed_flows import closing_prices

folder = Path(sys.argv[1])

spark = penstock.spark.session()
print("jvm", spark.sparkContext._gateway.proc.pid, flush=True)
flow = closing_prices()
penstock.spark.run(
    flow, spark, shards=2, checkpoint=folder / "checkpoint", way=sys.argv[2],
    sources={name: io.JsonFiles(folder / name, files_per_tick=1) for name in flow.graph().sources},
    sinks={
        "averages": io.TableFiles(folder / "averages", key="category", buckets=2),
        "high": io.Changelog(folder / "high"),
    },
    on_tick=lambda progress: print("tick", progress.tick, flush=True),
)
print("done", flush=True)
"""


def write_input(folder: Path, choice: random.Random) -> tuple[Counter[Any], Counter[Any]]:
    """Files of bids and auctions; what the sinks must hold in the end."""
    best: dict[int, int] = {}
    high: Counter[Any] = Counter()
    for name in ("auctions", "bids"):
        (folder / name).mkdir(parents=True)
    for number in range(FILES):
        auctions = [{"id": 10 * number + n, "category": n % 4} for n in range(10)]
        bids = [{"auction": choice.randrange(10 * FILES), "price": choice.randrange(100)} for _ in range(40)]
        for name, rows in (("auctions", auctions), ("bids", bids)):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / name / f"{number:03d}.json").write_text(text)
        for bid in bids:
            best[bid["auction"]] = max(best.get(bid["auction"], 0), bid["price"])
            if bid["price"] > 60:
                high[bid["auction"], bid["price"]] += 1
    groups: dict[int, list[int]] = {}
    for auction, price in best.items():
        groups.setdefault(auction % 10 % 4, []).append(price)
    return Counter((c, sum(prices) / len(prices)) for c, prices in groups.items()), high


class Driver:
    """A driver process, its lines, and its JVM."""

    def __init__(self, folder: Path, way: str) -> None:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(folder), way],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.jvm = int(self.line().split()[1])

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(f"the driver ended: {self.process.stderr.read()}")
        return line

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.close()
        wait_for_end(self.jvm)

    def finish(self) -> None:
        while self.line() != "done\n":
            pass
        self.close()

    def close(self) -> None:
        self.process.communicate()


def wait_for_end(process: int) -> None:
    """Until a process that is no child of ours is gone."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], 60)[0], "the JVM outlives its driver"
    finally:
        os.close(handle)


def rows_of(files: Any) -> Counter[Any]:
    rows: Counter[Any] = Counter()
    for file in files:
        for record in pq.ParquetFile(file).read().to_pylist():
            weight = record.pop("weight", 1)
            rows[tuple(record.values())] += weight
    return rows


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to see the JVM end")
def test_after_kills_at_any_moment_the_output_holds_exactly_the_right_rows(tmp_path: Path) -> None:
    seed = int(os.environ.get("PENSTOCK_KILL_SEED", random.randrange(1 << 30)))
    print("PENSTOCK_KILL_SEED", seed)
    choice = random.Random(seed)
    averages, high = write_input(tmp_path, choice)
    for number in range(KILLS):
        driver = Driver(tmp_path, WAYS[number % 2])
        for _ in range(choice.randrange(0, 4)):
            driver.line()
        # Somewhere in the start, or in one of the ticks that follow.
        killer = threading.Timer(choice.uniform(0.0, 0.6), driver.process.kill)
        killer.start()
        driver.process.wait()
        driver.kill()
        seen = rows_of((tmp_path / "high").glob("tick=*/*.parquet"))
        assert seen == Counter({row: min(n, high[row]) for row, n in seen.items()})
    driver = Driver(tmp_path, "auto")
    driver.finish()
    assert rows_of((tmp_path / "averages" / "current").glob("*.parquet")) == averages
    assert rows_of((tmp_path / "high").glob("tick=*/*.parquet")) == high
