"""Streaming tables over event time: they hold what Spark's own streams write in append mode."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.project import Project, event, states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.verify]

SOURCE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()

def read(delay="10 minutes"):
    read = spark.readStream.schema("id INT, v INT, ts STRING").json("in")
    return read.withColumn("at", F.to_timestamp("ts")).withWatermark("at", delay)
"""

WINDOWS = """
def hours(read):
    hours = read().groupBy(F.window("at", "1 hour"), "id").agg(F.count("*").alias("n"), F.sum("v").alias("v"))
    return hours.select(F.col("window.start").alias("hour"), "id", "n", "v")

def times(read):
    return read().groupBy("at").count()

def distinct(read):
    return read().dropDuplicates(["id", "at"]).select("id", "at")

def rows(read):
    return read().dropDuplicates().select("id", "v", "at")

def at_once(read):
    hours = read("0 seconds").groupBy(F.window("at", "1 hour")).count()
    return hours.select("window.start", "count")

def moments(read):
    return read("1 millisecond").groupBy("at").count()
"""

NAMES = ("hours", "times", "distinct", "rows", "at_once", "moments")

TABLES = "".join(
    f"\n@dp.table(name='{name}')\ndef {name}_table():\n    return {name}(read)\n" for name in NAMES
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def add(project: Project, number: int, rows: list[tuple[int, float]]) -> None:
    """Add a file of ids at minutes."""
    made = [
        {"id": id_, "v": at, "ts": (START + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")}
        for at, (id_, minutes) in enumerate(rows)
    ]
    project.add("in", number, made)


class AppendMode:
    """Spark's own streams over the same files, each run once for what came."""

    def __init__(self, project: Project) -> None:
        self.project, self.spark = project, project.spark
        import pyspark.sql.functions as functions

        self.queries: dict[str, Any] = {"F": functions}
        exec(WINDOWS, self.queries)

    def read(self, delay: str = "10 minutes") -> DataFrame:
        from pyspark.sql import functions as f

        read = self.spark.readStream.schema("id INT, v INT, ts STRING").json(f"{self.project.root}/in")
        return read.withColumn("at", f.to_timestamp("ts")).withWatermark("at", delay)

    def rows(self, name: str) -> Counter[tuple[Any, ...]]:
        """Run a stream until it has read all files, and return what it has written so far."""
        query: Callable[[Callable[..., DataFrame]], DataFrame] = self.queries[name]
        out, at = f"{self.project.root}/spark/{name}", f"{self.project.root}/checkpoints/{name}"
        frame = query(self.read)
        writer = frame.writeStream.option("checkpointLocation", at).trigger(availableNow=True)
        writer.format("parquet").outputMode("append").start(out).awaitTermination()
        found = self.spark.read.schema(frame.schema).parquet(out).toArrow()
        return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))


def held(project: Project, name: str) -> Counter[tuple[Any, ...]]:
    """Return the rows of a table with times in UTC."""
    found = project.spark.read.parquet(str(project.path(name))).toArrow()
    return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.mark.seeds(4, verify_from=1)
def test_streaming_tables_hold_what_append_mode_writes(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    draw = random.Random(seed)
    project = Project.new(tmp_path / "project", spark, a_py=SOURCE + WINDOWS + TABLES)
    theirs = AppendMode(project)
    for run in range(3):
        for file in range(2):
            # Some come too late, in files that Spark hands out in any order.
            minutes = [run * 90 + draw.randrange(-90, 90) for _ in range(draw.randrange(1, 60))]
            add(project, run * 2 + file, [(draw.randrange(3), max(0, at)) for at in minutes])
        report = project.run()
        assert set(states(report).values()) == {"COMPLETED"}, [str(e.error) for e in report.events.values()]
        for name in NAMES:
            assert held(project, name) == theirs.rows(name), (name, run)


def test_a_window_comes_once_when_it_is_closed(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=SOURCE + WINDOWS + TABLES)

    def hours() -> Counter[tuple[Any, ...]]:
        assert set(states(report).values()) == {"COMPLETED"}, [str(e.error) for e in report.events.values()]
        return Counter((row[0].hour, row[1], row[2]) for row in held(project, "hours").elements())

    add(project, 1, [(1, 50), (1, 5), (2, 30)])
    report = project.run()
    assert not hours()
    # Half past one less ten minutes: the first hour is over. The row of its end is on time.
    add(project, 2, [(1, 90), (1, 59)])
    report = project.run()
    assert hours() == Counter([(0, 1, 3), (0, 2, 1)])
    # Too late for the first hour; late, but in time for the second one.
    add(project, 3, [(2, 59), (2, 61)])
    report = project.run()
    updated = event(report, "hours").updated
    assert updated is not None
    assert (updated.rows_in, updated.why) == (2, "")
    add(project, 4, [(3, 600)])
    report = project.run()
    assert hours() == Counter([(0, 1, 3), (0, 2, 1), (1, 1, 1), (1, 2, 1)])
