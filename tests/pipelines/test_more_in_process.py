"""Inputs, flows and targets of many kinds without Spark: each leaves what Spark makes of all rows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipelines.definitions import Place
from headrace.pipelines.errors import NeedsSpark
from headrace.pipelines.pipeline_run import RunReport
from tests.pipelines.project import Project, event
from tests.pipelines.test_event_time import START, WINDOWS, AppendMode, held
from tests.pipelines.test_in_process import here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
"""


def without_spark(project: Project) -> RunReport:
    report = here(project, Place.HERE)
    errors = {name.table: each.error for name, each in report.events.items() if each.error}
    assert not errors, {name: f"{error} {getattr(error, 'why', '')}" for name, error in errors.items()}
    return report


def needs_spark(project: Project, table: str) -> str:
    error = event(here(project, Place.HERE), table).error
    assert isinstance(error, NeedsSpark), error
    return f"{error.what} {error.why}"


def assert_as_by_spark(project: Project, *tables: str) -> None:
    """Compare the rows of tables with those that Spark makes of all inputs."""
    found = {table: project.rows(table) for table in tables}
    assert not project.by_spark.run(full=tables).failed
    assert found == {table: project.rows(table) for table in tables}


def ids(*values: int) -> list[dict[str, Any]]:
    return [{"id": value} for value in values]


# --- flows ----------------------------------------------------------------------------------------


FLOWS = """
dp.create_streaming_table("events")

@dp.append_flow(target="events")
def one():
    return spark.readStream.schema("id INT").json("one").select("id", F.lit("one").alias("of"))

@dp.append_flow(target="events")
def other():
    read = spark.readStream.schema("id INT").json("other")
    return read.where("id > 1").select("id", F.lit("two").alias("of"))

@dp.append_flow(target="events")
def again():
    read = spark.readStream.schema("id INT").json("one")
    return read.select((F.col("id") * 10).alias("id"), F.lit("x").alias("of"))

@dp.materialized_view
def counts():
    return spark.table("events").groupBy("of").count()
"""


def test_several_flows_into_a_table(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + FLOWS)
    project.add("one", 1, ids(1))
    project.add("other", 1, ids(1, 2))
    project.run()
    project.add("one", 2, ids(3, 3))
    without_spark(project)
    project.add("other", 2, ids(1, 4))
    project.add("one", 3, ids(5))
    without_spark(project)
    expected = Counter({(2, "two"): 1, (4, "two"): 1})
    for value in (1, 3, 3, 5):
        expected.update([(value, "one"), (10 * value, "x")])
    assert project.rows("events") == expected
    assert_as_by_spark(project, "events", "counts")


def test_flows_that_have_read_different_parts_of_an_input_are_left_to_spark(
    tmp_path: Path, spark: SparkSession
) -> None:
    flows = HEAD + FLOWS
    project = Project.new(tmp_path / "project", spark, a_py=flows.partition("@dp.append_flow")[0])
    one, _, rest = flows.partition('@dp.append_flow(target="events")\ndef other')
    project.write("a.py", one)
    project.add("one", 1, ids(1))
    project.add("other", 1, ids(2))
    project.run()
    (project.root / "one/1.json").rename(project.root / "aside.json")
    project.write("a.py", f'{one}@dp.append_flow(target="events")\ndef other{rest}')
    project.add("one", 2, ids(3))
    project.run()
    project.add("one", 3, ids(4))
    assert "different parts" in needs_spark(project, "events")
    project.run()
    assert project.rows("events")[40, "x"] == 1


# --- inputs ---------------------------------------------------------------------------------------


PATHS = """
@dp.materialized_view
def by_pattern():
    return spark.read.schema("id INT").json("named/a?-*.json").groupBy("id").count()

@dp.table
def streamed():
    return spark.readStream.schema("id INT").json("named/a*.json")

@dp.materialized_view
def several():
    return spark.read.schema("id INT").json(["one", "two"]).groupBy("id").count()

@dp.materialized_view
def deep():
    read = spark.read.schema("id INT").option("recursiveFileLookup", True).option("pathGlobFilter", "*.json")
    return read.json("deep").groupBy("id").count()

@dp.materialized_view
def merged():
    return spark.read.schema("id INT, more STRING").option("mergeSchema", True).parquet("merged")

@dp.materialized_view
def one_file():
    return spark.read.schema("id INT").json("named/b.json").groupBy("id").count()
"""
PATH_TABLES = ("by_pattern", "streamed", "several", "deep", "merged", "one_file")


