"""Prometheus metrics of a run's progress, served over HTTP during the run.

Names and units follow Prometheus conventions: seconds, bytes, `_total` for what only
grows, times as seconds since 1970 (so that an age is `time() - x` where it is asked for).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.engine.progress import Cost, Progress, SourceProgress

LOOPBACK = "127.0.0.1"

# A tick in this process takes microseconds, one on Spark a tenth of a second, a large one minutes.
_TICK_SECONDS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

Metrics: TypeAlias = "int | str | PathLike[str] | Any"
"""Where to publish metrics: a port of this machine, "HOST:PORT", a `CollectorRegistry` served elsewhere, or a
path (`pathlib.Path`) of a file that is written at the end of the run, for node_exporter's textfile collector.
"""


class RunMetrics:
    """Metrics of one run. `observe` is called after each tick, `record_phases` by engines with batch phases.

    registry: of `prometheus_client`. flow: the label `flow` of all of them.
    """

    def __init__(self, registry: Any, flow: str) -> None:
        client = need_client()
        self._flow = flow
        self._registry = registry
        self._made: list[Any] = []

        def made(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            metric = kind(name, text, ("flow", *labels), registry=registry, **options)
            self._made.append(metric)
            return metric

        counter, gauge = client.Counter, client.Gauge
        self._ticks = made(counter, "headrace_ticks", "Ticks committed by this run.")
        self._rows = made(counter, "headrace_rows", "Rows taken.", "source")
        self._aside = made(counter, "headrace_rows_set_aside", "Rows that could not be read.")
        self._changes = made(counter, "headrace_changes", "Changes given to sinks.")
        self._seconds = made(
            client.Histogram, "headrace_tick_seconds", "How long ticks took, commit included.", "way",
            buckets=_TICK_SECONDS,
        )  # fmt: skip
        self._last = made(gauge, "headrace_last_tick", "Number of the last tick.")
        self._when = made(
            gauge, "headrace_last_tick_timestamp_seconds", "When the last tick ended, since 1970."
        )
        self._waiting = made(
            gauge, "headrace_lag_arrivals", "Files or batches found and not taken yet.", "source"
        )
        self._newest = made(
            gauge, "headrace_newest_input_timestamp_seconds", "When the newest input was found.", "source"
        )
        self._backlog = made(
            gauge, "headrace_lag_backlog", "What a connector says of its lag, in its words.", "source", "of"
        )
        self._mark_time = made(
            gauge,
            "headrace_watermark_timestamp_seconds",
            "Where a watermark stands, since 1970.",
            "watermark",
        )
        self._mark = made(
            gauge, "headrace_watermark", "Where a watermark stands that is a number.", "watermark"
        )
        self._late = made(gauge, "headrace_late_rows", "Rows that were late so far.", "watermark")
        self._state = made(gauge, "headrace_state_bytes", "Size of the files that hold the state.")
        self._cpu = made(counter, "headrace_cpu_seconds", "Processor time of ticks on Spark.", "process")
        self._work = made(
            counter, "headrace_worker_cpu_seconds", "Processor time of Spark's Python workers.", "phase"
        )
        self._exchanged = made(
            counter, "headrace_exchanged_rows", "Rows sent between stages on Spark.", "exchange"
        )
        self._shuffled = made(counter, "headrace_shuffled_bytes", "Bytes of these rows that Spark moved.")
        self._memory = made(gauge, "headrace_worker_memory_bytes", "Most memory that a worker has had.")
        self._phases = made(
            client.Summary, "headrace_spark_trigger_seconds", "What Spark did with a batch.", "phase"
        )
        # There from the beginning, so that an alert on "no tick yet" has something to look at.
        for metric in (self._ticks, self._aside, self._changes):
            metric.labels(flow)

    def observe(self, done: Progress) -> None:
        """Record a tick."""
        flow = self._flow
        self._ticks.labels(flow).inc()
        self._aside.labels(flow).inc(done.set_aside)
        self._changes.labels(flow).inc(done.changes_out)
        self._seconds.labels(flow, done.way).observe(done.seconds)
        self._last.labels(flow).set(done.tick)
        self._when.labels(flow).set_to_current_time()
        for name, source in done.sources.items():
            self._observe_source(name, source)
        for name, mark in done.watermarks.items():
            if isinstance(mark, datetime):
                self._mark_time.labels(flow, name).set(mark.timestamp())
            else:
                self._mark.labels(flow, name).set(mark)
        for name, late in done.late.items():
            self._late.labels(flow, name).set(late)
        if done.state_bytes is not None:
            self._state.labels(flow).set(done.state_bytes)
        if done.cost is not None:
            self._observe_cost(done.cost)

    def _observe_cost(self, cost: Cost) -> None:
        for process, seconds in (("driver", cost.driver), ("jvm", cost.jvm), ("workers", cost.workers)):
            if seconds is not None:
                self._cpu.labels(self._flow, process).inc(seconds)
        for phase, seconds in cost.phases.items():
            self._work.labels(self._flow, phase).inc(max(0.0, seconds))
        for exchange, rows in cost.exchanges.items():
            self._exchanged.labels(self._flow, exchange).inc(rows)
        self._shuffled.labels(self._flow).inc(cost.shuffled)
        if cost.memory is not None:
            self._memory.labels(self._flow).set(cost.memory)

    def _observe_source(self, name: str, source: SourceProgress) -> None:
        self._rows.labels(self._flow, name).inc(source.rows)
        if source.waiting is not None:
            self._waiting.labels(self._flow, name).set(source.waiting)
        if source.newest is not None:
            self._newest.labels(self._flow, name).set(source.newest)
        for key, value in source.backlog.items():
            with suppress(ValueError):  # some connectors tell more than numbers
                self._backlog.labels(self._flow, name, key).set(float(value))

    def record_phases(self, seconds: Mapping[str, float]) -> None:
        """Record the durations of a batch's phases, under Spark's names."""
        for phase, took in seconds.items():
            self._phases.labels(self._flow, phase).observe(took)

    def close(self) -> None:
        """Unregister the metrics, so that another run can register its own."""
        for metric in self._made:
            self._registry.unregister(metric)


@contextmanager
def serving_metrics(metrics: Metrics | None, flow: str) -> Generator[RunMetrics | None]:
    """Serve the metrics of a run of `flow` inside this block; yields None if none are requested.

    Raises `BadInput` if `prometheus_client` is missing, or the address is invalid or unavailable.
    """
    if metrics is None:
        yield None
        return
    if isinstance(metrics, PathLike):
        with _written_at_the_end(cast("PathLike[str]", metrics), flow) as found:
            yield found
        return
    if not isinstance(metrics, int | str):
        found = RunMetrics(_checked(metrics), flow)
        try:
            yield found
        finally:
            found.close()
        return
    client = need_client()
    registry = client.CollectorRegistry()
    client.ProcessCollector(registry=registry)
    found = RunMetrics(registry, flow)
    server, thread = _serve(metrics, registry)
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _written_at_the_end(path: PathLike[str], flow: str) -> Generator[RunMetrics]:
    """Write the metrics when a run ends, whether or not it succeeds. Raises `BadInput` if that fails."""
    client = need_client()
    registry = client.CollectorRegistry()
    found = RunMetrics(registry, flow)
    succeeded = client.Gauge(
        "headrace_run_succeeded", "Whether the run ended without an error.", ("flow",), registry=registry
    )
    ended = client.Gauge(
        "headrace_run_end_timestamp_seconds", "When the run ended, since 1970.", ("flow",), registry=registry
    )
    outcome = 0
    try:
        yield found
        outcome = 1
    finally:
        succeeded.labels(flow).set(outcome)
        ended.labels(flow).set_to_current_time()
        _write(fspath(path), registry)


def _write(path: str, registry: Any) -> None:
    try:
        need_client().write_to_textfile(path, registry)
    except OSError as error:
        raise BadInput(
            f"metrics cannot be written to {path}",
            why=error.strerror or str(error),
            fix="name a file in a folder that exists and may be written",
        ) from error


def need_client() -> Any:
    """Return the package `prometheus_client`. Raises `BadInput` if it is missing."""
    try:
        import prometheus_client
    except ImportError as error:
        raise BadInput(
            "metrics need prometheus_client, which cannot be imported",
            why=str(error),
            fix="pip install 'headrace[metrics]'",
        ) from error
    return prometheus_client


def _checked(registry: Any) -> Any:
    if not isinstance(registry, need_client().CollectorRegistry):
        raise BadInput(
            f"metrics is {type(registry).__name__}, which is no place for metrics",
            fix='give a port (9108), "HOST:PORT", or a prometheus_client.CollectorRegistry',
        )
    return registry


def parse_address(metrics: int | str) -> tuple[str, int]:
    """Parse a host and port. A port alone means this machine only. Raises `BadInput`.

    >>> parse_address(9108), parse_address("9108"), parse_address("0.0.0.0:9108")
    (('127.0.0.1', 9108), ('127.0.0.1', 9108), ('0.0.0.0', 9108))
    """
    host, _, port = str(metrics).rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadInput(
            f"metrics are to be served at {metrics!r}, which is neither a port nor HOST:PORT",
            fix="give a port (9108: of this machine only), or HOST:PORT (0.0.0.0:9108: for everybody)",
        )
    return host.strip("[]") or LOOPBACK, int(port)


def _serve(metrics: int | str, registry: Any) -> tuple[Any, Any]:
    host, port = parse_address(metrics)
    try:
        return need_client().start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise BadInput(
            f"metrics cannot be served at {host}:{port}",
            why=error.strerror or str(error),
            fix="give another port; is another run using this one?",
        ) from error
