"""Backfill: a part of a table is computed again, the other rows stay, and readers get the difference."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import Place, TableName
from headrace.pipelines.errors import BackfillRefused
from headrace.pipelines.event_log import EventLog
from headrace.pipelines.pipeline_run import RunReport, Selection, run_pipeline
from tests.golden import MESSAGES, assert_golden
from tests.pipelines.project import Project, event
from tests.pipelines.test_errors import told
from tests.pipelines.test_kills import Killed, killed_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

def orders():
    return spark.readStream.schema("id INT, day INT, price INT").json("orders")

@dp.table
def priced():
    rates = spark.read.schema("rate_day INT, rate INT").json("rates")
    joined = orders().join(rates, F.col("day") == F.col("rate_day"))
    return joined.select("id", "day", (F.col("price") * F.col("rate")).alias("cost"))

TAX = __file__.replace("transformations/a.py", "tax")

@F.udf("int")
def taxed(cost):
    with open(TAX) as file:
        return cost + int(file.read())

@dp.materialized_view
def bills():
    return spark.table("priced").select("id", "day", taxed("cost").alias("bill"))

@dp.table
def seen():
    return orders().select("id")

dp.create_streaming_table("last")
dp.create_auto_cdc_flow("last", "seen", ["id"], "id")

dp.create_sink("out", "json", {"path": "out"})
@dp.append_flow(target="out")
def given():
    return orders()
"""
SQL = (
    "CREATE MATERIALIZED VIEW days AS SELECT day, count(*) AS n, sum(cost) AS cost FROM priced GROUP BY day;"
)


def new_project(root: Path, spark: SparkSession) -> Project:
    project = Project.new(root, spark, a_py=PYTHON, b_sql=SQL)
    (root / "tax").write_text("1")
    set_rates(project, 2)
    return project


def set_rates(project: Project, rate: int) -> None:
    project.add("rates", 1, [{"rate_day": day, "rate": rate} for day in range(5)])


def add_orders(project: Project, number: int, *orders: tuple[int, int, int]) -> None:
    project.add("orders", number, [{"id": id_, "day": day, "price": price} for id_, day, price in orders])


def backfill(project: Project, table: str, where: str) -> RunReport:
    report = run_pipeline(project.spec, project.spark, Selection((table,), where=where), place=Place.SPARK)
    assert not report.failed, [str(each.error) for each in report.events.values() if each.error]
    return report


def why(report: RunReport, table: str) -> str:
    updated = event(report, table).updated
    assert updated is not None
    return updated.why


def sums(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[int, int, int]]:
    """The days of some priced orders."""
    found: dict[int, tuple[int, int]] = {}
    for (_, day, cost), copies in rows.items():
        n, total = found.get(day, (0, 0))
        found[day] = (n + copies, total + copies * cost)
    return Counter((day, n, total) for day, (n, total) in found.items())


def test_a_part_of_a_streaming_table_is_computed_again_and_its_readers_get_the_difference(
    tmp_path: Path, spark: SparkSession
) -> None:
    project = new_project(tmp_path / "project", spark)
    add_orders(project, 1, (1, 1, 10), (2, 2, 10), (3, 2, 20), (3, 2, 20))
    project.run()
    set_rates(project, 3)
    project.run()
    assert project.rows("priced") == Counter([(1, 1, 20), (2, 2, 20), (3, 2, 40), (3, 2, 40)])
    add_orders(project, 2, (4, 2, 30), (5, 1, 30))
    report = backfill(project, "priced", "day = 2")
    assert why(report, "priced") == "backfill of day = 2"
    # What had not been read is there, too, once.
    now = Counter([(1, 1, 20), (2, 2, 30), (3, 2, 60), (3, 2, 60), (4, 2, 90), (5, 1, 90)])
    assert project.rows("priced") == now
    (record,) = (each for each in EventLog(project.spec.storage).records(last=1) if each.kind == "table")
    assert (record.rows_inserted, record.rows_deleted) == (5, 3)
    report = project.run("days", "bills")
    updated = event(report, "days").updated
    assert updated is not None
    assert not updated.whole
    assert project.rows("days") == sums(now)
    assert project.rows("bills") == Counter({(id_, day, cost + 1): n for (id_, day, cost), n in now.items()})
    add_orders(project, 3, (6, 2, 1))
    project.run()
    assert project.rows("priced") == now + Counter([(6, 2, 3)])


