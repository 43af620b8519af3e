"""Input files that are written anew: only what is different is handed on, and the log has the reasons."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipelines import input_identity
from tests.pipelines.project import Project, changed, dies, event, rows_read, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

def shops():
    return spark.read.schema("shop INT, land STRING").json("shops")

@dp.materialized_view
def big():
    return shops().where("shop > 0")

@dp.materialized_view
def sums():
    sales = spark.read.schema("shop INT, v INT").json("sales")
    return sales.join(shops(), "shop").groupBy("land").sum("v").withColumnRenamed("sum(v)", "v")

@dp.materialized_view(table_properties={"headrace.refresh_policy": "full"})
def all():
    return shops()
"""

SHOPS = [{"shop": at, "land": "de" if at < 3 else "fr"} for at in range(5)]
SALES = [{"shop": at % 5, "v": 1} for at in range(50)]


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    made = Project.new(tmp_path / "project", spark, a_py=PYTHON)
    made.add("shops", 1, SHOPS)
    made.add("sales", 1, SALES)
    report = made.run()
    assert set(states(report).values()) == {"COMPLETED"}
    assert made.rows("sums") == Counter({("de", 30): 1, ("fr", 20): 1})
    return made


def rewrite(project: Project, rows: list[dict[str, Any]], *, seconds: int) -> Path:
    """Replace the file of the shops by another one, so many seconds later."""
    file = project.root / "shops/1.json"
    at = file.stat().st_mtime + seconds
    file.unlink()
    project.add("shops", 1, rows)
    os.utime(file, (at, at))
    return file


def why(report: Any, table: str) -> str:
    updated = event(report, table).updated
    assert updated is not None
    return updated.why


def test_a_file_that_is_written_anew_with_equal_bytes_changes_nothing(project: Project) -> None:
    for seconds in (1, 2):
        rewrite(project, SHOPS, seconds=seconds)
        report = project.run()
        assert {table: rows_read(report, table) for table in ("big", "sums", "all")} == {
            "big": 0, "sums": 0, "all": 0,
        }  # fmt: skip
        assert not changed(report)


def test_the_difference_of_a_changed_file_is_handed_on(project: Project) -> None:
    moved = [*SHOPS[:4], {"shop": 4, "land": "it"}]
    rewrite(project, moved, seconds=1)
    report = project.run()
    assert {table: rows_read(report, table) for table in ("big", "sums")} == {"big": 2, "sums": 2}
    assert why(report, "sums") == ""
    assert project.rows("sums") == Counter({("de", 30): 1, ("fr", 10): 1, ("it", 10): 1})
    assert project.rows("big") == Counter((s["shop"], s["land"]) for s in moved[1:])
    # And back; with another file gone and a new one beside it.
    rewrite(project, SHOPS[1:], seconds=2)
    project.add("shops", 2, SHOPS[:1])
    report = project.run()
    assert rows_read(report, "sums") == 2
    assert project.rows("sums") == Counter({("de", 30): 1, ("fr", 20): 1})
    (project.root / "shops/2.json").unlink()
    project.run()
    assert project.rows("sums") == Counter({("de", 20): 1, ("fr", 20): 1})
    # Of contents that nobody has to compare with any more, none is kept.
    kept = list((project.root / "storage/inputs/of").rglob("*.json"))
    assert sorted(file.read_text() for file in kept) == sorted(
        file.read_text() for folder in ("shops", "sales") for file in (project.root / folder).iterdir()
    )


def test_a_file_that_has_another_name_and_equal_bytes_is_not_read(project: Project) -> None:
    (project.root / "shops/1.json").rename(project.root / "shops/part-0.json")
    report = project.run()
    assert {table: rows_read(report, table) for table in ("big", "sums", "all")} == {
        "big": 0, "sums": 0, "all": 0,
    }  # fmt: skip
    assert set(project.run().events) == set(report.events)


