"""The event log: what runs record, what is left of it after a kill or on a full disk, and who can read it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import WrongType
from headrace.pipelines import run_recorder
from headrace.pipelines.event_log import EventLog, EventRecord, Retention
from headrace.pipelines.pipeline_run import run_pipeline
from tests.golden import MESSAGES, assert_golden
from tests.pipelines.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PRINTED = Path(__file__).parent / "printed"


def write_run(
    log: EventLog, at: datetime = NOW, *, retention: Retention | None = None, ends: bool = True
) -> int:
    """Write the records of a run of one table, and return its number."""
    writer = log.writer(at, retention or Retention())
    run = writer.last.run + 1
    writer.append(EventRecord("run", run, state="RUNNING"))
    writer.append(EventRecord("table", run, table_name="t", state="COMPLETED", rows_read=None))
    if ends:
        writer.append(EventRecord("run", run, state="COMPLETED"))
    writer.close()
    return run


def shown(log: EventLog) -> list[str]:
    return [f"{each.run} {each.table_name or 'run'} {each.state}" for each in log.records()]


# -- the files -------------------------------------------------------------------------------------------


def test_records_are_appended_in_a_file_per_day(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for day in (0, 0, 1):
        write_run(log, NOW + timedelta(days=day))
    assert [file.name for _, file in log.days()] == ["2026-03-01.jsonl", "2026-03-02.jsonl"]
    assert shown(log) == [
        f"{run} {line}" for run in (1, 2, 3) for line in ("run RUNNING", "t COMPLETED", "run COMPLETED")
    ]


def test_the_last_runs_are_found_across_days(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for day in range(5):
        write_run(log, NOW + timedelta(days=day))
    assert [each.run for each in log.records(last=2, table="t")] == [4, 5]
    assert [each.state for each in log.records(run=3)] == ["RUNNING", "COMPLETED", "COMPLETED"]


@pytest.mark.parametrize("bytes_left", [1, 40, 300])
def test_a_torn_last_line_is_skipped_and_then_repaired(tmp_path: Path, bytes_left: int) -> None:
    log = EventLog(tmp_path)
    write_run(log)
    ((_, file),) = log.days()
    whole = file.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    file.write_bytes(whole[: -len(last)] + last[:bytes_left])
    assert shown(log) == ["1 run RUNNING", "1 t COMPLETED"]
    assert write_run(log) == 2
    assert shown(log)[2:] == ["1 run DIED", "2 run RUNNING", "2 t COMPLETED", "2 run COMPLETED"]
    assert all(json.loads(line) for line in file.read_bytes().splitlines())


def test_a_run_that_was_killed_is_recorded_by_the_next_one(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    write_run(log, ends=False)
    assert write_run(log, NOW + timedelta(days=1)) == 2
    assert shown(log)[2:4] == ["1 run DIED", "2 run RUNNING"]


_KILLED = """
import sys
from tests.pipelines.test_event_log import *
log = EventLog(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    write_run(log, datetime.now(UTC))
"""


def test_a_kill_at_any_moment_leaves_lines_that_can_be_read(tmp_path: Path) -> None:
    found: list[EventRecord] = []
    for _ in range(3):
        command = [sys.executable, "-c", _KILLED, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            while len(EventLog(tmp_path).records()) < len(found) + 50:
                pass
            process.kill()
        found = EventLog(tmp_path).records()
    ended = [each.run for each in found if each.kind == "run" and each.state != "RUNNING"]
    assert ended == list(range(1, len(ended) + 1))


def test_old_days_are_removed(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    (tmp_path / "events").mkdir()
    (tmp_path / "events/notes.txt").write_text("not ours")
    for day in range(6):
        write_run(log, NOW + timedelta(days=day), retention=Retention.parse("2 days"))
    assert [day.day for day, _ in log.days()] == [4, 5, 6]
    assert (tmp_path / "events/notes.txt").exists()


def test_at_least_the_last_runs_are_kept(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for day in range(6):
        for _ in range(2):
            write_run(log, NOW + timedelta(days=day), retention=Retention.parse("4 runs"))
    assert [each.run for each in log.records(table="t")] == [7, 8, 9, 10, 11, 12]


@pytest.mark.parametrize("text", ["soon", "0 runs", "many runs", "", "-1 days"])
def test_a_retention_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(WrongType):
        Retention.parse(text)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(tmp_path)
    writer = log.writer(NOW, Retention())
    writer.append(EventRecord("run", 1, state="RUNNING"))
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:20]))
    with pytest.raises(OSError, match="No space left"):
        writer.append(EventRecord("table", 1, table_name="t"))
    monkeypatch.undo()
    writer.append(EventRecord("run", 1, state="COMPLETED"))
    assert shown(log) == ["1 run RUNNING", "1 run COMPLETED"]


def test_texts_of_errors_can_be_erased(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    write_run(log)
    before = log.days()[0][1].read_bytes()
    log.erase_errors()
    assert log.days()[0][1].read_bytes() == before
    writer = log.writer(NOW, Retention())
    writer.append(EventRecord("table", 2, state="FAILED", error_code="P201", error="ann@example.org"))
    writer.close()
    log.erase_errors()
    assert [(each.error_code, each.error) for each in log.records(run=2)] == [("P201", "")]
    assert log.days()[0][1].read_bytes().startswith(before)
    assert [file.name for file in log.folder.iterdir()] == ["2026-03-01.jsonl"]


# -- readers ---------------------------------------------------------------------------------------------


def test_every_file_has_the_same_columns_for_other_readers(tmp_path: Path) -> None:
    import duckdb
    import polars as pl
    import pyarrow.json as pj

    log = EventLog(tmp_path)
    for day in range(2):
        write_run(log, NOW + timedelta(days=day))
    writer = log.writer(NOW, Retention())
    counts: Any = [{"name": "positive", "passed": 3, "failed": 1}]
    writer.append(EventRecord("table", 3, table_name="t", rows_read=7, expectations=counts))
    writer.close()
    files = [file for _, file in log.days()]
    assert len({str(pj.read_json(file).schema) for file in files}) == 1
    assert len({str(pl.read_ndjson(file).schema) for file in files}) == 1
    query = (
        "SELECT table_name, max(rows_read), sum(len(expectations))"
        f" FROM read_json('{tmp_path}/events/*.jsonl') WHERE kind = 'table' GROUP BY ALL"
    )
    assert duckdb.execute(query).fetchall() == [("t", 7, 1)]


@pytest.mark.spark
def test_spark_reads_the_log_with_the_same_columns(tmp_path: Path, spark: SparkSession) -> None:
    write_run(EventLog(tmp_path))
    found = spark.read.json(str(tmp_path / "events"))
    assert dict(found.dtypes)["expectations"] == "array<struct<failed:bigint,name:string,passed:bigint>>"
    assert dict(found.dtypes)["rows_read"] == "bigint"


# -- runs ------------------------------------------------------------------------------------------------

EVENTS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.table
def events():
    return SparkSession.active().readStream.schema("id INT").json("in")
"""

SQL = """
CREATE MATERIALIZED VIEW counts AS SELECT id % 3 AS k, count(*) AS n FROM events GROUP BY id % 3;
CREATE MATERIALIZED VIEW kept AS SELECT k FROM counts WHERE n > 1;
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM events;
CREATE MATERIALIZED VIEW checked (CONSTRAINT few EXPECT (n < 8)) AS SELECT count(*) AS n FROM events;
"""


BAD = """
CREATE MATERIALIZED VIEW bad AS
  SELECT k, CAST(raise_error('password=hunter2 refused') AS INT) AS e FROM counts;
CREATE MATERIALIZED VIEW after AS SELECT * FROM bad;
"""


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    made = Project.new(tmp_path / "project", spark, a_py=EVENTS, a_sql=SQL)
    made.add("in", 1, [{"id": at} for at in range(7)])
    return made


def log_of(project: Project) -> EventLog:
    return EventLog(project.root / project.storage)


def tables(project: Project, run: int) -> dict[str, EventRecord]:
    records = log_of(project).records(run=run)
    return {each.table_name.rpartition(".")[2]: each for each in records if each.kind == "table"}


@pytest.mark.spark
def test_a_run_records_what_each_table_did(project: Project) -> None:
    project.run()
    project.add("in", 2, [{"id": 9}])
    project.run()
    project.run()
    first, second, third = (tables(project, run) for run in (1, 2, 3))
    assert {name: (each.rows_inserted, each.rows_deleted, each.rows) for name, each in first.items()} == {
        "events": (7, 0, 7), "counts": (3, 0, 3), "kept": (3, 0, 3), "total": (1, 0, 1),
        "checked": (1, 0, 1),
    }  # fmt: skip
    assert first["counts"].reason == "from all rows: first run"
    assert first["counts"].from_all_rows
    counts = second["counts"]
    assert (counts.method, counts.rows_read, counts.rows_inserted, counts.rows_deleted, counts.rows) == (
        "incremental", 1, 1, 1, 3,
    )  # fmt: skip
    assert (counts.version_before, counts.version_after) == (1, 2)
    assert [each["checked"].expectations for each in (first, second, third)] == [
        [{"name": "few", "passed": 1, "failed": 0}],
        [{"name": "few", "passed": 0, "failed": 1}],
        [{"name": "few", "passed": 0, "failed": 0}],
    ]
    # Nobody reads the changes of this one.
    assert (second["total"].rows_inserted, second["total"].rows_deleted) == (1, 1)
    assert counts.state_bytes > 0
    assert counts.file_bytes > 0
    assert (second["kept"].version_before, second["kept"].version_after) == (1, 1)
    assert {(each.rows_read, each.rows_inserted, each.rows_deleted) for each in third.values()} == {(0, 0, 0)}
    runs = [each for each in log_of(project).records() if each.kind == "run"]
    assert [(each.run, each.state) for each in runs] == [
        (run, state) for run in (1, 2, 3) for state in ("RUNNING", "COMPLETED")
    ]
    assert [(each.version_before, each.version_after) for each in runs[1::2]] == [(0, 1), (1, 2), (2, 2)]
    assert len({each.run_id for each in runs}) == 3
    # What tables cost is part of what the run cost: of this process, and of the JVM that it has started.
    for of_run, of_tables in zip(runs[1::2], (first, second, third), strict=True):
        for cost in ("cpu_seconds", "spark_cpu_seconds"):
            total = sum(getattr(each, cost) for each in of_tables.values())
            assert 0 <= total <= getattr(of_run, cost) + 0.01
    assert runs[1].spark_cpu_seconds > 0


@pytest.mark.spark
def test_a_run_publishes_the_catalogue_of_its_number(project: Project) -> None:
    for _ in range(3):
        project.run()
    project.add("in", 2, [{"id": 9}])
    project.run()
    assert os.readlink(project.root / "storage/catalog/current") == "4"
    assert log_of(project).records(run=4)[-1].version_after == 4


@pytest.mark.spark
def test_a_run_that_fails_says_why_without_secrets(project: Project) -> None:
    project.write("b.sql", BAD)
    assert project.run().failed
    found = tables(project, 1)
    done = dict.fromkeys(("events", "counts", "kept", "total", "checked"), "COMPLETED")
    states = {name: each.state for name, each in found.items()}
    assert states == {**done, "bad": "FAILED", "after": "SKIPPED"}
    assert "***" in found["bad"].error
    end = log_of(project).records(run=1)[-1]
    assert end.state == "FAILED"
    assert end.error.startswith("spark_catalog.default.bad: ")
    assert "hunter2" not in "".join(each.to_json() for each in log_of(project).records())
    project.write("b.sql", "CREATE MATERIALIZED VIEW bad AS SELECT nothing FROM nowhere;")
    with pytest.raises(Exception, match="P804"):
        project.run()
    end = log_of(project).records(run=2)[-1]
    assert (end.state, end.error_code) == ("FAILED", "P804")


@pytest.mark.spark
def test_a_log_that_cannot_be_written_is_reported_and_the_run_goes_on(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.pipelines.event_log.EventLogWriter.append", full)
    with caplog.at_level(logging.WARNING):
        assert not project.run().failed
    assert [record.message for record in caplog.records if record.name == "headrace.pipelines"] == [
        "the event log cannot be written: [Errno 28] No space left on device"
    ]
    monkeypatch.undo()
    (project.root / "storage/events").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        assert not project.run().failed


@pytest.mark.spark
def test_a_run_that_is_terminated_is_recorded_as_stopped(project: Project) -> None:
    command = [sys.executable, "-m", "headrace.cli", "pipeline", "run", "--log-format", "json"]
    with subprocess.Popen(command, cwd=project.root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if '"RUNNING"' in line)
        process.terminate()
        process.stdout.read()
    assert process.returncode == 143
    assert [each.state for each in log_of(project).records() if each.kind == "run"] == ["RUNNING", "STOPPED"]
    assert not project.run().failed


@pytest.mark.spark
def test_later_runs_of_one_that_goes_on_are_logged_if_they_have_news(project: Project) -> None:
    def run() -> list[str]:
        before = len(log_of(project).records())
        run_pipeline(project.spec, project.spark, skip_invalid=True, only_news=True)
        return [f"{each.kind} {each.state}" for each in log_of(project).records()[before:]]

    project.run()
    assert run() == []
    project.add("in", 2, [{"id": 9}])
    assert run() == ["run RUNNING", *["table COMPLETED"] * 5, "run COMPLETED"]
    project.write("b.sql", "CREATE MATERIALIZED VIEW bad AS SELECT nothing FROM nowhere;")
    assert run()[-1] == "run FAILED"
    assert run() == []
    (project.root / "transformations/b.sql").unlink()
    assert run() == []


def _record(kind: str, run: int, table: str, state: str, **facts: Any) -> EventRecord:
    return EventRecord(kind, run, "id", "2026-03-01T12:00:00.000Z", table, state, **facts)


_COSTS: dict[str, Any] = {"seconds": 0.314, "cpu_seconds": 0.21, "spark_cpu_seconds": 1.04}
_PRINTED = [
    _record("run", 1, "", "RUNNING"),
    _record(
        "table", 1, "spark_catalog.default.counts", "COMPLETED", method="incremental", from_all_rows=True,
        reason="from all rows: first run", rows_read=1_200_000, rows_inserted=3, rows=3, state_bytes=4096,
        file_bytes=700, version_after=1, **_COSTS,
    ),
    _record(
        "table", 1, "spark_catalog.default.sketch", "COMPLETED", method="recompute", rows_read=None,
        rows_inserted=None, rows_deleted=None, rows=1, version_before=3, version_after=4, **_COSTS,
        expectations=[{"name": "positive", "passed": 1, "failed": 0}],
    ),
    _record(
        "table", 1, "spark_catalog.default.bad", "FAILED", rows=2, version_before=7, version_after=7,
        error="[DIVIDE_BY_ZERO] Division by zero.\nUse try_divide.", **_COSTS,
    ),
    _record("table", 1, "spark_catalog.default.after", "SKIPPED"),
    _record("delivery", 1, "spark_catalog.default.counts", "FAILED", error="PermissionError: /out", rows=3),
    _record("run", 1, "", "FAILED", rows_read=1_200_000, version_after=1, **_COSTS),
    _record("run", 2, "", "RUNNING"),
    _record("run", 2, "", "DIED"),
    _record("run", 3, "", "RUNNING"),
]  # fmt: skip


def test_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def printed(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["pipeline", "events", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    (tmp_path / "spark-pipeline.yml").write_text("name: shop\nstorage: storage\n")
    monkeypatch.chdir(tmp_path)
    assert printed() == "no run is recorded\n"
    writer = EventLog(tmp_path / "storage").writer(NOW, Retention())
    writer.append(*_PRINTED)
    writer.close()
    assert_golden(PRINTED / "events.txt", printed())
    lines = printed("--json", "--table", "Sketch").splitlines()
    assert [EventRecord.from_fields(json.loads(line)) for line in lines] == [_PRINTED[2]]
    assert "DIED" not in printed("--last", "1")
    assert "counts" not in printed("--run", "2")
    refused = CliRunner().invoke(app, ["pipeline", "events", "--table", "nope"])
    assert refused.exit_code == 2
    assert_golden(MESSAGES / "event_log_without_a_table.txt", refused.output)


def test_processor_time_of_children_counts() -> None:
    clock = run_recorder.ProcessorClock()
    before = clock.read()
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert clock.read().children > before.children
