"""Event time and order on Spark: files in order, ends of sources, windows left open for a later run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace import Flow, col, io
from headrace.errors import BadInput
from headrace.spark import Frame, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Event(NamedTuple):
    key: int
    at: int


def latest(total: int, event: Event) -> int:
    return total * 2 % 1009 + event.at


def counts() -> Flow:
    flow = Flow("counts per ten")
    events = flow.source("events", Event).watermark(col.at, lateness=4, late="late")
    flow.sink("counts", events.group_by("key", window=hr.tumbling(col.at, 10)).agg(n=hr.count()))
    flow.sink("numbers", events.enumerate().select(col.index, col.at))
    flow.sink("init", events.fold(0, latest))
    return flow


EVENTS = [Event(n % 3, n + (7 if n % 11 == 0 else 0)) for n in range(60)]


def write(folder: Path, first: int, events: list[Event], per_file: int) -> None:
    """Files of which later ones are larger: Spark starts with the largest."""
    folder.mkdir(exist_ok=True)
    for number, at in enumerate(range(0, len(events), per_file)):
        rows = events[at : at + per_file]
        text = "".join(json.dumps(e._asdict()) + " " * number * 50 + "\n" for e in rows)
        (folder / f"{first + number:04}.json").write_text(text)


def held(sinks: dict[str, io.Memory]) -> dict[str, list[Any]]:
    return {name: sorted(sink.changes().raw) for name, sink in sinks.items()}


def memories() -> dict[str, io.Memory]:
    return {"counts": io.Memory(), "late": io.Memory(), "numbers": io.Memory(), "init": io.Memory()}


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_a_run_that_drains_its_source_closes_the_last_windows(
    spark: SparkSession, tmp_path: Path, way: Any
) -> None:
    write(tmp_path / "in", 0, EVENTS, 7)
    here, there = memories(), memories()
    hr.run(counts(), {"events": EVENTS}, here)
    source = io.JsonFiles(str(tmp_path / "in"), files_per_tick=4)
    run(counts(), spark, sources={"events": source}, sinks=there, way=way, shards=3)
    assert held(here)["counts"]
    assert held(here)["late"]
    assert held(there) == held(here)


def test_a_run_with_a_checkpoint_leaves_windows_open_and_an_ended_source_stays_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    there = {name: io.Changelog(str(tmp_path / name)) for name in memories()}
    source = {"events": io.JsonFiles(str(folder))}
    write(folder, 0, EVENTS[:30], 10)
    run(counts(), spark, sources=source, sinks=there, checkpoint=checkpoint, shards=2)
    write(folder, 10, EVENTS[30:], 10)
    done = run(counts(), spark, sources=source, sinks=there, checkpoint=checkpoint, end=True)
    here = memories()
    hr.run(counts(), {"events": EVENTS}, here)
    for name, sink in there.items():
        assert sorted(net(rows_of(Path(sink.path)))) == held(here)[name]
    assert done.ticks
    write(folder, 20, [Event(0, 100)], 1)
    with pytest.raises(BadInput, match="has ended, and brings more rows"):
        run(counts(), spark, sources=source, sinks=there, checkpoint=checkpoint, end=True)


def test_rows_of_a_dataframe_are_in_the_order_in_which_spark_hands_them_out(spark: SparkSession) -> None:
    frame = spark.createDataFrame([tuple(e) for e in EVENTS], "key long, at long").coalesce(1)
    here, there = memories(), memories()
    hr.run(counts(), {"events": EVENTS}, here)
    run(counts(), spark, sources={"events": Frame(frame)}, sinks=there, shards=2)
    assert held(there) == held(here)


def rows_of(folder: Path) -> list[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    found: list[tuple[Any, ...]] = []
    for file in sorted(folder.rglob("*.parquet")):
        table = pq.ParquetFile(file).read()
        found += [tuple(row.values()) for row in table.to_pylist()]
    return found


def net(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with the sum of their weights."""
    sums: dict[tuple[Any, ...], int] = {}
    for *row, weight in rows:
        sums[tuple(row)] = sums.get(tuple(row), 0) + weight
    return [(*row, weight) for row, weight in sums.items() if weight]
