"""`headrace pipeline compact --erase`: no file of the storage holds what no table holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
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


FAILING = """
CREATE MATERIALIZED VIEW bad AS SELECT CAST(raise_error(mail) AS INT) AS e FROM people WHERE id = 20;
"""


def test_a_person_who_is_no_longer_in_the_input_is_in_no_file(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_sql=SQL)
    rows = [{"id": at, "mail": f"p{at}@somewhere"} for at in range(20)]
    project.add("in", 1, [*rows, {"id": 20, "mail": SECRET}])
    project.write("b.sql", FAILING)
    assert project.run().failed
    (project.root / "transformations/b.sql").unlink()
    project.add("in", 1, rows)
    project.run()
    storage = project.root / "storage"
    kinds = {name.partition("/")[0] for name in files_with(storage)}
    assert kinds >= {"changelog", "changes", "events", "state", "tables"}

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


def test_what_a_table_has_not_read_of_files_stays_and_is_told(tmp_path: Path, spark: SparkSession) -> None:
    text = """
        CREATE MATERIALIZED VIEW a AS SELECT count(*) AS n FROM json.`in`;
        CREATE MATERIALIZED VIEW b AS SELECT id FROM json.`in`;
    """
    project = Project.new(tmp_path / "project", spark, a_sql=text)
    project.add("in", 1, [{"id": 1, "mail": "p"}, {"id": 2, "mail": SECRET}])
    project.run()
    project.add("in", 1, [{"id": 1, "mail": "p"}])
    project.run("b")
    spec = str(project.root / "spark-pipeline.yml")
    done = CliRunner().invoke(app, ["pipeline", "compact", "--erase", "--spec", spec])
    assert done.exit_code == 1
    assert done.output.startswith("not erased: spark_catalog.default.a has not read all changes of what it ")
    assert "default.b" not in done.output
    project.run()
    done = CliRunner().invoke(app, ["pipeline", "compact", "--erase", "--spec", spec])
    assert (done.exit_code, done.output, files_with(project.root / "storage")) == (0, "erased\n", [])


DELTA = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

people = SparkSession.active().read.format("delta")

@dp.materialized_view
def n():
    return people.load("PEOPLE").groupBy().count()

@dp.materialized_view
def was():
    return people.option("versionAsOf", 0).load("PEOPLE").groupBy().count()
"""


def test_what_a_table_has_not_read_of_a_delta_table_stays_and_is_told(
    tmp_path: Path, spark: SparkSession
) -> None:
    deltalake = pytest.importorskip("deltalake")
    people = str(tmp_path / "people")
    project = Project.new(tmp_path / "project", spark, a_py=DELTA.replace("PEOPLE", people))
    deltalake.write_deltalake(people, pa.table({"id": [1, 2], "mail": ["p", SECRET]}))
    project.run()
    spec = str(project.root / "spark-pipeline.yml")
    assert CliRunner().invoke(app, ["pipeline", "compact", "--erase", "--spec", spec]).exit_code == 0
    deltalake.DeltaTable(people).delete("id = 2")
    done = CliRunner().invoke(app, ["pipeline", "compact", "--erase", "--spec", spec])
    assert done.exit_code == 1
    assert "not erased: spark_catalog.default.n has not read" in done.output
    assert "default.was" not in done.output
    project.run()
    done = CliRunner().invoke(app, ["pipeline", "compact", "--erase", "--spec", spec])
    assert (done.exit_code, done.output) == (0, "erased\n")