def test_a_view_whose_function_answers_otherwise(tmp_path: Path, spark: SparkSession) -> None:
    project = new_project(tmp_path / "project", spark)
    add_orders(project, 1, (1, 1, 10), (2, 2, 10))
    project.run()
    assert why(backfill(project, "bills", "day = 2"), "bills") == "backfill of day = 2: no row differs"
    (project.root / "tax").write_text("5")
    backfill(project, "bills", "bill > 0 AND day = 2")
    assert project.rows("bills") == Counter([(1, 1, 21), (2, 2, 25)])


@pytest.mark.verify
def test_a_view_with_state_is_repaired_and_then_made_anew(tmp_path: Path, spark: SparkSession) -> None:
    project = new_project(tmp_path / "project", spark)
    add_orders(project, 1, (1, 1, 10), (2, 2, 10))
    project.run()
    right = project.rows("days")
    assert why(backfill(project, "days", "true"), "days") == "backfill of true: no row differs"
    for file in project.path("days").resolve().rglob("*.parquet"):
        damaged = file.with_name("damaged.parquet")
        duckdb.sql(f"COPY (SELECT day, n, cost + 7 AS cost FROM '{file}') TO '{damaged}'")
        damaged.replace(file)
    assert project.rows("days") != right
    said = why(backfill(project, "days", "day < 9"), "days")
    assert said.endswith("the next run makes it from all rows, since its state answers otherwise")
    assert project.rows("days") == right
    add_orders(project, 2, (3, 1, 10))
    report = project.run()
    assert why(report, "days") == "from all rows: it was made without state before"
    assert project.rows("days") == sums(project.rows("priced"))


@pytest.mark.verify
def test_dropped_rows_of_the_part_are_computed_again_too(tmp_path: Path, spark: SparkSession) -> None:
    project = new_project(tmp_path / "project", spark)
    expecting = "from headrace.pipelines import expect, expect_or_drop\n" + PYTHON.replace(
        "@dp.table\ndef priced",
        "@expect('even', 'cost % 2 = 0')\n@expect_or_drop('cheap', 'cost < 50')\n@dp.table\ndef priced",
    )
    project.write("a.py", expecting)
    add_orders(project, 1, (1, 1, 20), (2, 2, 20), (3, 2, 30))
    project.run()
    set_rates(project, 1)
    report = backfill(project, "priced", "day = 2")
    assert project.rows("priced") == Counter([(1, 1, 40), (2, 2, 20), (3, 2, 30)])
    assert project.path("priced__headrace_dropped").resolve().name == "2"
    assert not project.rows("priced__headrace_dropped")
    set_rates(project, 3)
    report = backfill(project, "priced", "day = 1")
    assert project.rows("priced") == Counter([(2, 2, 20), (3, 2, 30)])
    assert [row[:3] for row in project.rows_of_lists("priced__headrace_dropped")] == [(1, 1, 60)]
    updated = event(report, "priced").updated
    assert updated is not None
    totals = {name: tuple(counts) for name, counts in updated.expectation_totals.items()}
    assert totals == {"even": (3, 0), "cheap": (2, 1)}


MISTAKES = {
    "where_that_is_not_sql": ("priced", "day ="),
    "where_of_unknown_column": ("priced", "week = 2"),
    "where_that_is_no_condition": ("priced", "day + 1"),
    "where_of_chance": ("priced", "rand() < 0.5"),
    "where_with_a_subquery": ("priced", "day IN (SELECT 1)"),
    "where_that_is_python": ("priced", "__import__('os').system('touch hacked')"),
    "of_records_in_order": ("last", "id = 1"),
    "of_a_sink": ("out", "id = 1"),
}


