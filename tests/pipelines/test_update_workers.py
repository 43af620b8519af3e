"""Tables that Spark refreshes side by side, and updates that are retried."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipelines import pipeline_run, table_update
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import TableName
from headrace.pipelines.pipeline_run import Event, UpdateState, run_pipeline
from headrace.pipelines.spec import PipelineSpec
from headrace.pipelines.update_workers import Retries, UpdateWorkers, is_transient
from tests.pipelines.project import Project, event, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SQL = """
CREATE MATERIALIZED VIEW base AS SELECT id, id % 3 AS k FROM json.`in`;
CREATE MATERIALIZED VIEW one AS SELECT k, count(*) AS n FROM base GROUP BY k;
CREATE MATERIALIZED VIEW two AS SELECT k, max(id) AS most FROM base GROUP BY k;
CREATE MATERIALIZED VIEW both AS SELECT k, n, most FROM one JOIN two USING (k);
"""


def beside(project: Project) -> PipelineSpec:
    return replace(project, side_by_side=2).spec


def test_tables_that_do_not_read_each_other_are_refreshed_side_by_side(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.new(tmp_path / "project", spark, a_sql=SQL)
    project.add("in", 1, [{"id": id_} for id_ in range(6)])
    met, real = threading.Barrier(2, timeout=60), table_update.Updater.run

    def run(self: table_update.Updater) -> table_update.Updated:
        if self.plan.table.name.table in ("one", "two"):
            met.wait()  # Each waits for the other one to have begun.
        return real(self)

    monkeypatch.setattr(table_update.Updater, "run", run)
    seen: list[tuple[str, str]] = []

    def observe(event: Event) -> None:
        seen.append((event.table.table, event.state.value))

    report = run_pipeline(beside(project), spark, observer=observe)
    assert set(states(report).values()) == {"COMPLETED"}, report
    assert project.rows("both") == Counter([(0, 2, 3), (1, 2, 4), (2, 2, 5)])
    begun = [table for table, state in seen if state == "RUNNING"]
    assert begun == ["base", "one", "two", "both"]
    ended = [table for table, state in seen if state == "COMPLETED"]
    assert ended[0] == "base"
    assert ended[-1] == "both"


def test_a_table_that_fails_beside_another_one_leaves_it(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.new(tmp_path / "project", spark, a_sql=SQL.replace("max(id)", "max(10 / id)"))
    project.add("in", 1, [{"id": id_} for id_ in range(6)])
    report = run_pipeline(beside(project), spark)
    assert states(report) == {"base": "COMPLETED", "one": "COMPLETED", "two": "FAILED", "both": "SKIPPED"}
    assert "zero" in str(event(report, "two").error)
    assert project.rows("one") == Counter([(0, 2), (1, 2), (2, 2)])
    project.write("a.sql", SQL)
    assert set(states(run_pipeline(beside(project), spark)).values()) == {"COMPLETED"}
    assert project.rows("both") == Counter([(0, 2, 3), (1, 2, 4), (2, 2, 5)])


def test_a_run_that_is_stopped_ends_the_jobs_of_its_workers(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.new(tmp_path / "project", spark, a_sql=SQL)
    project.add("in", 1, [{"id": id_} for id_ in range(6)])
    ended = list[str]()
    begun, real = threading.Event(), table_update.Updater.run

    def run(self: table_update.Updater) -> table_update.Updated:
        name = self.plan.table.name.table
        if name == "one":
            begun.set()
            try:
                # A job that would take an hour.
                spark.range(0, 2, 1, 2).foreach(lambda _: __import__("time").sleep(3600))
            finally:
                ended.append(name)
        return real(self)

    def stops(self: UpdateWorkers[Any]) -> Any:
        assert begun.wait(60)
        while not spark.sparkContext.statusTracker().getActiveStageIds():
            threading.Event().wait(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(table_update.Updater, "run", run)
    run_pipeline(beside(project), spark, pipeline_run.Selection(("base",)))
    with monkeypatch.context() as patched:
        patched.setattr(UpdateWorkers, "finished", stops)
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(beside(project), spark)
    assert ended == ["one"]
    assert PipelineCatalog.last_entries(project.root / "storage").keys() == {TableName("default", "base")}
    monkeypatch.setattr(table_update.Updater, "run", real)
    assert set(states(run_pipeline(beside(project), spark)).values()) == {"COMPLETED"}


def test_what_is_transient_is_retried(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.new(tmp_path / "project", spark, a_sql=SQL)
    project.add("in", 1, [{"id": 1}])
    errors: list[Exception] = [ConnectionError("away"), TimeoutError("still away")]
    real = table_update.Updater.run

    def run(self: table_update.Updater) -> table_update.Updated:
        if self.plan.table.name.table == "one" and errors:
            raise errors.pop(0)
        return real(self)

    monkeypatch.setattr(table_update.Updater, "run", run)
    seen: list[Event] = []
    monkeypatch.setattr(Retries, "wait_before", lambda self, retry: 0.0)
    report = run_pipeline(beside(project), spark, observer=seen.append)
    assert set(states(report).values()) == {"COMPLETED"}
    retried = [each for each in seen if each.state is UpdateState.QUEUED and each.error]
    assert [str(each.error) for each in retried] == ["away", "still away"]

    errors += [ConnectionError("away")] * 3
    project.add("in", 2, [{"id": 2}])
    report = run_pipeline(beside(project), spark, place=pipeline_run.Place.SPARK)
    assert (states(report)["one"], states(report)["both"]) == ("FAILED", "SKIPPED")
    assert not errors
    errors += [ValueError("wrong"), ValueError("not seen")]
    report = run_pipeline(beside(project), spark, place=pipeline_run.Place.SPARK)
    assert (states(report)["one"], len(errors)) == ("FAILED", 1)


def test_waits_double(spark: SparkSession) -> None:
    assert Retries.of(spark) == Retries()
    assert [Retries(longest=12).wait_before(retry) for retry in (1, 2, 3)] == [5, 10, 12]
    assert is_transient(ConnectionError())
    assert not is_transient(ValueError("ConnectionError"))
