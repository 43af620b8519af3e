"""Runs that end at any moment: what is published is one cut, and the next run goes on from there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipelines import weighted_rows
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.pipeline_run import WarmProject, run_pipeline
from tests.pipelines.project import Project, dies
from tests.pipelines.test_example import add_input, assert_right, copied

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.verify]

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.table
def events():
    return spark.readStream.schema("id INT, v INT, at INT").json("in")

dp.create_streaming_table("latest")
dp.create_auto_cdc_flow("latest", "events", ["id"], "at")

@dp.materialized_view
def positive():
    return spark.table("latest").where("v > 0")
"""
SQL = """
CREATE MATERIALIZED VIEW totals AS SELECT v % 3 AS k, count(*) AS n, sum(v) AS v FROM positive GROUP BY v % 3;
CREATE MATERIALIZED VIEW sketch AS SELECT theta_sketch_estimate(theta_sketch_agg(id)) AS n FROM positive;
CREATE MATERIALIZED VIEW sketches AS
  SELECT v, theta_sketch_estimate(theta_sketch_agg(id)) AS n FROM positive GROUP BY v;
CREATE MATERIALIZED VIEW shared AS SELECT v FROM sketches WHERE n > 1;
"""


class Killed(BaseException):
    """What a process that is killed would have done next."""


@contextmanager
def killed_before(operation: int) -> Iterator[Callable[[], int]]:
    """Raise `Killed` before the given operation on names of files, and before all that follow."""
    count = 0
    names = ("rename", "replace", "link", "symlink", "unlink", "mkdir")
    before = {name: getattr(os, name) for name in names}

    def counting(name: str) -> Callable[..., Any]:
        def called(*arguments: Any, **keywords: Any) -> Any:
            nonlocal count
            count += 1
            if count >= operation:
                raise Killed
            return before[name](*arguments, **keywords)

        return called

    for name in names:
        setattr(os, name, counting(name))
    try:
        yield lambda: count
    finally:
        for name in names:
            setattr(os, name, before[name])


def expected(rows: list[dict[str, Any]]) -> dict[str, Counter[tuple[Any, ...]]]:
    latest: dict[int, tuple[int, int]] = {}
    for row in rows:
        latest[row["id"]] = max(latest.get(row["id"], (-1, -1)), (row["at"], row["v"]))
    positive = {key: v for key, (_, v) in latest.items() if v > 0}
    sums: dict[int, list[int]] = {}
    for v in positive.values():
        sums.setdefault(v % 3, []).append(v)
    return {
        "events": Counter((row["id"], row["v"], row["at"]) for row in rows),
        "latest": Counter((key, v, at) for key, (at, v) in latest.items()),
        "positive": Counter((key, v, latest[key][0]) for key, v in positive.items()),
        "totals": Counter((key, len(vs), sum(vs)) for key, vs in sums.items()),
        "sketch": Counter([(len(positive),)]),
        "sketches": Counter(Counter(positive.values()).items()),
        "shared": Counter((v,) for v, n in Counter(positive.values()).items() if n > 1),
    }


def published(project: Project) -> dict[str, Counter[tuple[Any, ...]]]:
    tables = ("events", "latest", "positive", "totals", "sketch", "sketches", "shared")
    return {table: project.rows(table) for table in tables}


