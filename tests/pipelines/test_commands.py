"""`headrace pipeline` as it is typed, and what it prints."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.pipelines.watch import Watch
from tests.golden import assert_golden
from tests.pipelines.project import Project, one_by_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).parent / "printed"

SQL = """
CREATE STREAMING TABLE events AS SELECT * FROM STREAM json.`in`;
CREATE MATERIALIZED VIEW counts AS SELECT id % 3 AS k, count(*) AS n FROM events GROUP BY id % 3;
CREATE MATERIALIZED VIEW kept AS SELECT k FROM counts WHERE n > 1;
CREATE MATERIALIZED VIEW sketch AS SELECT theta_sketch_estimate(theta_sketch_agg(id)) AS n FROM events;
"""

EVENTS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.table
def events():
    return SparkSession.active().readStream.schema("id INT, v INT").json("in")
"""


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project.new(tmp_path / "project", spark, a_py=EVENTS, b_sql=SQL.partition(";")[2])
    made.add("in", 1, [{"id": at, "v": 1} for at in range(7)])
    one_by_one(made)
    monkeypatch.chdir(made.root / "transformations")
    return made


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def shown(text: str, project: Project) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"[\d,]+ bytes of state", "N bytes of state", text)
    return text.replace(str(project.root), "PROJECT")


RECURSION = """
CREATE MATERIALIZED VIEW reached AS
WITH RECURSIVE r(n) AS (
  SELECT id FROM {events} UNION ALL (SELECT n + 1 FROM r WHERE n < 12 EXCEPT SELECT n FROM r)
)
SELECT n FROM r;
"""
BY_PARITY = "CREATE MATERIALIZED VIEW parity AS SELECT n % 2 AS p, count(*) AS c FROM reached GROUP BY n % 2;"


def test_a_recursion_without_an_incremental_form_is_recomputed_and_the_log_says_why(project: Project) -> None:
    project.write("b.sql", RECURSION.format(events="events") + BY_PARITY)
    for number, ids in (2, range(7)), (3, [10, 3]):
        project.add("in", number, [{"id": at, "v": 1} for at in ids])
        printed = headrace("run")
        assert printed.exit_code == 0, printed.output
        lines = {
            line.split()[3].rpartition(".")[2]: line
            for line in printed.stdout.splitlines()
            if " COMPLETED" in line
        }
        assert (
            "recompute (the query has a recursion that leaves out rows by its own, with EXCEPT"
            in lines["reached"]
        )
        assert " incremental" in lines["parity"]
        query = (
            RECURSION.format(events=f"parquet.`{project.path('events')}`").partition(" AS\n")[2].strip(" ;\n")
        )
        expected = Counter(map(tuple, project.spark.sql(query).collect()))
        assert project.rows("reached") == expected
        assert project.rows("parity") == Counter(
            (parity, sum(copies for (n,), copies in expected.items() if n % 2 == parity)) for parity in (0, 1)
        )


def test_what_a_run_prints(project: Project) -> None:
    first = headrace("run")
    assert first.exit_code == 0, first.output
    assert_golden(GOLDEN / "run.txt", shown(first.stdout, project))
    project.add("in", 2, [{"id": 9, "v": 1}])
    lines = [json.loads(line) for line in headrace("run", "--log-format", "json").stdout.splitlines()]
    done = {line["table"].rpartition(".")[2]: line for line in lines if line.get("state") == "COMPLETED"}
    assert {name: line["rows"] for name, line in done.items()} == {
        "events": 8, "counts": 3, "kept": 3, "sketch": 1,
    }  # fmt: skip
    assert {name: line["changed"] for name, line in done.items()} == {
        "events": True, "counts": True, "kept": False, "sketch": True,
    }  # fmt: skip
    assert (done["counts"]["method"], done["counts"]["rows_read"]) == ("incremental", 1)
    assert lines[-1]["run"] == "COMPLETED"

    explained = headrace("explain", "--spec", str(project.root / "spark-pipeline.yml"))
    assert_golden(GOLDEN / "explain.txt", shown(explained.stdout, project))
    assert_golden(GOLDEN / "draw.txt", headrace("draw").stdout)
    assert headrace("draw", "--format", "dot").stdout.startswith("digraph")


def test_a_stream_over_a_table_is_drawn_from_its_box(project: Project) -> None:
    project.write("c.sql", "CREATE STREAMING TABLE copies AS SELECT * FROM STREAM(events);")
    drawn = headrace("draw").stdout
    boxes = {line.split("[")[0].split("(")[0].strip() for line in drawn.splitlines() if ":::" in line}
    ends = {end.strip() for line in drawn.splitlines() if "--> " in line or "==> " in line
            for end in re.split("-->|==>", line)}  # fmt: skip
    assert ends == boxes


def test_what_a_failed_run_prints(project: Project) -> None:
    project.write("b.sql", "CREATE MATERIALIZED VIEW counts AS SELECT sum(id / (v - 1)) AS n FROM events;"
                  "CREATE MATERIALIZED VIEW kept AS SELECT n FROM counts WHERE n > 1;")  # fmt: skip
    failed = headrace("run")
    assert failed.exit_code == 1
    text = shown(failed.stdout, project)
    assert "TIME: Flow 'spark_catalog.default.counts' has FAILED.\nError: " in text
    assert "TIME: Flow 'spark_catalog.default.kept' SKIPPED due to upstream failure(s).\n" in text
    assert text.endswith("TIME: Run has FAILED.\n")
    assert project.rows("events").total() == 7
    assert not project.path("counts").exists()


