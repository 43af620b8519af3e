"""`penstock pipeline compact --erase`: no file of the storage holds what no table holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from tests.pipelines.project import Project
from tests.state.test_erasure import SECRET, files_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SQL = """
CREATE MATERIALIZED VIEW people USING CHANGELOG AS SELECT id, mail FROM json.`in`;
CREATE MATERIALIZED VIEW mails AS SELECT mail, count(*) AS n, max(id) AS id FROM people GROUP BY mail;
CREATE MATERIALIZED VIEW same AS SELECT a.mail FROM people a JOIN people b ON a.id = b.id;
"""


def test_a_person_who_is_no_longer_in_the_input_is_in_no_file(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_sql=SQL)
    rows = [{"id": at, "mail": f"p{at}@somewhere"} for at in range(20)]
    project.add("in", 1, [*rows, {"id": 20, "mail": SECRET}])
    project.run()
    project.add("in", 1, rows)
    project.run()
    storage = project.root / "storage"
    kinds = {name.partition("/")[0] for name in files_with(storage)}
    assert kinds >= {"changelog", "changes", "state", "tables"}

    spec = str(project.root / "spark-pipeline.yml")
    assert CliRunner().invoke(app, ["pipeline", "compact", "--spec", spec]).exit_code == 2
    done = CliRunner().invoke(app, ["pipeline", "compact", "--erase", "--spec", spec])
    assert (done.exit_code, done.output) == (0, "erased\n")
    assert files_with(storage) == []

    project.add("in", 2, [{"id": 30, "mail": "new@somewhere"}])
    project.run()
    mails = [*(row["mail"] for row in rows), "new@somewhere"]
    assert project.rows("same") == Counter((mail,) for mail in mails)
    assert sum(project.rows("mails").values()) == 21


def test_what_a_table_has_not_read_stays_and_is_told(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_sql=SQL)
    project.add("in", 1, [{"id": 20, "mail": SECRET}])
    project.run()
    project.add("in", 1, [{"id": 21, "mail": "p"}])
    project.run("people")
    spec = str(project.root / "spark-pipeline.yml")
    done = CliRunner().invoke(app, ["pipeline", "compact", "--erase", "--spec", spec])
    assert done.exit_code == 1
    assert "not erased: spark_catalog.default.mails has not read all changes of what it reads" in done.output
    project.run()
    assert project.rows("same") == Counter([("p",)])
    done = CliRunner().invoke(app, ["pipeline", "compact", "--erase", "--spec", spec])
    assert (done.exit_code, files_with(project.root / "storage")) == (0, [])
