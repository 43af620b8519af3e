"""What a run on Spark tells after each tick: what waits, watermarks, state, Spark's own phases."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import headrace as hr
from headrace import Flow, col, io
from headrace.spark import Frame, Progress, run

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)


class Visit(NamedTuple):
    at: datetime
    page: str


def minutes() -> Flow:
    flow = Flow("minutes")
    visits = flow.source("visits", Visit).watermark(col.at, lateness="1s", name="on time")
    flow.sink("minutes", visits.group_by(window=hr.tumbling(col.at, "1m")).agg(n=hr.count()))
    return flow


def pages() -> Flow:
    flow = Flow("pages")
    flow.sink("pages", flow.source("visits", Visit).group_by(col.page).agg(n=hr.count()))
    return flow


def write(folder: Path, number: int, *minutes: int) -> None:
    folder.mkdir(exist_ok=True)
    visits = ({"at": (START + timedelta(minutes=m)).isoformat(), "page": "a"} for m in minutes)
    aside = folder / f".{number}"
    aside.write_text("".join(json.dumps(visit) + "\n" for visit in visits))
    aside.rename(folder / f"{number}.json")


def test_files_that_wait_watermarks_late_rows_and_state_are_told(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", 1, 0, 1)
    write(tmp_path / "in", 2, 0, 5)
    write(tmp_path / "in", 3, 7)
    told: list[Progress] = []
    began = time.time()
    source = io.JsonFiles(tmp_path / "in", files_per_tick=1)
    state = tmp_path / "state"
    ends: Any = {"sources": {"visits": source}, "checkpoint": state, "shards": 2}
    run(minutes(), spark, **ends, on_tick=told.append)
    assert [done.sources["visits"].waiting for done in told] == [2, 1, 0]
    assert [done.sources["visits"].rows for done in told] == [2, 2, 1]
    newest = told[-1].sources["visits"].newest
    assert newest is not None
    assert began - 1 < newest <= time.time()
    assert [done.watermarks["on time"] for done in told] == [
        START + timedelta(minutes=m, seconds=-1) for m in (1, 5, 7)
    ]
    assert [done.late["on time"] for done in told] == [0, 1, 1]
    files = sum(file.stat().st_size for file in state.glob("state/*/*"))
    assert told[-1].state_bytes is not None
    assert 0 < told[-1].state_bytes <= files
    assert told[-1].rows_per_second == pytest.approx(1 / told[-1].seconds)
    write(tmp_path / "in", 4, 8)
    run(minutes(), spark, **ends, on_tick=told.append)
    assert told[-1].sources["visits"].waiting == 0, "the count goes on after a restart"
    assert told[-1].tick == 4


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_what_a_tick_costs_is_told_by_process_phase_and_exchange(
    spark: Any, tmp_path: Path, way: Any
) -> None:
    write(tmp_path / "in", 1, *range(100))
    told: list[Progress] = []
    source = io.JsonFiles(tmp_path / "in")
    flow = Flow("two stages")
    visits = flow.source("visits", Visit)
    counted = visits.group_by(col.page, col.at).agg(n=hr.count())
    flow.sink("pages", counted.group_by(col.page).agg(times=hr.count()))
    run(flow, spark, sources={"visits": source}, sinks={"pages": []}, way=way, shards=2, on_tick=told.append)
    cost = told[0].cost
    assert cost is not None
    assert cost.driver > 0
    assert cost.workers > 0
    assert cost.total >= cost.driver + cost.workers
    assert set(cost.phases) == {"read", "compute", "load state", "write state", "exchange", "write"}
    assert min(cost.phases.values()) >= 0
    assert sum(cost.phases.values()) <= cost.workers * 1.1
    assert sum(cost.exchanges.values()) == 102, "100 groups, and one of each shard"
    assert (cost.shuffled > 0) == (way == "stages")
    assert cost.memory is not None
    assert 1e7 < cost.memory < 1e10


def test_phases_of_sparks_batches_are_metrics(spark: Any, tmp_path: Path) -> None:
    for number in range(1, 4):
        write(tmp_path / "in", number, number)
    registry = CollectorRegistry()
    reader = spark.readStream.schema("at timestamp, page string").option("maxFilesPerTrigger", 1)
    source = Frame(reader.json(str(tmp_path / "in")))
    metrics: list[str] = []
    run(
        minutes(), spark, sources={"visits": source}, metrics=registry,
        on_tick=lambda _: metrics.append(generate_latest(registry).decode()),
    )  # fmt: skip
    # Spark tells of a batch when it is over: the last tick has heard of the first.
    assert 'headrace_spark_trigger_seconds_count{flow="minutes",phase="addBatch"}' in metrics[-1]


def test_of_a_data_frame_it_is_not_known_what_waits(spark: Any) -> None:
    told: list[Progress] = []
    frame = spark.createDataFrame([(START, "a")], "at timestamp, page string")
    run(pages(), spark, sources={"visits": Frame(frame)}, sinks={"pages": []}, on_tick=told.append)
    assert told[0].sources["visits"].rows == 1
    assert (told[0].sources["visits"].waiting, told[0].waiting) == (None, None)
