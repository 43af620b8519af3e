"""Runs without Spark: the same tables from a kept analysis, and Spark where it is needed."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipelines.definitions import Place
from headrace.pipelines.errors import NeedsSpark
from headrace.pipelines.kept_analysis import KeptAnalysis, load
from headrace.pipelines.pipeline_run import RunReport, UpdateState, run_pipeline
from tests.golden import MESSAGES, assert_golden
from tests.pipelines.project import Project, changed, event, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

@dp.materialized_view
def orders():
    read = spark.read.schema("id BIGINT, city STRING, cents BIGINT, rate DOUBLE, day DATE").parquet("orders")
    return read.where("cents > 10").withColumn("euros", F.col("cents") * F.col("rate"))

@F.udf("string")
def grade(cents):
    return "large" if cents > 50 else "small"

@dp.materialized_view
def graded():
    return spark.table("orders").select("id", "day", grade("cents").alias("grade"))

@dp.table
def arrived():
    return spark.readStream.schema("id BIGINT, note STRING, version BIGINT").json("notes")

dp.create_streaming_table("notes")
dp.create_auto_cdc_flow(target="notes", source="arrived", keys=["id"], sequence_by="version")

@dp.materialized_view(partition_cols=["city"])
def by_day():
    orders = spark.table("orders")
    return orders.groupBy("day", "city").agg(F.count("*").alias("n"), F.sum("euros").alias("euros"))
"""
SQL = """
CREATE MATERIALIZED VIEW best AS
SELECT city, id, cents FROM (
  SELECT *, row_number() OVER (PARTITION BY city ORDER BY cents DESC, id) AS place FROM orders
) WHERE place <= 2;
CREATE MATERIALIZED VIEW grades AS
SELECT g.grade, o.city, count(*) AS n, max(o.cents) AS largest
FROM orders o JOIN graded g USING (id) GROUP BY g.grade, o.city;
"""
ORACLE = {
    "orders": "SELECT id, city, cents, rate, day, cents * rate FROM src WHERE cents > 10",
    "graded": "SELECT id, day, CASE WHEN cents > 50 THEN 'large' ELSE 'small' END FROM src WHERE cents > 10",
    "best": "SELECT city, id, cents FROM (SELECT *, row_number() OVER (PARTITION BY city "
    "ORDER BY cents DESC, id) AS place FROM src WHERE cents > 10) WHERE place <= 2",
    "grades": "SELECT CASE WHEN cents > 50 THEN 'large' ELSE 'small' END g, city, count(*), max(cents) "
    "FROM src WHERE cents > 10 GROUP BY g, city",
}
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("cents", pa.int64()),
        ("rate", pa.float64()),
        ("day", pa.date32()),
    ]
)


def never() -> NoReturn:
    raise AssertionError("the run needs no Spark")


def here(project: Project, place: Place = Place.AUTO) -> RunReport:
    return run_pipeline(project.spec, never, place=place)


def note(key: int, text: Any, version: int) -> dict[str, Any]:
    return {"id": key, "note": text, "version": version}


def write_orders(project: Project, number: int, draw: random.Random, count: int, first: int) -> None:
    import datetime

    rows = [
        {
            "id": first + at,
            "city": draw.choice(["bath", "cork", "d/o=ver", None]),
            "cents": draw.randrange(100),
            "rate": draw.choice([0.5, 0.25, 2.0]),
            "day": datetime.date(2026, 1, 1 + draw.randrange(3)),
        }
        for at in range(count)
    ]
    file = project.root / "orders" / f"{number}.parquet"
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), file)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Project:
    """Project that the tests of this file go on with, one after the other."""
    made = Project.new(tmp_path_factory.mktemp("in_process") / "project", spark, a_py=PYTHON, b_sql=SQL)
    write_orders(made, 1, random.Random(1), 30, 0)
    made.add("notes", 1, [note(at, f"n{at}", 1) for at in range(5)])
    made.run()
    return made


def expected(project: Project, table: str) -> Counter[tuple[Any, ...]]:
    duckdb.sql(
        f"CREATE OR REPLACE TEMP VIEW src AS SELECT * FROM read_parquet('{project.root}/orders/*.parquet')"
    )
    return Counter(duckdb.sql(ORACLE[table]).fetchall())


def check(project: Project) -> None:
    for table in ORACLE:
        assert project.rows(table) == expected(project, table), table
    days = "SELECT count(*), sum(n), sum(euros) FROM"
    files = f"read_parquet('{project.path('by_day')}/*/*.parquet', hive_partitioning = true)"
    of_all = (
        "(SELECT day, city, count(*) AS n, sum(cents * rate) AS euros FROM src WHERE cents > 10 "
        "GROUP BY day, city)"
    )
    assert duckdb.sql(f"{days} {files}").fetchall() == duckdb.sql(f"{days} {of_all}").fetchall()


