"""Queries of Nexmark on Spark, many in one flow, against SQL; and the generator as a source of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

import headrace as hr
from examples.nexmark.events import SOURCES
from examples.nexmark.files import write_chunks
from examples.nexmark.generator import Generator, Parameters, side_input
from examples.nexmark.queries import QUERIES, flow_of
from tests.examples.nexmark_answers import EVENTS, PARAMETERS, WITH_LATE_ONES, expected
from tests.examples.recomputation import Kept

pytestmark = pytest.mark.spark

# Of each kind one: without state, a join, a loop of aggregates, windows, a ranking.
SAMPLE = ("q0", "q3", "q4", "q5", "q19")

of_all_queries = pytest.mark.parametrize(
    "names",
    [pytest.param(SAMPLE, id="a sample"), pytest.param(tuple(QUERIES), id="all", marks=pytest.mark.verify)],
)


def flow_and_sinks(names: tuple[str, ...]) -> tuple[hr.Flow, dict[str, Kept]]:
    return flow_of([QUERIES[name] for name in names], "nexmark"), {name: Kept() for name in names}


def generated(spark: Any, parameters: Parameters, ticks: int | None) -> dict[str, Any]:
    """The events as Spark generates them, bounded or in so many micro-batches."""
    from examples.nexmark.spark_source import nexmark_events

    events = nexmark_events(spark, EVENTS, ticks=ticks, parameters=parameters)
    return {**{kind: hr.spark.Frame(frame) for kind, frame in events.items()}, "side_input": side_input()}


def files(folder: Path, parameters: Parameters, ticks: int) -> dict[str, Any]:
    """The events as files, one of each kind in a tick."""
    write_chunks(folder, EVENTS, chunk=-(-EVENTS // ticks), format="parquet", parameters=parameters)
    arriving = {kind: hr.io.ParquetFiles(folder / kind, files_per_tick=1) for kind in SOURCES}
    return {**arriving, "side_input": side_input()}


def read_by(flow: hr.Flow, sources: dict[str, Any]) -> dict[str, Any]:
    return {name: sources[name] for name in flow.graph().sources}


@of_all_queries
@pytest.mark.parametrize(
    ("ticks", "way", "parameters", "from_files"),
    [
        pytest.param(2, "one task", PARAMETERS, True, id="2 ticks of files in one task"),
        pytest.param(5, "auto", WITH_LATE_ONES, False, id="5 ticks with late rows", marks=pytest.mark.verify),
        pytest.param(3, "stages", PARAMETERS, False, id="3 ticks by stages", marks=pytest.mark.verify),
    ],
)
def test_a_stream_gives_the_answers_of_the_database_however_it_is_cut(
    names: tuple[str, ...],
    ticks: int,
    way: Literal["auto", "one task", "stages"],
    parameters: Parameters,
    from_files: bool,
    tmp_path: Path,
    spark: Any,
) -> None:
    flow, kept = flow_and_sinks(names)
    sources = files(tmp_path, parameters, ticks) if from_files else generated(spark, parameters, ticks)
    hr.spark.run(flow, spark, sources=read_by(flow, sources), sinks=kept, way=way)
    size = -(-EVENTS // ticks)
    for name, answer in expected([QUERIES[name] for name in names], size=size, parameters=parameters).items():
        assert kept[name].rows == answer, name


@of_all_queries
def test_a_batch_gives_the_answers_of_the_database(names: tuple[str, ...], spark: Any) -> None:
    flow, kept = flow_and_sinks(names)
    sources = read_by(flow, generated(spark, PARAMETERS, None))
    hr.spark.run(flow, spark, sources=sources, sinks=kept, mode="batch")
    for name, answer in expected([QUERIES[name] for name in names]).items():
        assert kept[name].rows == answer, name


def test_spark_generates_the_same_events_in_the_same_order(spark: Any) -> None:
    from examples.nexmark.spark_source import nexmark_events

    parameters = Parameters(seed=5, disorder=30)
    frames = nexmark_events(spark, 1_000, partitions=3, parameters=parameters)
    for kind in SOURCES:
        table = Generator(parameters).table(kind, 0, 1_000)
        assert frames[kind].toArrow().cast(table.schema).equals(table)


def test_a_stream_of_events_gives_as_many_in_each_micro_batch_and_then_ends(
    tmp_path: Path, spark: Any
) -> None:
    from examples.nexmark.spark_source import nexmark_events

    found: dict[int, list[Any]] = {}

    def keep(frame: Any, number: int) -> None:
        found[number] = frame.toArrow()["date_time"].to_pylist()

    bids = nexmark_events(spark, 1_000, ticks=4)["bids"]
    writer = bids.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert list(found) == [0, 1, 2, 3]
    for number, times in found.items():
        assert times == [bid.date_time for bid in Generator().rows("bids", number * 250, number * 250 + 250)]
