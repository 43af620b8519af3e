"""Rollback of a pipeline: the tables of an earlier run, and what the next runs make of them."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import HeadraceError
from headrace.pipelines.catalog import PipelineCatalog, TableEntry
from headrace.pipelines.definitions import Place, TableName
from headrace.pipelines.errors import CatalogDamaged, PipelineInUse, RunNotKept
from headrace.pipelines.event_log import EventLog
from headrace.pipelines.maintenance import drop
from headrace.pipelines.pipeline_run import RunReport, run_pipeline
from headrace.pipelines.rollback import rollback
from headrace.tables.version_folders import data_files
from tests.golden import assert_golden
from tests.pipelines.project import SPEC, Project, event
from tests.pipelines.test_earlier_runs import kept
from tests.pipelines.test_in_process import never
from tests.pipelines.test_kills import Killed, killed_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.table
def events():
    return spark.readStream.schema("id INT, v INT, at INT").json("in")

dp.create_streaming_table("latest")
dp.create_auto_cdc_flow("latest", "events", ["id"], "at")

@dp.materialized_view
def positive():
    return spark.table("latest").where("v > 0")
"""
SQL = """
CREATE MATERIALIZED VIEW totals AS SELECT v % 3 AS k, count(*) AS n, sum(v) AS v FROM positive GROUP BY v % 3;
CREATE MATERIALIZED VIEW logged USING CHANGELOG AS SELECT k, n FROM totals;
CREATE MATERIALIZED VIEW names AS SELECT name, count(*) AS n FROM json.`names` GROUP BY name;
"""
TABLES = ("events", "latest", "positive", "totals", "logged", "names")
Rows = dict[str, Counter[tuple[Any, ...]]]


def table(name: str) -> TableName:
    return TableName("default", name)


def new_project(root: Path, spark: SparkSession, retention: str = "20 runs") -> Project:
    project = Project.new(root, spark, a_py=PYTHON, b_sql=SQL)
    (root / "spark-pipeline.yml").write_text(kept(retention) if retention else SPEC)
    return project


def published(project: Project) -> Rows:
    # A version without rows may have no file.
    return {name: project.rows(name) if data_files(project.path(name)) else Counter() for name in TABLES}


def delivered(project: Project) -> Counter[tuple[Any, ...]]:
    """The rows that the ticks of the changelog add up to."""
    files = f"{project.root}/storage/changelog/default/logged/*/*.parquet"
    found = duckdb.sql(f"SELECT k, n, sum(weight)::INT FROM read_parquet('{files}') GROUP BY ALL")
    assert found is not None
    return Counter({(k, n): weight for k, n, weight in found.fetchall() if weight})


def expected(project: Project) -> Rows:
    """The tables as they are made from scratch of the inputs that are there."""

    def read(folder: str) -> Iterator[dict[str, Any]]:
        for file in sorted((project.root / folder).glob("*.json")):
            yield from map(json.loads, file.read_text().splitlines())

    events = list(read("in"))
    latest: dict[int, tuple[int, int]] = {}
    for row in events:
        latest[row["id"]] = max(latest.get(row["id"], (-1, -1)), (row["at"], row["v"]))
    positive = {key: v for key, (_, v) in latest.items() if v > 0}
    groups: dict[int, list[int]] = {}
    for v in positive.values():
        groups.setdefault(v % 3, []).append(v)
    return {
        "events": Counter((row["id"], row["v"], row["at"]) for row in events),
        "latest": Counter((key, v, at) for key, (at, v) in latest.items()),
        "positive": Counter((key, v, latest[key][0]) for key, v in positive.items()),
        "totals": Counter((key, len(vs), sum(vs)) for key, vs in groups.items()),
        "logged": Counter((key, len(vs)) for key, vs in groups.items()),
        "names": Counter(Counter(row["name"] for row in read("names")).items()),
    }


def more(project: Project, draw: random.Random, number: int) -> None:
    """Add records, and replace or add a file of names."""
    rows = [{"id": draw.randrange(6), "v": draw.randrange(-3, 9), "at": number * 100 + at}
            for at in range(draw.randrange(1, 6))]  # fmt: skip
    project.add("in", number, rows)
    names = [{"name": draw.choice("abcd")} for _ in range(draw.randrange(1, 7))]
    project.add("names", draw.randrange(1, 4), names)


def last_run(project: Project) -> int:
    return PipelineCatalog.published_runs(project.spec.storage)[-1].number


def entries(project: Project) -> dict[TableName, TableEntry]:
    return dict(PipelineCatalog.last_entries(project.spec.storage))