def test_the_tables_of_a_run_without_spark_are_those_of_duckdb(project: Project) -> None:
    draw = random.Random(7)
    for number in range(2, 8):
        match number % 3:
            case 0:  # a file is written anew, with other rows
                write_orders(project, 1, draw, 30, 0)
            case 1:  # a file goes
                (project.root / "orders" / f"{number - 2}.parquet").unlink(missing_ok=True)
                write_orders(project, number, draw, 10, 100 * number)
            case _:
                write_orders(project, number, draw, 20, 100 * number)
        project.add("notes", number, [note(number % 5, f"later {number}", number)])
        report = here(project, Place.HERE)
        assert not report.failed, [each.error for each in report.events.values() if each.error]
        check(project)
        assert project.rows("notes")[number % 5, f"later {number}", number] == 1
    spark = project.run()
    assert changed(spark) == set()  # What a run without Spark has left, Spark goes on from.


def test_a_run_in_which_nothing_has_changed_reads_no_row(project: Project) -> None:
    report = here(project)
    assert changed(report) == set()
    assert set(states(report).values()) == {UpdateState.COMPLETED.value}


def test_spark_goes_on_from_a_run_without_it(project: Project) -> None:
    write_orders(project, 22, random.Random(2), 20, 2_200)
    here(project)
    write_orders(project, 23, random.Random(3), 20, 2_300)
    run_pipeline(project.spec, project.spark, place=Place.SPARK)
    check(project)
    write_orders(project, 24, random.Random(4), 20, 2_400)
    here(project)
    check(project)


def test_a_file_that_only_spark_can_read_is_read_by_spark(project: Project) -> None:
    project.add("notes", 99, [note(9, 12.5, 1)])
    report = here(project, Place.HERE)
    error = event(report, "arrived").error
    assert isinstance(error, NeedsSpark)
    assert states(report)["notes"] == "SKIPPED"
    assert states(report)["grades"] == "COMPLETED"
    assert not project.run().failed
    assert project.rows("notes")[9, "12.5", 1] == 1


def test_without_an_analysis_a_run_needs_spark(tmp_path: Path, spark: SparkSession) -> None:
    made = Project.new(tmp_path / "project", spark, a_py=PYTHON)
    with pytest.raises(NeedsSpark) as refused:
        here(made, Place.HERE)
    assert_golden(MESSAGES / "pipeline_needs_spark.txt", f"{refused.value}\n")


# --- what an analysis comes from ------------------------------------------------------------------


IMPORTING = """
import json
import os
from pathlib import Path
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
limit = json.loads(Path("limit.json").read_text())["limit"]
more = int(os.environ.get("HEADRACE_TEST_MORE", "0"))

@dp.materialized_view
def few():
    return spark.read.schema("id INT, v INT").json("in").where(f"v < {limit + more}")
"""


def kept(project: Project) -> KeptAnalysis | str:
    return load(project.spec, None)


@pytest.fixture
def importing(tmp_path: Path, spark: SparkSession) -> Iterator[Project]:
    made = Project.new(tmp_path / "project", spark, a_py=IMPORTING)
    (made.root / "limit.json").write_text('{"limit": 10}')
    made.add("in", 1, [{"id": 1, "v": 5}, {"id": 2, "v": 50}])
    made.run()
    assert isinstance(kept(made), KeptAnalysis)
    yield made
    os.environ.pop("HEADRACE_TEST_MORE", None)


def test_an_analysis_holds_until_a_file_of_the_project_changes(importing: Project) -> None:
    importing.write("a.py", IMPORTING + "\n")
    assert "a.py has changed" in str(kept(importing))
    importing.run()
    assert isinstance(kept(importing), KeptAnalysis)
    importing.write("b.sql", "CREATE MATERIALIZED VIEW b AS SELECT 1 AS one")
    assert "files" in str(kept(importing))


def test_an_analysis_holds_until_a_file_that_it_read_changes(importing: Project) -> None:
    (importing.root / "limit.json").write_text('{"limit": 100}')
    assert "limit.json has changed" in str(kept(importing))
    importing.run()
    assert importing.rows("few") == Counter({(1, 5): 1, (2, 50): 1})


