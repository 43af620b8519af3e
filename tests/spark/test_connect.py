"""Runs over Spark Connect, and what is the same on a classic session."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import Flow, col, io
from headrace.errors import NotOnSpark
from headrace.spark import Frame, run
from headrace.spark.session import is_local, is_remote, tasks_at_a_time
from headrace.spark.ticks import tick_sequence

pytestmark = pytest.mark.spark


class Sale(NamedTuple):
    shop: str
    price: int


def totals() -> Flow:
    flow = Flow("totals")
    sums = flow.source("sales", Sale).group_by(col.shop).agg(total=hr.sum(col.price))
    flow.sink("totals", sums.defer_tick())
    return flow


def write(folder: Path, number: int, shop: str, price: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text(json.dumps({"shop": shop, "price": price}) + "\n")


def told(spark: Any, folder: Path, **options: Any) -> list[tuple[int, set[tuple[Any, ...]]]]:
    """Per tick its changes."""
    found: list[tuple[int, set[tuple[Any, ...]]]] = []
    run(
        totals(),
        spark,
        sources={"sales": io.JsonFiles(folder / "in", files_per_tick=2)},
        sinks={"totals": lambda tick, changes: found.append((tick, set(changes.raw)))},
        shards=2,
        **options,
    )
    return found


def test_a_run_goes_on_after_what_its_commits_say_was_read(spark: Any, tmp_path: Path) -> None:
    for number, shop in enumerate("aba"):
        write(tmp_path / "in", number, shop, number)
    first = told(spark, tmp_path, checkpoint=tmp_path / "state")
    assert first[-1] == (3, {("a", 0, -1), ("a", 2, 1)})
    write(tmp_path / "in", 3, "a", 2)
    assert told(spark, tmp_path, checkpoint=tmp_path / "state") == [(5, {("a", 2, -1), ("a", 4, 1)})]


def test_a_streaming_data_frame_is_refused(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick_sequence, "is_remote", lambda _: True)
    frame = spark.readStream.format("rate").load().selectExpr("'a' AS shop", "value AS price")
    with pytest.raises(NotOnSpark, match="streaming DataFrame of Spark Connect"):
        run(totals(), spark, sources={"sales": Frame(frame)}, sinks={})


def test_a_session_says_what_it_is_by_public_means(spark: Any) -> None:
    assert not is_remote(spark)
    assert is_local(spark)
    assert tasks_at_a_time(spark) == spark.sparkContext.defaultParallelism
    for master, tasks in (("local[3]", 3), ("local[*]", os.cpu_count()), ("spark://a:7077", 2)):
        assert tasks_at_a_time(remote_session({"spark.master": master})) == tasks
    assert tasks_at_a_time(remote_session({"spark.default.parallelism": "7"})) == 7


def remote_session(settings: dict[str, str]) -> Any:
    kind = type("SparkSession", (), {"conf": settings})
    kind.__module__ = "pyspark.sql.connect.session"
    return kind()


CONNECTED = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.spark.test_connect import told, write

spark = SparkSession.builder.remote("local[1]").getOrCreate()
folder = Path(sys.argv[1])
write(folder / "in", 0, "a", 1)
write(folder / "in", 1, "b", 2)
print(told(spark, folder, checkpoint=folder / "state", way="stages"))
write(folder / "in", 2, "a", 3)
print(told(spark, folder, checkpoint=folder / "state"))
spark.stop()
"""


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("grpc", "grpc_status", "zstandard")),
    reason="Spark Connect needs packages that are not installed: pip install 'pyspark[connect]'",
)
def test_a_server_of_spark_connect_runs_the_same_ticks(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root), os.environ.get("PYTHONPATH", ""))),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", CONNECTED, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = done.stdout.splitlines()[-2:]
    assert first in ("[(2, {('a', 1, 1), ('b', 2, 1)})]", "[(2, {('b', 2, 1), ('a', 1, 1)})]")
    assert second in ("[(4, {('a', 1, -1), ('a', 4, 1)})]", "[(4, {('a', 4, 1), ('a', 1, -1)})]")