RENAMED = """
dp.create_streaming_table("priced")
@dp.append_flow(target="priced")
def renamed():
    return orders().select("id", "day", F.col("price").alias("cost"))
"""


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def test_what_is_refused(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    project = new_project(tmp_path / "project", spark)
    add_orders(project, 1, (1, 1, 10), (2, 2, 10))
    add_orders(project, 2, (3, 2, 10))
    project.run()

    def refused(name: str, table: str, where: str) -> None:
        with pytest.raises(BackfillRefused) as error:
            backfill(project, table, where)
        assert error.value.fix
        assert error.value.facts["dataset"] == str(TableName("default", table))
        assert_golden(MESSAGES / f"pipeline_backfill_{name}.txt", told(error.value, project.root))

    before = last_run(project)
    for name, (table, where) in MISTAKES.items():
        refused(name, table, where)
    assert not (project.root / "hacked").exists()
    (project.root / "orders/2.json").unlink()
    refused("of_files_that_are_gone", "priced", "day = 2")
    project.write("a.py", PYTHON.replace("def priced():", "def other():") + RENAMED)
    refused("of_a_flow_that_is_gone", "priced", "day = 2")
    assert last_run(project) == before
    monkeypatch.chdir(project.root)
    printed = headrace("backfill", "priced", "--where", "week = 2")
    assert printed.exit_code == 2
    assert "P811 BackfillRefused" in printed.output
    assert headrace("backfill", "nope", "--where", "true").exit_code == 2


def last_run(project: Project) -> int:
    return PipelineCatalog.published_runs(project.spec.storage)[-1].number


def test_a_backfill_as_it_is_typed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = new_project(tmp_path / "project", spark)
    add_orders(project, 1, (1, 1, 10), (2, 2, 10))
    project.run()
    set_rates(project, 3)
    monkeypatch.chdir(project.root)
    printed = headrace("backfill", "priced", "--where", "day <= 1", "--log-format", "json")
    assert printed.exit_code == 0, printed.output
    done = [json.loads(line) for line in printed.stdout.splitlines() if "COMPLETED" in line]
    assert [(line["table"], line["changed"], line["why"]) for line in done if "table" in line] == [
        ("spark_catalog.default.priced", True, "backfill of day <= 1")
    ]
    assert project.rows("priced") == Counter([(1, 1, 30), (2, 2, 20)])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.verify)])
@pytest.mark.seeds(2, verify_from=1)
def test_any_part_is_as_from_scratch_and_a_killed_backfill_changes_nothing(
    tmp_path: Path, spark: SparkSession, seed: int, rounds: int
) -> None:
    draw = random.Random(seed)
    project = new_project(tmp_path / "project", spark)
    rows: list[tuple[int, int, int]] = []
    for number in range(1, rounds + 1):
        new = [(draw.randrange(9), draw.randrange(5), draw.randrange(9)) for _ in range(draw.randrange(1, 6))]
        rows += new
        add_orders(project, number, *new)
        project.run()
        rate = draw.randrange(1, 9)
        set_rates(project, rate)
        low, high = draw.randrange(5), draw.randrange(5)
        before = project.rows("priced")
        again = Counter((id_, day, price * rate) for id_, day, price in rows)
        after = Counter({row: n for row, n in before.items() if not low <= row[1] <= high})
        after += Counter({row: n for row, n in again.items() if low <= row[1] <= high})
        with killed_before(draw.randrange(1, 200)), suppress(Killed):
            backfill(project, "priced", f"day BETWEEN {low} AND {high}")
        assert project.rows("priced") in (before, after)
        backfill(project, "priced", f"day BETWEEN {low} AND {high}")
        assert project.rows("priced") == after
        project.run("days", "bills")
        assert project.rows("days") == sums(after)