def test_files_by_patterns_in_several_folders_and_at_any_depth(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + PATHS)

    def put(name: str, *values: int) -> None:
        file = project.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f'{{"id": {value}}}\n' for value in values))

    def put_parquet(number: int, **columns: Any) -> None:
        (project.root / "merged").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), project.root / f"merged/{number}.parquet")

    put("named/a1-x.json", 1)
    put("named/b.json", 100)
    put("one/1.json", 2)
    put("two/1.json", 3)
    put("deep/1.json", 4)
    put("deep/p=1/2.json", 5)
    put_parquet(1, id=pa.array([1], pa.int32()))
    project.run()

    put("named/a2-.json", 6)
    put("named/a22-.json", 7)
    put("named/A1-x.json", 8)
    put("named/.a1-hidden.json", 9)
    put("named/b.json", 101)
    put("one/2.json", 2, 10)
    put("two/1.json", 11)
    put("deep/x/y/3.json", 12)
    put("deep/x/_no/3.json", 13)
    put("deep/x/3.txt", 14)
    put_parquet(2, id=pa.array([2], pa.int32()), more=["m"], other=[1.0])
    without_spark(project)
    assert project.rows("by_pattern") == Counter([(1, 1), (6, 1)])
    assert project.rows("several") == Counter([(2, 2), (10, 1), (11, 1)])
    assert project.rows("deep") == Counter([(4, 1), (5, 1), (12, 1)])
    assert_as_by_spark(project, *PATH_TABLES)

    (project.root / "named/a1-dir").mkdir()
    put("named/a1-dir.json/z.json", 15)
    assert "has a folder" in needs_spark(project, "by_pattern")
    project.run()
    assert_as_by_spark(project, "by_pattern")


@pytest.mark.parametrize("paths", ['["on*", "two"]', '"{one,two}"', '"on[e]"', '["one", "two/../one"]'])
def test_paths_that_only_spark_resolves_are_left_to_it(
    tmp_path: Path, spark: SparkSession, paths: str
) -> None:
    view = f"@dp.materialized_view\ndef v():\n    return spark.read.schema('id INT').json({paths})\n"
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + view)
    project.add("one", 1, ids(1))
    project.add("two", 1, ids(2))
    assert not project.run().failed
    project.add("one", 2, ids(3))
    needs_spark(project, "v")
    project.run()
    assert_as_by_spark(project, "v")


DELTA = """
@dp.materialized_view
def per_shop():
    orders = spark.read.format("delta").load("orders")
    return orders.groupBy("shop", "day", "paid").agg(F.sum("id").alias("id"))

@dp.materialized_view
def rows():
    return spark.read.format("delta").load("orders").where("id > 0")
"""


@pytest.mark.parametrize("feed", [False, True])
def test_partitions_of_delta_tables(tmp_path: Path, spark: SparkSession, feed: bool) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + DELTA)
    at = str(project.root / "orders")
    shops: list[str | None] = ["a", "x/y=é %[1]", None, "a b"]

    def put(*values: int, **options: Any) -> None:
        rows = [
            {
                "id": value,
                "shop": shops[value % 4],
                "day": date(2026, 1, 1 + value % 3),
                "paid": value % 2 == 0,
            }
            for value in values
        ]
        types = [("id", pa.int64()), ("shop", pa.string()), ("day", pa.date32()), ("paid", pa.bool_())]
        deltalake.write_deltalake(at, pa.Table.from_pylist(rows, pa.schema(types)), mode="append", **options)

    configuration = {"delta.enableChangeDataFeed": "true"} if feed else {}
    put(1, 2, 3, 4, partition_by=["shop", "day", "paid"], configuration=configuration)
    project.run()
    put(5, 6, 7, 8, 9)
    without_spark(project)
    deltalake.DeltaTable(at).delete("id = 2 OR id = 9")
    deltalake.DeltaTable(at).update(updates={"id": "id + 100"}, predicate="shop = 'a'")
    without_spark(project)
    assert sorted(row[0] for row in project.rows("rows")) == [1, 3, 5, 6, 7, 104, 108]
    assert_as_by_spark(project, "per_shop", "rows")


ODD_STREAMS = """
NUMBERS = spark.readStream.schema("id INT")

@dp.table
def masked():
    return NUMBERS.json("in/api_key=5-*.json")

@dp.materialized_view
def named():
    return spark.read.schema("id INT").json(["a/1.json", "a/2.json"])

@dp.table
def stamped():
    return NUMBERS.json("stamped").withColumn("at", F.current_timestamp())

@dp.table(spark_conf={"spark.sql.session.timeZone": "Asia/Kolkata"})
def zoned():
    read = spark.readStream.schema("id INT, at TIMESTAMP").json("zoned")
    return read.withWatermark("at", "1 hour").dropDuplicates(["id", "at"])
"""


