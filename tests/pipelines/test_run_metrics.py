"""Metrics of a pipeline's runs, as a file and as a push."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import BadInput
from headrace.pipelines.catalog import TableEntry
from headrace.pipelines.definitions import TableName
from headrace.pipelines.event_log import EventLog, EventRecord, Retention
from headrace.pipelines.run_metrics import metrics_listeners
from headrace.pipelines.run_recorder import RecordedRun
from tests.golden import MESSAGES, assert_golden
from tests.pipelines.loopback import loopback_server
from tests.pipelines.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def record(
    kind: str, table: str, state: str, at: str = "2026-03-01T12:00:00.000Z", **facts: Any
) -> EventRecord:
    return EventRecord(kind, 7, "id", at, table, state, **facts)


def recorded_run(storage: Path) -> RecordedRun:
    """Return a run in which one table came through, one was not delivered, and one failed."""
    tables = [
        record("table", "a", "COMPLETED", rows=3, rows_inserted=1, rows_read=None, cpu_seconds=0.25),
        record("table", "b", "COMPLETED", state_bytes=100, file_bytes=200,
               expectations=[{"name": "positive", "passed": 9, "failed": 1}]),
        record("delivery", "b", "FAILED"),
        record("table", "c", "FAILED", rows=5),
        record("table", "d", "SKIPPED"),
    ]  # fmt: skip
    run = record("run", "", "FAILED", seconds=2.0, cpu_seconds=0.5, spark_cpu_seconds=1.5, rows_inserted=1)
    entries = {TableName("default", "e"): TableEntry(1, 1, "", "parquet", "")}
    return RecordedRun("shop", storage, NOW, run, tables, {}, entries)


_LABELS = ("pipeline", "table", "state", "process", "expectation")


def samples(text: str) -> dict[str, float]:
    """Return the value of each sample by its name, followed by its labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            labels = [each.labels[name] for name in _LABELS if name in each.labels]
            found[" ".join([each.name.removeprefix("headrace_pipeline_"), *labels])] = each.value
    return found


def test_the_file_has_the_run_and_its_tables(tmp_path: Path) -> None:
    writer = EventLog(tmp_path).writer(NOW, Retention())
    writer.append(
        record("table", "c", "COMPLETED", "2026-03-01T10:00:00.000Z"),
        record("table", "spark_catalog.default.e", "COMPLETED", "2026-03-01T09:00:00.000Z"),
        record("run", "", "COMPLETED", "2026-03-01T11:00:00.000Z"),
    )
    writer.close()
    file = tmp_path / "shop.prom"
    (listener,) = metrics_listeners(file, None)
    run = recorded_run(tmp_path)
    listener(replace(run, run=replace(run.run, state="RUNNING")))
    assert not file.exists()
    listener(run)
    found = samples(file.read_text())
    noon = NOW.timestamp()
    expected = {
        "run_succeeded shop": 0,
        "run_end_timestamp_seconds shop": noon,
        "run_number shop": 7,
        "run_seconds shop": 2,
        "run_cpu_seconds shop python": 0.5,
        "run_cpu_seconds shop spark": 1.5,
        "run_tables shop COMPLETED": 2,
        "run_tables shop FAILED": 1,
        "run_tables shop SKIPPED": 1,
        "last_success_timestamp_seconds shop": noon - 3600,
        "table_rows shop a": 3,
        "table_rows_inserted shop a": 1,
        "table_cpu_seconds shop a python": 0.25,
        "table_state_bytes shop b": 100,
        "table_file_bytes shop b": 200,
        "table_succeeded shop a": 1,
        "table_succeeded shop b": 0,
        "table_succeeded shop c": 0,
        "table_succeeded shop d": 0,
        "expectation_passed_rows shop b positive": 9,
        "expectation_failed_rows shop b positive": 1,
        "table_refreshed_timestamp_seconds shop a": noon,
        "table_refreshed_timestamp_seconds shop c": noon - 7200,
        "table_refreshed_timestamp_seconds shop spark_catalog.default.e": noon - 10800,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "table_rows_read shop a" not in found
    assert "table_rows shop d" not in found
    assert {each.name for each in tmp_path.iterdir()} == {"shop.prom", "events"}


def test_metrics_are_pushed_in_a_group_per_pipeline(tmp_path: Path) -> None:
    with loopback_server() as server:
        (listener,) = metrics_listeners(None, server.url)
        listener(recorded_run(tmp_path))
    ((method, path, _, body),) = server.requests
    assert (method, path) == ("PUT", "/metrics/job/headrace/pipeline/shop")
    assert samples(body)["table_rows shop a"] == 3


@pytest.mark.parametrize("url", ["localhost:9091", "file:///etc/passwd", "http://"])
def test_a_push_goes_to_a_url_of_http_only(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        list(metrics_listeners(None, url))
    if url.startswith("file"):
        assert_golden(MESSAGES / "metrics_pushed_to_a_file.txt", str(refused.value) + "\n")


@pytest.mark.spark
def test_metrics_that_cannot_be_written_or_pushed_are_warnings(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    project = Project.new(tmp_path / "project", spark, a_sql="CREATE MATERIALIZED VIEW a AS SELECT 1 AS x;")
    with loopback_server() as server, caplog.at_level(logging.WARNING):
        server.status = 500
        listeners = [*metrics_listeners(tmp_path / "nowhere/shop.prom", server.url)]
        assert not project.run(listeners=listeners).failed
    warnings = [each.message for each in caplog.records if each.name == "headrace.pipelines"]
    assert len(warnings) == 2
    assert warnings[0].startswith(f"writing metrics to {tmp_path}/nowhere/shop.prom failed: [Errno 2]")
    assert warnings[1].startswith(f"pushing metrics to {server.url} failed: HTTP Error 500")