def test_an_analysis_holds_until_a_variable_that_it_asked_for_changes(importing: Project) -> None:
    os.environ["HEADRACE_TEST_MORE"] = "100"
    assert "HEADRACE_TEST_MORE has changed" in str(kept(importing))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("from datetime import date; since = date.today()", "uses today"),
        ("import random", "uses random"),
        ("import requests as r", "uses requests"),
        ('rows = spark.sql("SELECT 1").collect()', "read rows"),
    ],
)
def test_an_analysis_is_not_kept_where_it_may_be_another_one_next_time(
    tmp_path: Path, spark: SparkSession, line: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import types

    monkeypatch.setitem(sys.modules, "requests", types.ModuleType("requests"))
    text = IMPORTING.replace("limit = json", f"{line}\nlimit = json")
    made = Project.new(tmp_path / "project", spark, a_py=text)
    (made.root / "limit.json").write_text('{"limit": 10}')
    made.add("in", 1, [{"id": 1, "v": 5}])
    reasons: list[str] = []
    from headrace.pipelines import planned_project
    from headrace.pipelines.kept_analysis import keep

    monkeypatch.setattr(planned_project, "keep_analysis", lambda *given: reasons.append(keep(*given)))
    made.run()
    assert why in reasons[0]
    assert kept(made) == "no analysis is kept"


def test_a_kept_analysis_that_others_can_write_is_not_loaded(importing: Project) -> None:
    file = importing.root / "storage/analysis/kept.json"
    file.chmod(0o666)
    assert kept(importing) == "others can write the kept analysis"


def test_a_kept_analysis_that_is_damaged_is_not_loaded(importing: Project) -> None:
    for part in (importing.root / "storage/analysis").glob("*.part"):
        part.write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    assert "cannot be read" in str(kept(importing))
    assert not (importing.root / "hacked").exists()
    assert not importing.run().failed


INFERRING = """
@dp.materialized_view
def a():
    return spark.read.parquet("in")
"""


def test_columns_that_spark_inferred_may_be_others_with_new_files(
    tmp_path: Path, spark: SparkSession
) -> None:
    text = PYTHON[: PYTHON.index("@dp")] + INFERRING
    sql = "CREATE MATERIALIZED VIEW c AS SELECT * FROM a"
    made = Project.new(tmp_path / "project", spark, a_py=text, b_sql=sql)
    (made.root / "in").mkdir()
    pq.write_table(pa.table({"x": [1]}), made.root / "in/b.parquet")
    made.run()
    pq.write_table(pa.table({"x": [2]}), made.root / "in/c.parquet")
    assert isinstance(kept(made), KeptAnalysis)
    pq.write_table(pa.table({"x": [3]}), made.root / "in/a.parquet")
    assert isinstance(kept(made), KeptAnalysis)
    assert not here(made, Place.HERE).failed
    assert made.rows("c") == Counter({(1,): 1, (2,): 1, (3,): 1})
    pq.write_table(pa.table({"x": [4], "y": ["new"]}), made.root / "in/0.parquet")
    assert "columns" in str(kept(made))


def test_no_password_is_kept(tmp_path: Path, spark: SparkSession) -> None:
    text = PYTHON.replace('.parquet("orders")', '.option("password", "sesame").parquet("orders")')
    made = Project.new(tmp_path / "project", spark, a_py=text)
    write_orders(made, 1, random.Random(1), 3, 0)
    made.add("notes", 1, [note(1, "n", 1)])
    made.run()
    files = list((made.root / "storage/analysis").iterdir())
    assert files
    assert not any(b"sesame" in file.read_bytes() for file in files)


# --- what is left to Spark, so that answers do not differ ------------------------------------------


ODD = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.materialized_view
def doubles():
    return spark.read.schema("id BIGINT, d DOUBLE, t STRING").parquet("doubles")

@dp.materialized_view(partition_cols=["t"])
def parts():
    return spark.table("doubles").groupBy("t").count()

@dp.table
def chosen():
    return spark.sql("SELECT * FROM STREAM(events) WHERE id IN (SELECT id FROM doubles)")

@dp.table
def events():
    return spark.readStream.schema("id BIGINT").json("events")
"""


def write_doubles(project: Project, number: int, name: str = "id", **columns: Any) -> None:
    (project.root / "doubles").mkdir(exist_ok=True)
    types = [(name, pa.int64()), ("d", pa.float64()), ("t", pa.string())]
    table = pa.table([pa.array(columns[key], kind) for key, kind in types], names=[key for key, _ in types])
    pq.write_table(table, project.root / "doubles" / f"{number}.parquet")


def test_rows_that_only_spark_reads_alike_are_left_to_it(tmp_path: Path, spark: SparkSession) -> None:
    made = Project.new(tmp_path / "project", spark, a_py=ODD)
    write_doubles(made, 1, id=[1, 2], d=[1.5, 2.5], t=["a", ""])
    made.add("events", 1, [{"id": 1}])
    made.run()

    write_doubles(made, 2, id=[3], d=[-0.0], t=[""])
    assert isinstance(event(here(made, Place.HERE), "doubles").error, NeedsSpark)
    made.run()
    assert sorted(str(row[1]) for row in made.rows("doubles")) == ["-0.0", "1.5", "2.5"]
    assert made.rows("parts") == Counter({(1, "a"): 1, (2, None): 1})

    write_doubles(made, 3, "ID", ID=[4], d=[4.5], t=["b"])
    assert isinstance(event(here(made, Place.HERE), "doubles").error, NeedsSpark)
    made.run()
    assert {row[0] for row in made.rows("doubles")} == {1, 2, 3, 4}

    made.add("events", 2, [{"id": 2}, {"id": 9}])
    assert isinstance(event(here(made, Place.HERE), "chosen").error, NeedsSpark)
    made.run()
    assert made.rows("chosen") == Counter({(1,): 1, (2,): 1})

    write_doubles(made, 4, id=[5], d=[5.5], t=[""])
    assert event(here(made, Place.HERE), "parts").error is None
    assert made.rows("parts") == Counter({(1, "a"): 1, (3, None): 1, (1, "b"): 1})


PARTITIONED = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.materialized_view
def sales():
    return spark.read.parquet("sales")

@dp.materialized_view
def per_year():
    return spark.read.parquet("sales").groupBy("year", "region").sum("cents")

@dp.table
def seen():
    return spark.readStream.schema("id BIGINT, day DATE").json("seen")
"""


def test_partition_values_are_read_without_spark(tmp_path: Path, spark: SparkSession) -> None:
    counted = (
        "CREATE MATERIALIZED VIEW counted AS SELECT region, count(*) AS n FROM parquet.`{}` GROUP BY region;"
    )
    project = Project.new(tmp_path / "project", spark, a_py=PARTITIONED, a_sql=counted.format("sales"))
    rows = dict[str, list[int]]()

    def put(folder: str, *cents: int) -> None:
        rows[folder] = list(cents)
        at = project.root / "sales" / folder
        at.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"cents": pa.array(cents, pa.int64())}), at / "0.parquet")

    def see(day: str, number: int) -> None:
        project.add(f"seen/day={day}", number, [{"id": number}])

    # Spark takes each escape for a character, where others write the bytes of UTF-8.
    escaped = {"a%2Fb": "a/b", "Z%C3%BCrich": "Z\u00c3\u00bcrich"}

    def expected() -> Counter[tuple[Any, ...]]:
        found = Counter[tuple[Any, ...]]()
        for folder, cents in rows.items():
            year, region = (part.partition("=")[2] for part in folder.split("/"))
            found.update((each, int(year), escaped.get(region, region)) for each in cents)
        return found

    def needs_spark() -> set[str]:
        events = here(project, Place.HERE).events.values()
        return {each.table.table for each in events if isinstance(each.error, NeedsSpark)}

    (project.root / "seen").mkdir()
    put("year=2025/region=north", 1, 2)
    put("year=2026/region=a%2Fb", 3)
    put("year=2025/region=Z%C3%BCrich", 9)
    see("2026-01-01", 1)
    assert not project.run().not_kept
    put("year=2026/region=north", 4, 4)
    put("year=2025/region=north", 1, 5)
    put("year=2025/region=Z%C3%BCrich", 9, 8)
    see("2026-01-02", 2)
    assert not needs_spark()
    assert project.rows("sales") == expected()
    shutil.rmtree(project.root / "sales/year=2026/region=a%2Fb")
    del rows["year=2026/region=a%2Fb"]
    report = here(project)
    assert changed(report) == {"sales", "per_year", "counted"}
    assert project.rows("sales") == expected()
    assert project.rows("counted") == Counter([("north", 4), (escaped["Z%C3%BCrich"], 2)])
    assert project.rows("per_year") == Counter(
        [(2025, "north", 6), (2026, "north", 8), (2025, escaped["Z%C3%BCrich"], 17)]
    )
    assert {(key, str(day)) for key, day in project.rows("seen")} == {(1, "2026-01-01"), (2, "2026-01-02")}
    # Spark would read the years as text now.
    put("year=unknown/region=north", 6)
    assert needs_spark() == {"sales", "per_year", "counted"}
    # Here it would find files in and above folders of partitions.
    shutil.rmtree(project.root / "sales/year=unknown")
    del rows["year=unknown/region=north"]
    assert not needs_spark()
    shutil.copy(project.root / "sales/year=2026/region=north/0.parquet", project.root / "sales/1.parquet")
    with pytest.raises(NeedsSpark, match="to be analysed"):
        here(project, Place.HERE)
    # What a pattern finds, only Spark knows.
    (project.root / "sales/1.parquet").unlink()
    project.write("a.sql", counted.format("sal*"))
    project.run()
    put("year=2026/region=south", 7)
    assert needs_spark() == {"counted"}