def test_streams_are_read_as_their_queries_say(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + ODD_STREAMS)
    for folder, name in (("in", "api_key=5-1"), ("a", 1), ("a", 2), ("stamped", 1)):
        project.add(folder, name, ids(1))
    project.add("zoned", 1, [{"id": 1, "at": "2026-01-01 10:00:00"}])
    project.run()
    first = next(iter(project.rows("stamped")))[1]

    # A text that looks like a secret is shown masked, and is a part of the pattern all the same.
    project.add("in", "api_key=6-1", ids(6))
    project.add("in", "api_key=5-2", ids(2))
    project.add("a", 2, ids(7, 8))
    project.add("stamped", 2, ids(2))
    without_spark(project)
    assert project.rows("masked") == Counter({(1,): 1, (2,): 1})
    assert project.rows("named") == Counter({(1,): 1, (7,): 1, (8,): 1})
    stamps = {row[0]: row[1] for row in project.rows("stamped")}
    assert stamps[2] > stamps[1] == first

    # Files that a stream has read may go.
    for file in (project.root / "in").iterdir():
        file.unlink()
    without_spark(project)
    project.add("zoned", 2, [{"id": 2, "at": "2026-01-01 10:00:00"}])
    assert "Spark reads the time" in needs_spark(project, "zoned")
    project.add("in", "api_key=5-3", ids(3))
    assert not project.run().failed
    one, two = (row[1] for row in sorted(project.rows("zoned")))
    assert one == two


# --- event time -----------------------------------------------------------------------------------


TIMES = """
def read(delay="10 minutes"):
    read = spark.readStream.schema("id INT, v INT, at TIMESTAMP").json("in")
    return read.withWatermark("at", delay)
"""
TIMED = ("hours", "times", "distinct", "rows")


class AppendModeOfTimes(AppendMode):
    def read(self, delay: str = "10 minutes") -> DataFrame:
        read = self.spark.readStream.schema("id INT, v INT, at TIMESTAMP").json(f"{self.project.root}/in")
        return read.withWatermark("at", delay)


@pytest.mark.seeds(2, verify_from=1)
def test_streams_with_a_watermark_hold_what_append_mode_writes(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    draw = random.Random(seed)
    tables = "".join(f"\n@dp.table(name='{n}')\ndef {n}_table():\n    return {n}(read)\n" for n in TIMED)
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + TIMES + WINDOWS + tables)
    theirs = AppendModeOfTimes(project)
    for run in range(4):
        for file in range(2):
            rows: list[dict[str, Any]] = []
            for at in range(draw.randrange(1, 60)):
                time = START + timedelta(minutes=max(0, run * 90 + draw.randrange(-90, 90)))
                form = draw.choice(("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.000+00:00"))
                rows.append({"id": draw.randrange(3), "v": at, "at": time.strftime(form)})
            project.add("in", run * 2 + file, rows)
        if run:
            without_spark(project)
        else:
            project.run()
        for name in TIMED:
            assert held(project, name) == theirs.rows(name), (name, run)


# --- targets --------------------------------------------------------------------------------------


TARGETS = """
@dp.materialized_view(format="{form}")
def latest():
    read = spark.read.schema("id INT, v DOUBLE, t STRING, at TIMESTAMP").json("in")
    return read.groupBy("id").agg(F.max("v").alias("v"), F.max("t").alias("t"), F.max("at").alias("at"))

@dp.table(format="{form}")
def arrived():
    return spark.readStream.schema("id INT, v DOUBLE").json("in")
"""


def measures(*values: tuple[int, float]) -> list[dict[str, Any]]:
    return [{"id": id_, "v": v, "t": f"t{v}", "at": f"2026-01-01T00:00:0{id_}Z"} for id_, v in values]


