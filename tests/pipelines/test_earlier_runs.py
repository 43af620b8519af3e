"""Earlier runs of a pipeline: which are kept, and what differs between two of them."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.errors import RunNotKept
from headrace.pipelines.table_diff import TableDiff, diff_table
from tests.golden import MESSAGES, assert_golden
from tests.pipelines.project import SPEC, Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

@dp.table
def events():
    return spark.readStream.schema("id INT, v INT, at INT").json("in")

dp.create_streaming_table("latest")
dp.create_auto_cdc_flow("latest", "events", ["id"], "at")

@dp.materialized_view(partition_cols=["k"])
def by_key():
    return spark.table("latest").select("v", "at", (F.col("id") % 3).alias("k"))

@dp.materialized_view
def mapped():
    return spark.table("latest").select("id", F.create_map("id", "v", F.lit(-1), "at").alias("m"))
"""
SQL = """
CREATE MATERIALIZED VIEW totals AS SELECT v % 3 AS k, count(*) AS n, sum(v) AS v FROM latest GROUP BY v % 3;
CREATE MATERIALIZED VIEW sketch AS SELECT theta_sketch_estimate(theta_sketch_agg(id)) AS n FROM latest;
CREATE MATERIALIZED VIEW names AS SELECT name, count(*) AS n FROM json.`names` GROUP BY name;
"""
TABLES = ("events", "latest", "totals", "sketch", "names")


def kept(text: str) -> str:
    """The spec of a project that keeps earlier runs."""
    return SPEC + f"configuration: {{headrace.version_retention: '{text}'}}\n"


def new_project(root: Path, spark: SparkSession, retention: str) -> Project:
    project = Project.new(root, spark, a_py=PYTHON, b_sql=SQL)
    (root / "spark-pipeline.yml").write_text(kept(retention))
    project.add("names", 1, [{"name": "ann"}, {"name": "bob"}])
    return project


def record(key: int, v: int, at: int) -> dict[str, Any]:
    return {"id": key, "v": v, "at": at}


def numbers(project: Project) -> list[int]:
    return [run.number for run in PipelineCatalog.published_runs(project.spec.storage)]


def rows_of(diff: TableDiff) -> Counter[tuple[Any, ...]]:
    return Counter({tuple(row.values()): weight for weight, row in diff.rows()})


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Project:
    """Project with four published runs, which the first tests of this file look at."""
    made = new_project(tmp_path_factory.mktemp("earlier") / "project", spark, "3 runs")
    for number, new in enumerate(
        (
            [record(1, 1, 1)],
            [record(2, 5, 2)],
            [record(1, 7, 3), record(4, 4, 3), record(4, 4, 3)],
            [record(3, None, 4)],
        ),
        1,
    ):
        made.add("in", number, new)
        made.run()
    made.run()  # publishes nothing
    return made


def test_so_many_runs_are_kept_as_the_spec_says(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert numbers(project) == [2, 3, 4]
    versions = {each.name for each in (project.root / "storage/tables/default/totals").iterdir()}
    assert versions == {"2", "3", "4"}
    monkeypatch.chdir(project.root)
    lines = headrace("runs").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "2", "3", "4"]
    assert lines[2].endswith(
        "default.by_key, default.events, default.latest, default.mapped, default.sketch, default.totals"
    )


def test_the_rows_that_came_and_went_between_two_runs(project: Project) -> None:
    last = diff_table(project.spec, "totals")
    assert (last.before, last.after) == (3, 4)
    assert rows_of(last) == {(None, 1, None): 1}
    whole = diff_table(project.spec, "Default.Totals", before=2)
    assert (whole.before, whole.after, whole.versions) == (2, 4, (2, 4))
    assert rows_of(whole) == {
        (1, 1, 1): -1, (1, 2, 11): 1, (None, 1, None): 1,
    }  # fmt: skip
    back = diff_table(project.spec, "totals", before=4, after=2)
    assert rows_of(back) == Counter({row: -weight for row, weight in rows_of(whole).items()})
    assert (back.inserted, back.deleted) == (whole.deleted, whole.inserted) == (1, 2)
    # The fifth run published nothing, and left the tables as the fourth.
    assert rows_of(diff_table(project.spec, "totals", before=3, after=5)) == rows_of(last)


def test_partitioned_rows_and_maps_are_compared(project: Project) -> None:
    assert rows_of(diff_table(project.spec, "by_key", before=2, after=3)) == {
        (1, 1, 1): -1,
        (7, 3, 1): 1,
        (4, 3, 1): 1,
    }
    changed = {row["id"]: json.loads(row["m"]) for weight, row in diff_table(
        project.spec, "mapped", before=2, after=3).rows() if weight > 0}  # fmt: skip
    assert changed == {"1": {"-1": 3, "1": 7}, "4": {"-1": 3, "4": 4}}