def test_partitions_that_are_written_anew(tmp_path: Path, spark: SparkSession) -> None:
    text = "CREATE MATERIALIZED VIEW n AS SELECT day, sum(v) AS v FROM json.`in` GROUP BY day;"
    project = Project.new(tmp_path / "project", spark, a_sql=text)
    for day in (1, 2):
        project.add("in", day, [])
        (project.root / f"in/{day}.json").unlink()
        (project.root / f"in/day={day}").mkdir()
        project.add(f"in/day={day}", 1, [{"v": at} for at in range(10)])
    project.run()
    assert project.rows("n") == Counter({(1, 45): 1, (2, 45): 1})
    (project.root / "in/day=2/1.json").unlink()
    project.add("in/day=2", 2, [{"v": at} for at in range(1, 11)])
    report = project.run()
    assert rows_read(report, "n") == 2
    assert project.rows("n") == Counter({(1, 45): 1, (2, 55): 1})


def test_what_a_query_sees_of_the_file_itself_counts(tmp_path: Path, spark: SparkSession) -> None:
    text = "CREATE MATERIALIZED VIEW n AS SELECT v, _metadata.file_modification_time AS at FROM json.`in`;"
    project = Project.new(tmp_path / "project", spark, a_sql=text)
    file = project.add("in", 1, [{"v": 1}])
    project.run()
    os.utime(file, (5, 5))
    report = project.run()
    assert changed(report) == {"n"}
    assert why(report, "n") == f"from all rows: {file} has changed, and the query reads _metadata"


def test_a_file_that_is_too_large_to_copy_has_a_second_name(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_identity, "COPIED", 0)
    text = "CREATE MATERIALIZED VIEW n AS SELECT shop, count(*) AS n FROM json.`shops` GROUP BY shop;"
    project = Project.new(tmp_path / "project", spark, a_sql=text)
    file = project.add("shops", 1, SHOPS)
    project.run()
    rewrite(project, SHOPS[1:], seconds=1)
    assert rows_read(project.run(), "n") == 1
    assert project.rows("n") == Counter({(at, 1): 1 for at in range(1, 5)})
    # Written in place, the second name has the new content too.
    file.write_text('{"shop": 9}\n')
    os.utime(file, (7, 7))
    report = project.run()
    assert project.rows("n") == Counter({(9, 1): 1})
    assert why(report, "n") == f"from all rows: {file} has changed, and its rows before are not kept"