@pytest.mark.seeds(2, verify_from=1)
def test_after_a_rollback_the_next_run_makes_what_a_first_run_would(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    draw = random.Random(seed)
    project = new_project(tmp_path / "project", spark)
    was: dict[int, Rows] = {}
    versions: dict[tuple[str, int], Counter[tuple[Any, ...]]] = {}

    def remember() -> None:
        was[last_run(project)] = published(project)
        for name, entry in entries(project).items():
            rows = was[last_run(project)][name.table]
            # A number of a version stands for the same rows for ever.
            assert versions.setdefault((name.table, entry.version), rows) == rows

    for number in range(1, 12):
        if len(was) > 2 and draw.random() < 0.5:
            to = draw.choice([*was])
            rollback(project.spec, to)
            assert published(project) == was[to]
            remember()
        if number == 1 or draw.random() < 0.8:
            more(project, draw, number)
        selected = () if number == 1 else draw.choice([(), (), (), ("events", "latest"), ("names",)])
        report = project.run(*selected, place=draw.choice([Place.AUTO, Place.AUTO, Place.SPARK]))
        assert not report.failed, [str(each.error) for each in report.events.values() if each.error]
        if not selected:
            assert published(project) == expected(project)
            assert delivered(project) == published(project)["logged"]
        remember()


def test_the_next_run_reads_on_from_there_on_the_state_of_then(tmp_path: Path, spark: SparkSession) -> None:
    project = new_project(tmp_path / "project", spark)
    for number in range(1, 4):
        more(project, random.Random(number), number)
        project.run()
    second = rollback(project.spec, 2)
    assert (second.run, second.published) == (2, 4)
    assert not second.rebuilt
    assert second.delivered == [table("logged")] or not second.delivered
    project.write("b.sql", SQL.replace(" USING CHANGELOG", ""))
    project.run()
    rollback(project.spec, 2)
    # Neither Spark nor all rows are needed to go on.
    report = run_pipeline(project.spec, never, place=Place.HERE)
    assert not report.failed, report
    methods = {name: event(report, name).updated for name in ("latest", "positive", "totals")}
    assert not any(updated is None or updated.whole for updated in methods.values())
    assert published(project) == expected(project)
    rollback(project.spec, 2)
    report = project.run(place=Place.SPARK)
    methods = {name: event(report, name).updated for name in ("latest", "positive", "totals")}
    assert not any(updated is None or updated.whole for updated in methods.values())
    assert published(project) == expected(project)


def test_a_rollback_is_a_run_that_can_be_undone(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = new_project(tmp_path / "project", spark)
    for number in range(1, 3):
        more(project, random.Random(number), number)
        project.run()
    now = published(project)
    monkeypatch.chdir(project.root)
    printed = CliRunner().invoke(app, ["pipeline", "rollback", "1"])
    assert printed.exit_code == 0, printed.output
    assert_golden(Path(__file__).parent / "printed/rollback.txt", printed.stdout)
    records = EventLog(project.spec.storage).records(run=3)
    assert {(each.state, each.method, each.reason) for each in records if each.kind == "table"} == {
        ("COMPLETED", "rollback", "as after run 1")
    }
    assert [each.state for each in records if each.kind == "run"] == ["RUNNING", "COMPLETED"]
    assert rollback(project.spec, 2).published == 4
    assert published(project) == now
    again = rollback(project.spec, 4)
    assert again.published is None
    assert last_run(project) == 4
    project.run()
    assert published(project) == now == expected(project)


@pytest.mark.verify
def test_without_the_setting_state_is_made_anew(tmp_path: Path, spark: SparkSession) -> None:
    project = new_project(tmp_path / "project", spark, retention="")
    for number in range(1, 4):
        more(project, random.Random(number), number)
        project.run()
    with pytest.raises(RunNotKept):
        rollback(project.spec, 1)
    done = rollback(project.spec, 2)
    assert table("totals") in done.rebuilt
    more(project, random.Random(9), 9)
    report = project.run()
    updated = event(report, "totals").updated
    assert updated is not None
    assert updated.why == "from all rows: it was made without state before"
    assert published(project) == expected(project)
    assert delivered(project) == published(project)["logged"]


@pytest.mark.verify
def test_a_table_that_was_not_there_yet_is_made_by_the_next_run(tmp_path: Path, spark: SparkSession) -> None:
    project = new_project(tmp_path / "project", spark)
    more(project, random.Random(1), 1)
    project.run()
    project.write("c.sql", "CREATE MATERIALIZED VIEW late USING CHANGELOG AS SELECT k, v FROM totals;")
    project.run()
    more(project, random.Random(2), 2)
    project.run()
    version = entries(project)[table("late")].version
    assert rollback(project.spec, 1).removed == [table("late")]
    assert not project.path("late").exists()
    project.run()
    # Its readers, and its changelog, may have seen the versions that there were.
    assert entries(project)[table("late")].version > version
    assert project.rows("late") == Counter((k, v) for k, _, v in project.rows("totals"))


@pytest.mark.verify
def test_a_table_that_was_dropped_since_stays_so(tmp_path: Path, spark: SparkSession) -> None:
    project = new_project(tmp_path / "project", spark)
    more(project, random.Random(1), 1)
    project.run()
    project.write("b.sql", SQL.partition("CREATE MATERIALIZED VIEW names")[0])
    project.run()
    assert drop(project.spec, spark, ["names"], orphans=False) == [table("names")]
    done = rollback(project.spec, 1)
    assert done.dropped == [table("names")]
    project.write("b.sql", SQL)
    more(project, random.Random(2), 2)
    project.run()
    assert published(project) == expected(project)


@pytest.mark.verify
def test_rows_that_are_missing_are_no_run_to_go_back_to(tmp_path: Path, spark: SparkSession) -> None:
    project = new_project(tmp_path / "project", spark)
    for number in range(1, 3):
        more(project, random.Random(number), number)
        project.run()
    folder = project.root / "storage/tables/default/events/1"
    folder.rename(folder.with_name("aside"))
    before = published(project)
    with pytest.raises(CatalogDamaged, match=r"default\.events after run 1 are missing"):
        rollback(project.spec, 1)
    assert published(project) == before
    with (
        PipelineCatalog.open(project.spec.storage, project.spec.version_retention),
        pytest.raises(PipelineInUse),
    ):
        rollback(project.spec, 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.seeds(2, verify_from=1)
def test_a_rollback_that_is_killed_before_any_file_operation(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    draw = random.Random(seed)
    project = new_project(tmp_path / "project", spark)
    was: dict[int, Rows] = {}
    for number in range(1, 4):
        more(project, draw, number)
        project.run()
        was[number] = published(project)
    with killed_before(1 << 60) as operations:
        rollback(project.spec, 1)
    most = operations()
    was[4] = was[1]
    now = 4
    for _ in range(12):
        to = draw.choice([run for run in was if run != now])
        with killed_before(draw.randrange(1, most)), suppress(Killed):
            rollback(project.spec, to)
        assert published(project) in (was[now], was[to])
        now = last_run(project)
        was[now] = published(project)
    report: RunReport = project.run()
    assert not report.failed
    assert published(project) == expected(project)
    assert delivered(project) == published(project)["logged"]


def test_a_delta_table_is_brought_in_line(tmp_path: Path, spark: SparkSession) -> None:
    deltalake: Any = pytest.importorskip("deltalake", reason="deltalake is not installed")
    pa: Any = pytest.importorskip("pyarrow")
    project = new_project(tmp_path / "project", spark)
    project.write("b.sql", SQL.replace("USING CHANGELOG", "USING DELTA"))
    for number in range(1, 4):
        more(project, random.Random(number), number)
        project.run()
    assert rollback(project.spec, 1).delivered == [table("logged")]
    # The records are gone that had come since, so the tables stay as they were then.
    for number in range(2, 4):
        (project.root / "in" / f"{number}.json").unlink()
    assert not project.run().failed
    opened = deltalake.DeltaTable(project.root / "storage/delta/default/logged")
    there = Counter((row["k"], row["n"]) for row in pa.table(opened.scan()).to_pylist())
    assert there == project.rows("logged") == expected(project)["logged"]


@pytest.mark.verify
def test_sinks_keep_what_they_were_given(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = new_project(tmp_path / "project", spark)
    project.write("c.py", 'from pyspark import pipelines as dp\nfrom pyspark.sql import SparkSession\n'
        'dp.create_sink("out", "json", {"path": "out"})\n@dp.append_flow(target="out")\ndef f():\n'
        '    return SparkSession.active().readStream.table("events")\n')  # fmt: skip

    def given() -> Counter[int]:
        files = (project.root / "out").rglob("*.json")
        return Counter(json.loads(line)["id"] for file in files for line in file.read_text().splitlines())

    for number in range(1, 4):
        project.add("in", number, [{"id": number, "v": 1, "at": 1}])
        project.add("names", 1, [{"name": "ann"}])
        project.run()
    assert given() == {1: 1, 2: 1, 3: 1}
    done = rollback(project.spec, 2)
    assert done.sinks == [table("out")]
    assert given() == {1: 1, 2: 1, 3: 1}
    project.run()
    assert given() == {1: 1, 2: 1, 3: 2}


def test_errors_of_a_rollback_are_printed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = new_project(tmp_path / "project", spark)
    monkeypatch.chdir(project.root)
    refused = CliRunner().invoke(app, ["pipeline", "rollback", "3"])
    assert refused.exit_code == 2
    assert re.search(
        r"P810 RunNotKept: the tables of run 3 are not kept\s+No run has published", refused.output
    )
    assert issubclass(RunNotKept, HeadraceError)
