"""`headrace check` of a project: each broken file, statement and table is found, and none hides another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from tests.golden import assert_golden
from tests.pipelines.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVENTS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.table
def events():
    return SparkSession.active().readStream.schema("id INT, v INT").json("in")
"""

SQL = """
CREATE MATERIALIZED VIEW right AS SELECT id, count(*) AS n FROM events GROUP BY id;
CREATE MATERIALIZED VIEW unknown_column AS SELECT idd FROM events;
CREATE MATERIALIZED VIEW after_it AS SELECT * FROM unknown_column;
CREATE MATERIALIZED VIEW unknown_table AS SELECT * FROM evnts;
CREATE MATERIALIZED VIEW sketch AS SELECT theta_sketch_estimate(theta_sketch_agg(id)) AS n FROM events;
CREATE MATERIALIZED VIEW accepted
  TBLPROPERTIES ('headrace.refresh_policy' = 'full')
  AS SELECT theta_sketch_estimate(theta_sketch_agg(v)) AS n FROM events;
"""

WRONG = """
DROP TABLE events;
CREATE STREAMING TABLE no_flow;
CREATE MATERIALIZED VIEW of_no_flow AS SELECT * FROM no_flow;
CREATE MATERIALIZED VIEW of_broken AS SELECT * FROM made_by_broken_file;
"""

BROKEN = "from pyspark import pipelines as dp\n\ndp.table(1 / 0)\n"


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project.new(tmp_path / "project", spark, a_py=EVENTS, b_sql=SQL)
    (made.root / "in").mkdir()
    monkeypatch.chdir(made.root)
    return made


def check(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["check", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def places(*arguments: str) -> list[tuple[str, str, int]]:
    found = json.loads(check(*arguments, "--output-format", "json")[1])
    return [(each["file"].rpartition("/")[2], each["code"], each["line"]) for each in found]


def test_no_broken_table_hides_another(project: Project) -> None:
    code, text = check(".")
    assert code == 1
    assert_golden(Path(__file__).parent / "printed" / "check.txt", text)


def test_files_and_statements_that_are_wrong_hide_no_others_and_bring_no_consequences(
    project: Project,
) -> None:
    project.write("c.sql", WRONG)
    project.write("d.py", BROKEN)
    assert places(".") == [
        ("c.sql", "P802", 2),
        ("d.py", "P802", 3),
        ("c.sql", "P802", 3),
        ("b.sql", "P804", 3),
        ("b.sql", "P805", 6),
    ]


def test_a_file_of_a_project_stands_for_the_project(project: Project) -> None:
    project.write("b.sql", "CREATE MATERIALIZED VIEW right AS SELECT id FROM events;")
    assert check("transformations/a.py", "transformations/b.sql", "spark-pipeline.yml", ".") == (
        0,
        "1 file checked: no findings\n",
    )


def test_data_that_are_missing_are_a_warning_for_what_could_not_be_checked(project: Project) -> None:
    project.write("b.sql", "CREATE MATERIALIZED VIEW right AS SELECT id FROM events;")
    (project.root / "in").rmdir()
    code, text = check(".")
    assert code == 0
    assert "a.py:7: warning: P804 QueryRefused" in text
    assert "Fix: create the folder, or correct its path" in text


def test_a_file_beside_a_project_is_checked_by_itself(project: Project) -> None:
    (project.root / "other.py").write_text("import headrace as hr\nflow = hr.Flow('x')\n")
    assert places("other.py") == [("other.py", "P104", 2)]


def test_a_malformed_spec_is_a_finding(project: Project) -> None:
    spec = project.root / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("storage: storage", "storage: [1]"))
    assert places("transformations/a.py") == [("spark-pipeline.yml", "P801", 2)]


def test_a_folder_without_a_project_cannot_be_checked(tmp_path: Path) -> None:
    code, text = check(str(tmp_path))
    assert code == 2
    assert f"P801 BadSpec: {tmp_path} is not the folder of a pipeline" in text