def test_a_file_that_changes_while_it_is_read_is_not_trusted(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.pipelines.table_update import Updater

    moved = [*SHOPS[:4], {"shop": 4, "land": "it"}]
    project.write("a.py", PYTHON + "\n@dp.materialized_view\ndef more():\n    return shops()\n")
    run = Updater.run
    with monkeypatch.context() as patched:

        def meanwhile(updater: Updater) -> Any:
            if updater.plan.table.name.table == "more":
                rewrite(project, moved, seconds=1)
            return run(updater)

        patched.setattr(Updater, "run", meanwhile)
        project.run()
    report = project.run()
    assert "has changed, and its rows before are not kept" in why(report, "more")
    assert project.rows("more") == Counter((s["shop"], s["land"]) for s in moved)
    assert project.rows("sums") == Counter({("de", 30): 1, ("fr", 10): 1, ("it", 10): 1})


def test_the_reason_of_what_is_made_from_all_rows(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=PYTHON)
    project.add("shops", 1, SHOPS)
    project.add("sales", 1, SALES)
    assert why(project.run(), "big") == "from all rows: first run"
    assert why(project.run(full=["big"]), "big") == "from all rows: --full-refresh"
    assert why(project.run("big"), "big") == ""

    project.write("a.py", PYTHON.replace("shop > 0", "shop > 1"))
    report = project.run("big", "sums")
    assert why(report, "big") == "from all rows: its query has changed (Filter)"
    assert why(report, "sums") == ""
    project.write(
        "a.py", PYTHON.replace('where("shop > 0")', 'selectExpr("*", "1 AS one").where("shop > 0")')
    )
    assert "its columns have changed (one is new)" in why(project.run("big"), "big")
    project.write("a.py", PYTHON.replace("shop INT, land STRING", "shop LONG, land STRING"))
    report = project.run("big", "sums")
    assert "its columns have changed" in why(report, "big")
    assert f"its query has changed (Join, input files {project.root / 'shops'}" in why(report, "sums")

    spec = project.root / "spark-pipeline.yml"
    spec.write_text(spec.read_text() + "configuration: {spark.sql.caseSensitive: 'true'}\n")
    assert "spark.sql.caseSensitive is true, was false" in why(project.run("sums"), "sums")


def test_a_column_of_files_that_a_query_does_not_read_may_come_and_go(project: Project) -> None:
    project.write("a.py", PYTHON.replace("land STRING", "land STRING, note STRING"))
    project.add("shops", 2, [{"shop": 0, "land": "it", "note": "n"}])
    report = project.run()
    assert "its columns have changed (note is new)" in why(report, "big")
    assert (why(report, "sums"), rows_read(report, "sums")) == ("", 1)
    assert project.rows("sums") == Counter({("de", 30): 1, ("fr", 20): 1, ("it", 10): 1})
    project.write("a.py", PYTHON)
    project.add("shops", 3, [{"shop": 1, "land": "it"}])
    report = project.run()
    assert (why(report, "sums"), rows_read(report, "sums")) == ("", 1)
    assert project.rows("sums") == Counter({("de", 30): 1, ("fr", 20): 1, ("it", 20): 1})


CSV = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

def read():
    return spark.read.READ.csv("in")

@dp.materialized_view
def counts():
    return read().groupBy("b").count()

@dp.materialized_view
def row_by_row():
    return read().select("b")
"""


def test_a_column_of_a_csv_file_that_a_query_does_not_read_moves_the_others(
    tmp_path: Path, spark: SparkSession
) -> None:
    text = CSV.replace("READ", "options(header=True, inferSchema=True)")
    project = Project.new(tmp_path / "project", spark, a_py=text)
    (project.root / "in").mkdir()
    file = project.root / "in/1.csv"
    file.write_text("a,b\n1,2\n4,5\n")
    project.run()
    assert project.rows("counts") == Counter({(2, 1): 1, (5, 1): 1})
    file.unlink()
    file.write_text("a,x,b\n1,7,2\n4,7,5\n")
    assert set(states(project.run()).values()) == {"COMPLETED"}
    assert project.rows("counts") == Counter({(2, 1): 1, (5, 1): 1})
    assert project.rows("row_by_row") == Counter({(2,): 1, (5,): 1})


def test_a_corrected_schema_of_csv_files_moves_the_columns(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=CSV.replace("READ", 'schema("a INT, b INT")'))
    (project.root / "in").mkdir()
    (project.root / "in/1.csv").write_text("1,7,2\n4,7,5\n")
    project.run()
    assert project.rows("row_by_row") == Counter({(7,): 2})
    project.write("a.py", CSV.replace("READ", 'schema("a INT, x INT, b INT")'))
    report = project.run()
    assert "its query has changed (" in why(report, "row_by_row")
    assert project.rows("row_by_row") == Counter({(2,): 1, (5,): 1})
    assert project.rows("counts") == Counter({(2, 1): 1, (5, 1): 1})


@pytest.mark.parametrize(
    "read",
    [
        "SELECT id, _metadata.file_name AS name FROM json.`in`",
        "SELECT 1 AS id, substring(path, -6) AS name FROM binaryFile.`in`",
    ],
)
def test_the_name_of_a_file_is_read_anew(read: str, tmp_path: Path, spark: SparkSession) -> None:
    text = f"""
        CREATE MATERIALIZED VIEW ids AS SELECT id FROM json.`in`;
        CREATE MATERIALIZED VIEW names AS {read};
    """
    project = Project.new(tmp_path / "project", spark, a_sql=text)
    file = project.add("in", 1, [{"id": 1}])
    project.run()
    assert project.rows("names") == Counter({(1, "1.json"): 1})
    file.rename(file.with_name("2.json"))
    report = project.run()
    assert project.rows("names") == Counter({(1, "2.json"): 1})
    assert rows_read(report, "ids") == 0


def test_files_that_nobody_compares_have_no_checksums(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        CREATE MATERIALIZED VIEW n TBLPROPERTIES ('headrace.refresh_policy' = 'full')
        AS SELECT v FROM json.`in`;
    """
    project = Project.new(tmp_path / "project", spark, a_sql=text)
    file = project.add("in", 1, [{"v": 1}])
    monkeypatch.setattr(input_identity, "_digest", dies)
    project.run()
    assert not changed(project.run())
    os.utime(file, (5, 5))
    project.add("in", 2, [{"v": 2}])
    project.run()
    assert project.rows("n") == Counter({(1,): 1, (2,): 1})
