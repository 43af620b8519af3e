"""Prometheus metrics of a pipeline's runs: a file for node_exporter, or a push to a Pushgateway.

Both are written when a run has ended, and hold all that is known of the pipeline then. The time of the last
success is read from the event log where this run has none, so that its age can be asked for after a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.engine.prometheus import need_client
from headrace.errors import BadInput
from headrace.pipelines.definitions import SHARED
from headrace.pipelines.event_log import RUN, RUNNING, TABLE, EventLog, EventRecord
from headrace.pipelines.input_identity import place_of
from headrace.pipelines.run_recorder import RecordedRun, RunListener

PUSH_SECONDS = 5.0
"""Seconds after which a push is given up."""

_STATES = ("COMPLETED", "FAILED", "SKIPPED")
_OF_RECORDS = {
    "seconds": "Duration of the last update, by the clock.",
    "rows": "Rows of the last version.",
    "rows_read": "Changes and rows of streams that the last update has read.",
    "rows_inserted": "Rows of the last version that the one before did not have.",
    "rows_deleted": "Rows that the last version no longer has.",
    "state_bytes": "Size of the state.",
    "file_bytes": "Size of the files of the last version.",
}
"""Fields of table records that are metrics, with their texts. Of runs, they are sums."""


def metrics_listeners(file: Path | None, push: str | None) -> Iterator[RunListener]:
    """Yield the listeners that write metrics to a file and push them. Raises `BadInput`."""
    if file is not None or push is not None:
        need_client()
    if file is not None:
        yield MetricsFile(file)
    if push is not None:
        if urlsplit(push).scheme not in ("http", "https") or not urlsplit(push).hostname:
            raise BadInput(
                f"metrics cannot be pushed to {place_of(push)!r}",
                fix="give the URL of a Pushgateway, such as http://localhost:9091",
            )
        yield MetricsPush(push)


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """Listener that replaces a file of metrics at the end of each run."""

    path: Path

    def __str__(self) -> str:
        return f"writing metrics to {self.path}"

    def __call__(self, run: RecordedRun) -> None:
        if run.run.state != RUNNING:
            need_client().write_to_textfile(str(self.path), _registry_of(run))


@dataclass(frozen=True, slots=True)
class MetricsPush:
    """Listener that pushes metrics to a Pushgateway at the end of each run."""

    url: str

    def __str__(self) -> str:
        return f"pushing metrics to {place_of(self.url)}"

    def __call__(self, run: RecordedRun) -> None:
        if run.run.state != RUNNING:
            need_client().push_to_gateway(
                self.url,
                job="headrace",
                registry=_registry_of(run),
                grouping_key={"pipeline": run.pipeline},
                timeout=PUSH_SECONDS,
            )


def _registry_of(run: RecordedRun) -> Any:
    """Return a registry of all metrics of a run that has ended."""
    client = need_client()
    registry = client.CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Any:
        return client.Gauge(f"headrace_pipeline_{name}", text, ("pipeline", *labels), registry=registry)

    tables = [each for each in run.tables if each.kind == TABLE]
    _add_run(gauge, run, tables)
    for field, text in _OF_RECORDS.items():
        metric = gauge(f"table_{field}", text, "table")
        for each in tables:
            if (value := getattr(each, field)) is not None and each.state != "SKIPPED":
                metric.labels(run.pipeline, each.table_name).set(value)
    cpu = gauge("table_cpu_seconds", "Processor time of the last update.", "table", "process")
    succeeded = gauge("table_succeeded", "Whether the table, and its delivery, are up to date.", "table")
    passed = gauge("expectation_passed_rows", "Rows of this run that met it.", "table", "expectation")
    failed = gauge("expectation_failed_rows", "Rows of this run that did not.", "table", "expectation")
    for each in run.tables:
        table = run.pipeline, each.table_name
        succeeded.labels(*table).set(each.state == "COMPLETED")
        if each.kind == TABLE:
            _set_cpu(cpu, table, each)
        for counts in each.expectations:
            passed.labels(*table, counts["name"]).set(counts["passed"])
            failed.labels(*table, counts["name"]).set(counts["failed"])
    refreshed = gauge("table_refreshed_timestamp_seconds", "When the table was last up to date.", "table")
    for name, at in _last_successes(run).items():
        if name:
            refreshed.labels(run.pipeline, name).set(at)
        else:
            gauge("last_success_timestamp_seconds", "End of the last run without failures.").labels(
                run.pipeline
            ).set(at)
    return registry


def _add_run(gauge: Any, run: RecordedRun, tables: Sequence[EventRecord]) -> None:
    of_run, labels = run.run, (run.pipeline,)
    gauge("run_succeeded", "Whether the run ended without a failure.").labels(*labels).set(
        of_run.state == "COMPLETED"
    )
    gauge("run_end_timestamp_seconds", "When the run ended, since 1970.").labels(*labels).set(
        _seconds(of_run)
    )
    gauge("run_number", "Number of the run.").labels(*labels).set(of_run.run)
    for field, text in _OF_RECORDS.items():
        gauge(f"run_{field}", f"{text} Of all tables of the run.").labels(*labels).set(getattr(of_run, field))
    _set_cpu(gauge("run_cpu_seconds", "Processor time of the run.", "process"), labels, of_run)
    states = gauge("run_tables", "Tables of the run by their state.", "state")
    for state in _STATES:
        states.labels(*labels, state).set(sum(each.state == state for each in tables))


def _set_cpu(metric: Any, labels: tuple[str, ...], record: EventRecord) -> None:
    metric.labels(*labels, "python").set(record.cpu_seconds)
    metric.labels(*labels, "spark").set(record.spark_cpu_seconds)


def _last_successes(run: RecordedRun) -> dict[str, float]:
    """Return when each table was last brought up to date, and "" the last run without failures ended."""
    found: dict[str, float] = {}
    # Tables of dropped rows and shared parts have no records of the kind `table`.
    owners = (str(name) for name in run.entries if name.owner == name and name.database != SHARED)
    missing = {"", *owners, *(each.table_name for each in run.tables)}
    for each in _newest_first(run):
        if each.kind in (RUN, TABLE) and each.state == "COMPLETED" and each.table_name in missing:
            found[each.table_name] = _seconds(each)
            missing.remove(each.table_name)
        if not missing:
            break
    return found


def _newest_first(run: RecordedRun) -> Iterator[EventRecord]:
    yield run.run
    yield from reversed(run.tables)
    yield from EventLog(run.storage).newest_first()


def _seconds(record: EventRecord) -> float:
    return datetime.fromisoformat(record.at).timestamp()
