"""Runs that fail, are divided, repeated or edited: no table is ever worse than it was."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipelines.errors import BadDefinition, PipelineInUse, UnknownDataset
from headrace.pipelines.pipeline_run import run_pipeline
from tests.golden import MESSAGES, assert_golden
from tests.pipelines.project import Project, changed, event, methods, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

@dp.materialized_view
def base():
    return spark.read.schema("id INT, v INT").json("in")

@dp.materialized_view
def doubled():
    return spark.table("base").withColumn("v", F.col("v") * 2).withColumnRenamed("v", "w")
"""
TOTAL = "CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(w) AS w FROM doubled;"


def rows_of(*values: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": first + at, "v": value} for at, value in enumerate(values)]


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    made = Project.new(tmp_path / "project", spark, a_py=PYTHON, b_sql=TOTAL)
    made.add("in", 1, rows_of(1, 2, 3))
    return made


def test_views_keep_their_dependencies_from_run_to_run(project: Project) -> None:
    project.run()
    assert project.rows("total") == Counter({(3, 12): 1})
    project.add("in", 2, rows_of(10, first=3))
    report = project.run()
    assert project.rows("total") == Counter({(4, 32): 1})
    assert changed(report) == {"base", "doubled", "total"}


def test_a_table_that_fails_and_those_that_read_it_keep_their_rows(project: Project) -> None:
    project.write("c.sql", "CREATE MATERIALIZED VIEW beside AS SELECT sum(v) AS v FROM base;")
    project.run()
    project.write(
        "a.py", PYTHON.replace('F.col("v") * 2', 'F.when(F.col("v") > 5, F.col("v") / 0).otherwise(2)')
    )
    project.add("in", 2, rows_of(10, first=3))
    report = project.run()
    assert states(report) == {
        "base": "COMPLETED",
        "doubled": "FAILED",
        "total": "SKIPPED",
        "beside": "COMPLETED",
    }
    assert "DIVIDE_BY_ZERO" in str(event(report, "doubled").error)
    assert project.rows("doubled") == Counter({(0, 2): 1, (1, 4): 1, (2, 6): 1})
    assert project.rows("total") == Counter({(3, 12): 1})
    assert project.rows("beside") == Counter({(16,): 1})

    project.write("a.py", PYTHON)
    report = project.run()
    assert states(report).keys() - {"base", "beside"} == changed(report)
    assert project.rows("total") == Counter({(4, 32): 1})


def test_what_is_not_selected_catches_up_later(project: Project) -> None:
    project.run()
    project.add("in", 2, rows_of(10, first=3))
    assert states(project.run("base")) == {"base": "COMPLETED", "doubled": "EXCLUDED", "total": "EXCLUDED"}
    assert project.rows("total") == Counter({(3, 12): 1})
    project.add("in", 3, rows_of(100, first=4))
    project.run("base")
    project.run()
    assert project.rows("total") == Counter({(5, 232): 1})


def test_names_that_are_not_there_are_refused(project: Project) -> None:
    with pytest.raises(UnknownDataset) as error:
        project.run("totals")
    assert_golden(MESSAGES / "unknown_dataset.txt", f"{error.value}\n")
    project.run("TOTAL", "spark_catalog.default.Base", "default.doubled")
    with pytest.raises(BadDefinition, match="refreshed and fully refreshed"):
        project.run("total", full=["total"])


def test_names_that_differ_in_case_are_one(project: Project) -> None:
    project.write("c.sql", "CREATE MATERIALIZED VIEW Total AS SELECT 1 AS n;")
    with pytest.raises(BadDefinition, match="defined twice"):
        project.run()


@pytest.mark.verify
def test_files_that_are_gone_or_changed_leave_the_tables(project: Project) -> None:
    project.add("in", 2, rows_of(10, first=3))
    project.run()
    (project.root / "in/1.json").unlink()
    report = project.run()
    assert project.rows("total") == Counter({(1, 20): 1})
    updated = event(report, "total").updated
    assert updated is not None
    assert updated.rows_in == 3
    project.add("in", 2, rows_of(7, 8))
    project.run()
    assert project.rows("total") == Counter({(2, 30): 1})


STREAMS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_streaming_table("events")

def read(folder):
    return spark.readStream.schema("id INT, v INT").json(folder)

@dp.append_flow(target="events")
def one():
    return read("one")

@dp.append_flow(target="events")
def other():
    return read("other")

@dp.table
def copies():
    return spark.readStream.table("events").where("v > 0")

@dp.materialized_view
def most():
    return spark.table("events").groupBy("id").max("v")
"""


def test_flows_into_one_table_keep_their_rows_apart(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=STREAMS)
    project.add("one", 1, rows_of(*range(100)))
    project.add("other", 1, rows_of(*range(100)))
    project.run()
    assert project.rows("events").total() == 200
    project.add("other", 2, rows_of(7))
    assert changed(project.run()) == {"events", "copies", "most"}
    assert project.rows("copies").total() == 199
    assert project.rows("most")[0, 7] == 1

    # A changed query of a stream gets the rows that come from now on.
    project.write("a.py", STREAMS.replace('"v > 0"', '"v > 1000"'))
    project.add("one", 2, rows_of(5, 2000))
    project.run()
    assert project.rows("copies").total() == 200
    project.run(full=["copies"])
    assert project.rows("copies").total() == 1


def test_a_stream_over_a_view_takes_added_rows_only(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    CREATE MATERIALIZED VIEW base AS SELECT * FROM json.`in`;
    CREATE STREAMING TABLE seen AS SELECT * FROM STREAM(base);
    """
    project = Project.new(tmp_path / "project", spark, a_sql=text)
    project.add("in", 1, rows_of(*range(100)))
    project.run()
    project.add("in", 2, rows_of(5, first=100))
    project.run()
    assert project.rows("seen").total() == 101
    (project.root / "in/1.json").unlink()
    report = project.run()
    assert states(report) == {"base": "COMPLETED", "seen": "FAILED"}
    assert "taken rows back" in str(event(report, "seen").error)
    assert project.rows("seen").total() == 101


def test_the_project_that_pyspark_makes_runs_as_it_is(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.pipelines.init_cli import init

    monkeypatch.chdir(tmp_path)
    init("made")
    project = Project(tmp_path / "made", spark, "pipeline-storage")
    for _ in range(2):
        assert set(states(project.run()).values()) == {"COMPLETED"}
        assert project.rows("example_python_materialized_view") == Counter((id_,) for id_ in range(10))
        assert project.rows("example_sql_materialized_view") == Counter([(0,), (2,), (4,), (6,), (8,)])


def test_views_of_views(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    CREATE VIEW kept AS SELECT id, v FROM json.`in` WHERE v > 1;
    CREATE TEMPORARY VIEW twice AS SELECT * FROM kept UNION ALL SELECT * FROM kept;
    CREATE MATERIALIZED VIEW total AS
    SELECT count(*) AS n, sum(v) AS v FROM twice WHERE v < (SELECT max(v) FROM kept);
    """
    project = Project.new(tmp_path / "project", spark, a_sql=text)
    project.add("in", 1, rows_of(1, 2, 3))
    project.run()
    assert project.rows("total") == Counter([(2, 4)])
    project.add("in", 2, rows_of(4, first=3))
    project.run()
    assert project.rows("total") == Counter([(4, 10)])


def test_a_second_run_at_the_same_time_is_refused(project: Project) -> None:
    refused: list[PipelineInUse] = []

    def while_running(_event: object) -> None:
        with pytest.raises(PipelineInUse) as error:
            project.run()
        refused.append(error.value)

    run_pipeline(project.spec, project.spark, observer=while_running)
    text = re.sub(
        r"process \d+ on \S+ has held it since .* UTC",
        "process N on HOST has held it since TIME",
        f"{refused[0]}\n",
    )
    assert_golden(MESSAGES / "pipeline_in_use.txt", text.replace(str(project.root), "PROJECT"))
    assert project.rows("total") == Counter({(3, 12): 1})


@pytest.mark.verify
def test_an_edited_project(project: Project) -> None:
    project.run()

    # A column more: the table is made anew, and so is what reads it.
    project.write(
        "a.py",
        PYTHON.replace(
            '.withColumnRenamed("v", "w")', '.withColumnRenamed("v", "w").withColumn("x", F.col("w") + 1)'
        ),
    )
    report = project.run()
    assert changed(report) == {"doubled"}
    assert project.rows("doubled") == Counter({(0, 2, 3): 1, (1, 4, 5): 1, (2, 6, 7): 1})

    # A filter.
    project.write("b.sql", TOTAL.replace(";", " WHERE w > 2;"))
    assert changed(project.run()) == {"total"}
    assert project.rows("total") == Counter({(2, 10): 1})

    # A table more, which reads what is there.
    project.write("c.sql", "CREATE MATERIALIZED VIEW most AS SELECT max(w) AS w FROM doubled;")
    assert changed(project.run()) == {"most"}
    assert project.rows("most") == Counter({(6,): 1})

    # Another name: a new table; the old one stays as it is.
    project.write("c.sql", "CREATE MATERIALIZED VIEW largest AS SELECT max(w) AS w FROM doubled;")
    project.add("in", 2, rows_of(50, first=3))
    assert changed(project.run()) == {"base", "doubled", "total", "largest"}
    assert project.rows("largest") == Counter({(100,): 1})
    assert project.rows("most") == Counter({(6,): 1})

    # A query that is wrong: nothing runs, and all is kept.
    project.write("c.sql", "CREATE MATERIALIZED VIEW largest AS SELECT max(z) AS w FROM doubled;")
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        project.run()
    assert project.rows("largest") == Counter({(100,): 1})
    assert methods(project_without(project, "c.sql").run()) == {
        "base": "incremental, stateless",
        "doubled": "incremental, stateless",
        "total": "incremental",
    }


def project_without(project: Project, file: str) -> Project:
    (project.root / "transformations" / file).unlink()
    return project
