"""Metrics of a run in this process, scraped over loopback."""

from __future__ import annotations

import socket
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import headrace as hr
from headrace import col
from headrace.engine.progress import Progress, SourceProgress
from headrace.engine.prometheus import parse_address, serving_metrics
from headrace.errors import BadInput

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Visit(NamedTuple):
    at: datetime
    page: str


def minutes() -> hr.Flow:
    flow = hr.Flow("minutes")
    visits = flow.source("visits", Visit).watermark(col.at, lateness="1s", name="on time")
    flow.sink("minutes", visits.group_by(window=hr.tumbling(col.at, "1m")).agg(n=hr.count()))
    return flow


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted((k, v) for k, v in sample.labels.items() if k != "flow"))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def scraped(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return samples(answer.read().decode())


def test_a_run_serves_what_it_has_done_while_it_lasts(tmp_path: Path) -> None:
    port = free_port()
    found: list[Samples] = []
    rows = [Visit(datetime(2026, 1, 1, 0, m, tzinfo=UTC), "a") for m in (0, 1, 2, 0)]
    hr.run(
        minutes(),
        {"visits": rows},
        tick_rows=2,
        checkpoint=tmp_path / "state",
        metrics=port,
        on_tick=lambda done: found.append(scraped(port)),
    )
    first, last = found[0], found[-1]
    assert first["headrace_ticks_total", ()] == 1
    assert first["headrace_rows_total", (("source", "visits"),)] == 2
    assert last["headrace_ticks_total", ()] == last["headrace_last_tick", ()] == 2
    assert last["headrace_tick_seconds_count", (("way", "here"),)] == 2
    assert last["headrace_late_rows", (("watermark", "on time"),)] == 1
    mark = datetime(2026, 1, 1, 0, 1, 59, tzinfo=UTC).timestamp()
    assert last["headrace_watermark_timestamp_seconds", (("watermark", "on time"),)] == mark
    assert last["headrace_state_bytes", ()] > 0
    assert last["process_resident_memory_bytes", ()] > 0
    with pytest.raises(OSError, match="refused"):
        scraped(port)


def test_a_registry_of_ones_own_is_filled_and_left_as_it_was() -> None:
    registry = CollectorRegistry()
    texts: list[str] = []
    for _ in range(2):  # the second run must not find its names taken
        hr.run(
            minutes(),
            {"visits": [Visit(datetime(2026, 1, 1, tzinfo=UTC), "a")]},
            metrics=registry,
            on_tick=lambda _: texts.append(generate_latest(registry).decode()),
        )
    assert 'headrace_rows_total{flow="minutes",source="visits"} 1.0' in texts[0]
    assert generate_latest(registry) == b""


def test_what_waits_is_a_metric_of_its_source() -> None:
    registry = CollectorRegistry()
    sources = {
        "files": SourceProgress(5, waiting=3, newest=17.0),
        "topic": SourceProgress(1, backlog={"maxOffsetsBehindLatest": "12", "state": "up"}),
    }
    with serving_metrics(registry, "flow") as metrics:
        assert metrics is not None
        metrics.observe(Progress(1, 6, 0, 0, 0.1, "stages", sources, {"steps": 4}))
        metrics.record_phases({"addBatch": 0.25})
        found = samples(generate_latest(registry).decode())
    assert found["headrace_lag_arrivals", (("source", "files"),)] == 3
    assert found["headrace_newest_input_timestamp_seconds", (("source", "files"),)] == 17
    assert found["headrace_lag_backlog", (("of", "maxOffsetsBehindLatest"), ("source", "topic"))] == 12
    assert found["headrace_watermark", (("watermark", "steps"),)] == 4
    assert found["headrace_spark_trigger_seconds_sum", (("phase", "addBatch"),)] == 0.25


def test_a_port_alone_is_of_this_machine_only() -> None:
    assert parse_address(9108) == parse_address("9108") == ("127.0.0.1", 9108)
    assert parse_address("0.0.0.0:9108") == ("0.0.0.0", 9108)
    assert parse_address("[::1]:9108") == ("::1", 9108)


@pytest.mark.parametrize("metrics", ["here", "host:", "1:99999", -1])
def test_what_is_no_address_is_refused(metrics: str | int) -> None:
    with pytest.raises(BadInput, match=r"neither a port nor HOST:PORT"):
        hr.run(minutes(), {"visits": []}, metrics=metrics)


def test_a_port_that_is_taken_and_a_thing_that_is_no_registry_are_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInput, match=r"cannot be served at 127.0.0.1:"):
            hr.run(minutes(), {"visits": []}, metrics=taken.getsockname()[1])
    with pytest.raises(BadInput, match="no place for metrics"):
        hr.run(minutes(), {"visits": []}, metrics=object())