# What is cut off in the middle leaves iterators open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.seeds(4, verify_from=1)
def test_a_run_that_ends_before_any_file_operation(
    tmp_path: Path, spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    if seed % 2 == 0:
        monkeypatch.setattr(weighted_rows, "FEW", 0)  # As if the changes were many: Spark applies them.
    project = Project.new(tmp_path / "project", spark, a_py=PYTHON, b_sql=SQL)
    if seed % 2 == 1:
        project = replace(project.by_spark, side_by_side=2)
    rows: list[dict[str, Any]] = []

    def more(number: int) -> None:
        new = [
            {"id": draw.randrange(8), "v": draw.randrange(-3, 9), "at": number * 100 + at}
            for at in range(draw.randrange(1, 9))
        ]
        rows.extend(new)
        project.add("in", number, new)

    more(1)
    with killed_before(1 << 60) as operations:
        project.run()
    most = operations()
    for number in range(2, 5):
        before = published(project)
        more(number)
        with killed_before(draw.randrange(1, most)), suppress(Killed):
            project.run()
        assert published(project) in (before, expected(rows))
        if draw.random() < 0.5:
            more(number + 10)
        project.run()
        assert published(project) == expected(rows)


DELIVERED = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

def read(folder):
    return spark.readStream.schema("id INT, v INT").json(folder)

dp.create_streaming_table("events")

@dp.append_flow(target="events")
def one():
    return read("one").select("id", "v", F.lit("one").alias("of"))

@dp.append_flow(target="events")
def other():
    return read("other").select("id", "v", F.lit("other").alias("of"))

@dp.materialized_view(format="changelog")
def counts():
    return spark.table("events").groupBy("of").agg(F.count("*").alias("n"), F.sum("v").alias("v"))

@dp.materialized_view(format="delta")
def largest():
    return spark.table("events").groupBy("id").agg(F.max("v").alias("v"))

dp.create_sink("files", "parquet", {"path": "out/files"})
dp.create_sink("table", "delta", {"path": "out/table"})

@dp.append_flow(target="files")
def to_files():
    return read("one")

@dp.append_flow(target="table")
def to_table():
    return read("other")
"""


@dataclass
class Delivered:
    """Rows that the flows of `DELIVERED` have read, by input, and what they make."""

    project: Project
    rows: dict[str, list[tuple[int, int]]]

    def add(self, folder: str, number: int, rows: list[tuple[int, int]]) -> None:
        self.rows[folder] += rows
        self.project.add(folder, number, [{"id": id_, "v": v} for id_, v in rows])

    def expected(self) -> dict[str, Counter[tuple[Any, ...]]]:
        events = [(id_, v, of) for of, rows in self.rows.items() for id_, v in rows]
        counts = [(of, len(rows), sum(v for _, v in rows)) for of, rows in self.rows.items() if rows]
        largest = {id_: max(v for other, v, _ in events if other == id_) for id_, _, _ in events}
        return {
            "events": Counter(events),
            "counts": Counter(counts),
            "largest": Counter(largest.items()),
            "changelog": Counter(counts),
            "delta": Counter(largest.items()),
            "files": Counter(self.rows["one"]),
            "table": Counter(self.rows["other"]),
        }

    def found(self) -> dict[str, Counter[tuple[Any, ...]]]:
        import deltalake
        import duckdb

        root = self.project.root
        ticks = f"read_parquet('{root}/storage/changelog/default/counts/tick=*/*.parquet')"
        added = duckdb.sql(f"SELECT of, n, v, sum(weight) FROM {ticks} GROUP BY ALL").fetchall()
        files = duckdb.sql(f"SELECT id, v FROM read_parquet('{root}/out/files/*.parquet')").fetchall()

        def delta(path: str) -> Counter[tuple[Any, ...]]:
            table = deltalake.DeltaTable(str(root / path)).to_pyarrow_table()
            return Counter((row["id"], row["v"]) for row in table.to_pylist())

        return {
            **{table: self.project.rows(table) for table in ("events", "counts", "largest")},
            "changelog": Counter({(of, n, v): int(weight) for of, n, v, weight in added if weight}),
            "delta": delta("storage/delta/default/largest"),
            "files": Counter(files),
            "table": delta("out/table"),
        }


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.seeds(3)
def test_runs_of_one_process_that_end_before_any_file_operation(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    draw, warm = random.Random(seed), WarmProject()
    project = Project.new(tmp_path / "project", spark, a_py=DELIVERED)
    made = Delivered(project, {"one": [], "other": []})

    def run() -> None:
        report = run_pipeline(project.spec, project.spark, warm=warm)
        assert not report.failed, [each.error for each in report.events.values() if each.error]

    def more(number: int) -> None:
        for folder in draw.sample(("one", "other"), draw.randrange(1, 3)):
            made.add(folder, number, [(draw.randrange(6), draw.randrange(99)) for _ in range(3)])

    made.add("one", 0, [(1, 1)])
    made.add("other", 0, [(2, 2)])
    run()
    more(1)
    with killed_before(1 << 60) as operations:
        run()
    most = operations()
    for number in range(2, 9):
        more(number)
        with killed_before(draw.randrange(1, most)), suppress(Killed):
            run()
        if draw.random() < 0.5:
            more(number + 10)
        run()
        assert made.found() == made.expected(), number


@pytest.mark.verify(ci=False)
def test_processes_that_are_killed(tmp_path: Path, spark: SparkSession) -> None:
    kill_processes(copied(tmp_path, spark), kills=3, seed=7)


def kill_processes(project: Project, kills: int, seed: int) -> None:
    """Kill runs of the example in processes of their own, and compare after each run that ends."""
    draw = random.Random(seed)
    add_input(project.root, 1, 300, 10)
    assert run_process(project.root, None) == 0
    killed, number = 0, 1
    while killed < kills:
        number += 1
        add_input(project.root, number, draw.randrange(1, 50), draw.randrange(1, 10))
        killed += run_process(project.root, draw.uniform(6.0, 16.0)) == -signal.SIGKILL
    assert run_process(project.root, None) == 0
    assert_right(project)


def run_process(root: Path, seconds: float | None) -> int:
    """Run the pipeline by its command; kill it with its Java after so many seconds. Return the exit code."""
    command = [sys.executable, "-m", "headrace.cli", "pipeline", "run"]
    process = subprocess.Popen(command, cwd=root, start_new_session=True, stdout=subprocess.DEVNULL)
    end = None if seconds is None else time.monotonic() + seconds
    while process.poll() is None and (end is None or time.monotonic() < end):
        time.sleep(0.05)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def test_what_a_dead_run_has_left_is_published_when_it_is_refreshed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=PYTHON, b_sql=SQL + OTHER)
    project.add("in", 1, [{"id": 1, "v": 1, "at": 1}])
    project.add("other", 1, [{"id": 4}])
    project.run()
    tables = ("events", "positive", "totals", "other")
    before = {name: project.rows(name) for name in tables}
    project.add("in", 2, [{"id": 2, "v": 2, "at": 2}])
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(PipelineCatalog, "commit", dies)
        project.run()
    project.add("other", 2, [{"id": 5}])
    project.run("other")
    assert {name: project.rows(name) for name in tables[:3]} == {name: before[name] for name in tables[:3]}
    assert project.rows("other") == Counter([(4,), (5,)])
    # What is refreshed brings along the versions that it has read.
    project.run("totals")
    assert project.rows("totals") == Counter([(1, 1, 1), (2, 1, 2)])
    assert project.rows("positive") == Counter([(1, 1, 1), (2, 2, 2)])
    assert project.rows("other") == Counter([(4,), (5,)])
    project.add("in", 3, [{"id": 1, "v": 4, "at": 3}])
    project.run()
    assert project.rows("totals") == Counter([(1, 1, 4), (2, 1, 2)])
    assert project.rows("events") == Counter([(1, 1, 1), (2, 2, 2), (1, 4, 3)])


OTHER = "CREATE MATERIALIZED VIEW other AS SELECT id FROM json.`other`;"