def test_changelogs_are_delivered_without_spark(tmp_path: Path, spark: SparkSession) -> None:
    import duckdb

    project = Project.new(tmp_path / "project", spark, a_py=HEAD + TARGETS.format(form="changelog"))
    project.add("in", 1, measures((1, 1.5), (2, 2.5)))
    project.run()
    project.add("in", 2, measures((1, 3.5), (3, 0.5), (3, 0.5)))
    without_spark(project)
    project.add("in", 2, measures((1, 0.5)))
    project.add("in", 3, measures((2, 9.5)))
    project.run()
    project.add("in", 4, measures((2, 9.75)))
    without_spark(project)
    for table in ("latest", "arrived"):
        files = project.root / f"storage/changelog/default/{table}/tick=*/*.parquet"
        read = f"SELECT * EXCLUDE (tick) FROM read_parquet('{files}', hive_partitioning=true)"
        total = Counter[tuple[Any, ...]]()
        names = [name for name, *_ in duckdb.sql(f"DESCRIBE {read}").fetchall()]
        weight = names.index("weight")
        for row in duckdb.sql(read).fetchall():
            total[tuple(value for at, value in enumerate(row) if at != weight)] += row[weight]
        assert {row: n for row, n in total.items() if n} == project.rows(table), table
    ticks = {path.name for path in (project.root / "storage/changelog/default/latest").glob("tick=*")}
    assert len(ticks) == 4


def test_delta_tables_are_delivered_without_spark(tmp_path: Path, spark: SparkSession) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + TARGETS.format(form="delta"))

    def check() -> None:
        for table in ("latest", "arrived"):
            there = deltalake.DeltaTable(
                str(project.root / f"storage/delta/default/{table}")
            ).to_pyarrow_table()
            rows = Counter(zip(*(column.to_pylist() for column in there.columns), strict=True))
            assert rows == held(project, table), table

    project.add("in", 1, measures((1, 1.5), (2, 2.5)))
    project.run()
    project.add("in", 2, measures((1, 3.5), (3, 0.5), (3, 0.5)))
    without_spark(project)
    check()
    without_spark(project)
    project.add("in", 3, measures((2, 9.5)))
    project.run()
    project.add("in", 4, measures((2, 9.75), (1, 4.5)))
    without_spark(project)
    check()


SINKS = """
dp.create_sink("files", "parquet", {"path": "out/files"})
dp.create_sink("table", "delta", {"path": "out/table"})
dp.create_sink("text", "csv", {"path": "out/text"})

@dp.append_flow(target="files")
def to_files():
    return spark.readStream.schema("id INT, t STRING").json("in").where("id > 0")

@dp.append_flow(target="table")
def to_table():
    return spark.readStream.schema("id INT, t STRING").json("in").where("id > 1")

@dp.append_flow(target="text")
def to_text():
    return spark.readStream.schema("id INT, t STRING").json("other")
"""


def test_sinks_get_their_rows_without_spark(tmp_path: Path, spark: SparkSession) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + SINKS)
    project.add("in", 1, [{"id": 1, "t": "a"}, {"id": 2, "t": "b"}])
    project.add("other", 1, ids(1))
    project.run()
    project.add("in", 2, [{"id": 0}, {"id": 3}, {"id": 3}])
    without_spark(project)
    project.add("in", 3, [{"id": 0}])
    without_spark(project)
    project.add("in", 4, [{"id": 4, "t": ""}])
    project.run()
    expected = [(1, "a"), (2, "b"), (3, None), (3, None), (4, "")]
    files = pa.concat_tables([pq.read_table(file) for file in (project.root / "out/files").glob("*.parquet")])
    table = deltalake.DeltaTable(str(project.root / "out/table")).to_pyarrow_table()
    for there, wanted in ((files, expected), (table, expected[1:])):
        assert Counter(zip(*(c.to_pylist() for c in there.columns), strict=True)) == Counter(wanted)
    project.add("other", 2, ids(2))
    assert "csv" in needs_spark(project, "text")


RENAMED = """
dp.create_sink("table", "delta", {{"path": "out/table"}})

@dp.append_flow(target="table")
def to_table():
    return spark.readStream.schema("id INT, v INT").json("in").select("id", F.col("v").alias("{name}"))
"""


def test_rows_of_another_query_that_wait_for_a_sink_are_not_delivered_with_nulls(
    tmp_path: Path, spark: SparkSession
) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + RENAMED.format(name="amt"))
    target = pa.table({"id": pa.array([0], pa.int32()), "amount": pa.array([0], pa.int32())})
    (project.root / "out").mkdir()
    deltalake.write_deltalake(str(project.root / "out/table"), target)
    project.add("in", 1, [{"id": 1, "v": 1}])
    assert project.run().failed
    project.write("a.py", HEAD + RENAMED.format(name="amount"))
    project.add("in", 2, [{"id": 2, "v": 2}])
    assert project.run().failed
    assert here(project, Place.HERE).failed
    table = deltalake.DeltaTable(str(project.root / "out/table")).to_pyarrow_table()
    assert table.to_pylist() == target.to_pylist()