def test_a_difference_as_it_is_printed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    golden = Path(__file__).parent / "printed"
    printed = headrace("diff", "totals", "--from", "2")
    assert printed.exit_code == 0
    assert_golden(golden / "diff.txt", printed.stdout)
    assert_golden(
        golden / "diff_limited.txt", headrace("diff", "totals", "--from", "2", "--limit", "1").stdout
    )
    printed = headrace("diff", "totals", "--from", "3", "--format", "json")
    assert [json.loads(line) for line in printed.stdout.splitlines()] == [
        {"weight": 1, "row": {"k": None, "n": 1, "v": None}}
    ]
    assert "1 row came, 0 went" in printed.stderr


def test_copies_of_a_row_are_counted(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    came = diff_table(project.spec, "events", before=2, after=3)
    assert rows_of(came) == {(1, 7, 3): 1, (4, 4, 3): 2}
    assert (came.inserted, came.deleted) == (3, 0)
    monkeypatch.chdir(project.root)
    printed = headrace("diff", "events", "--from", "3", "--to", "2").stdout.splitlines()
    assert [line.split() for line in printed[2:4]] == [["-", "1", "7", "3"], ["-2", "4", "4", "3"]]


def test_a_run_that_is_not_kept_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunNotKept) as gone:
        diff_table(project.spec, "totals", before=1)
    assert (gone.value.facts["run"], gone.value.facts["kept"]) == (1, (2, 3, 4))
    assert_golden(MESSAGES / "pipeline_run_not_kept.txt", f"{gone.value}\n")
    with pytest.raises(RunNotKept, match="there was no run 99 yet"):
        diff_table(project.spec, "totals", after=99)
    monkeypatch.chdir(project.root)
    refused = headrace("diff", "nope")
    assert refused.exit_code == 2
    assert "P803 UnknownDataset: the storage has no table 'nope'" in refused.output


def test_columns_that_came_and_went(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(
        tmp_path / "project", spark, a_sql="CREATE MATERIALIZED VIEW a AS SELECT 1 AS x, 2 AS y;"
    )
    project.run()
    project.write("a.sql", "CREATE MATERIALIZED VIEW a AS SELECT 1 AS x, '3' AS y, 4 AS z;")
    project.run()
    found = diff_table(project.spec, "a")
    assert dict(found.columns) == {"z": "is new", "y": "was int, is string"}
    assert sorted(found.rows(), key=lambda each: each[0]) == [
        (-1, {"x": 1, "y": "2", "z": None}), (1, {"x": 1, "y": "3", "z": 4}),
    ]  # fmt: skip


@pytest.mark.parametrize("runs", [2, pytest.param(5, marks=pytest.mark.verify)])
@pytest.mark.seeds(2, verify_from=1)
def test_differences_are_those_of_the_rows_that_were_published(
    tmp_path: Path, spark: SparkSession, seed: int, runs: int
) -> None:
    draw = random.Random(seed)
    project = new_project(tmp_path / "project", spark, "9 runs")
    was: dict[int, dict[str, Counter[tuple[Any, ...]]]] = {}
    for number in range(1, runs + 1):
        project.add(
            "in", number, [record(draw.randrange(5), draw.randrange(9), number * 10 + at) for at in range(3)]
        )
        project.add("names", 1, [{"name": draw.choice("abc")} for _ in range(4)])
        project.run()
        was[numbers(project)[-1]] = {table: project.rows(table) for table in TABLES}
    for table in TABLES:
        before, after = draw.choice([*was]), draw.choice([*was])
        expected = was[after][table].copy()
        expected.subtract(was[before][table])
        found = rows_of(diff_table(project.spec, table, before=before, after=after))
        assert found == Counter({row: weight for row, weight in expected.items() if weight})


def test_runs_are_kept_for_a_time(tmp_path: Path, spark: SparkSession) -> None:
    project = new_project(tmp_path / "project", spark, "2 days")
    for number in range(1, 5):
        project.add("in", number, [record(number, 1, number)])
        project.run("events")
    assert numbers(project) == [1, 2, 3, 4]
    old = time.time() - 3 * 86_400
    for number in (1, 2):
        os.utime(project.root / f"storage/catalog/{number}/catalog.json", (old, old))
    project.add("in", 5, [record(5, 1, 5)])
    project.run("events")
    # Run 2 is how the tables were two days ago.
    assert numbers(project) == [2, 3, 4, 5]
    (project.root / "spark-pipeline.yml").write_text(SPEC)
    project.run("events")
    assert numbers(project) == [4, 5]