def test_what_is_refused(project: Project) -> None:
    for arguments, said in {
        ("run", "--refresh", "nope"): "P803 UnknownDataset",
        ("run", "--full-refresh-all", "--refresh", "counts"): "--full-refresh-all goes with neither",
        ("dry-run", "--refresh-policy", "incremental_strict"): "P805 NotIncremental",
        ("run", "--spec", "nowhere.yml"): "P801 BadSpec",
    }.items():
        refused = headrace(*arguments)
        assert refused.exit_code == 2, arguments
        assert said in refused.output
    assert not (project.root / "storage/catalog/current").exists()


def test_a_run_that_goes_on(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def paused(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) >= 3:
            raise KeyboardInterrupt
        project.add("in", len(pauses) + 1, [{"id": 9, "v": 1}] if len(pauses) == 1 else [])

    monkeypatch.setattr(Watch, "wait", lambda _, longest: paused(longest))
    ended = headrace("run", "--continuous", "--every", "0.5", "--refresh", "events,counts")
    assert ended.exit_code == 130
    assert pauses == [0.5, 0.5, 0.5]
    lines = [line.partition(": ")[2] for line in ended.stdout.splitlines() if "COMPLETED" in line]
    assert [line.partition(",")[0] for line in lines] == [
        "Flow spark_catalog.default.events has COMPLETED: 7 rows",
        "Flow spark_catalog.default.counts has COMPLETED: 3 rows",
        "Flow spark_catalog.default.events has COMPLETED: 8 rows",
        "Flow spark_catalog.default.counts has COMPLETED: 3 rows",
    ]


def test_an_error_in_the_project_does_not_end_a_run_that_goes_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = SQL.partition(";")[2]
    steps = iter([
        lambda: project.write("c.sql", "CREATE MATERIALIZED VIEW more AS SELEKT 1;"),
        lambda: project.add("in", 2, [{"id": 9, "v": 1}]),
        lambda: project.write("b.sql", right.replace("count(*)", "count(*, missing)")),
        lambda: project.write("a.py", EVENTS.replace("return", "retrun")),
        lambda: project.write("a.py", EVENTS),
        lambda: (project.write("b.sql", right), project.write("c.sql", "")),
    ])  # fmt: skip

    def paused(_: float) -> None:
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(Watch, "wait", lambda _, longest: paused(longest))
    ended = headrace("run", "--continuous")
    assert ended.exit_code == 130
    said = [line.partition(": ")[2] for line in shown(ended.stdout, project).splitlines() if "TIME: " in line]
    news = said[said.index("The project has an ERROR; what it concerns stays as it is.") :]
    done = [line.partition(",")[0] for line in news]
    assert done[:5] == [
        "The project has an ERROR; what it concerns stays as it is.",
        "Flow spark_catalog.default.events has COMPLETED: 8 rows",
        "Flow spark_catalog.default.counts has COMPLETED: 3 rows",
        "Flow spark_catalog.default.sketch has COMPLETED: 1 rows",
        "The project has an ERROR; what it concerns stays as it is.",
    ]
    assert set(done[5:]) == {done[0]}
    for part in ("SELEKT", "missing", "retrun"):
        assert part in ended.stdout
    assert "ORPHANED" not in ended.stdout
    assert project.rows("counts").total() == 3


def test_tables_that_are_no_longer_defined_are_listed_and_removed(project: Project) -> None:
    project.write("c.sql", "CREATE MATERIALIZED VIEW more USING CHANGELOG AS SELECT id FROM events;")
    assert "ORPHANED" not in headrace("run").stdout
    project.write(
        "b.sql",
        SQL.partition(";")[2].replace("VIEW counts", "VIEW numbers").replace("FROM counts", "FROM numbers"),
    )
    project.write("c.sql", "")
    run = headrace("run", "--log-format", "json").stdout.splitlines()
    lines = [json.loads(line) for line in run]
    assert [line["table"] for line in lines if line.get("state") == "ORPHANED"] == [
        "spark_catalog.default.counts", "spark_catalog.default.more",
    ]  # fmt: skip
    assert lines[-1]["run"] == "COMPLETED"
    for arguments, said in {
        ("numbers",): "P802 BadDefinition: spark_catalog.default.numbers is defined in the project",
        ("nope",): "P803 UnknownDataset: the storage has no table 'nope' that the project does not define",
        (): "give either names of tables or --orphans",
    }.items():
        refused = headrace("drop", *arguments)
        assert refused.exit_code == 2
        assert said in refused.output
    assert headrace("drop", "More").exit_code == 2
    assert headrace("drop", "default.more").stdout == "spark_catalog.default.more is removed\n"
    assert headrace("drop", "--orphans").stdout == "spark_catalog.default.counts is removed\n"
    assert headrace("drop", "--orphans").stdout == "no table is orphaned\n"
    left = {each.name for kind in ("tables", "changes", "state", "changelog")
            for each in (project.root / "storage" / kind).glob("default/*")}  # fmt: skip
    assert not left & {"counts", "more"}
    assert project.rows("numbers").total() == 3
    assert "ORPHANED" not in headrace("run").stdout


def test_a_dry_run_writes_nothing(project: Project) -> None:
    dry = headrace("dry-run")
    assert dry.exit_code == 0
    assert "spark_catalog.default.sketch   recompute   the query aggregates by ThetaSketchAgg" in dry.stdout
    assert not (project.root / "storage").exists()
    assert headrace("run", "--refresh", "events").exit_code == 0
    assert headrace("run", "--full-refresh", "events,counts").exit_code == 0
