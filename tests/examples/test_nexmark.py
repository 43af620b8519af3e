"""Nexmark queries on both engines, against SQL over all input so far."""

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

import penstock as ps
from examples.nexmark.events import SOURCES
from examples.nexmark.files import Format, write_chunks
from examples.nexmark.generator import Generator, Parameters
from examples.nexmark.oracle import SQL
from examples.nexmark.queries import QUERIES
from penstock import io
from tests.examples.recomputation import Kept, Recomputation, Rows, add

Mode = Literal["stream", "batch"]
EVENTS = 4_000
SEED = Parameters(seed=11)

pytestmark = pytest.mark.parametrize("query", QUERIES)


def expected(query: str, events: int = EVENTS) -> Rows:
    database = Recomputation(SOURCES)
    for source, rows in Generator(SEED).tick(0, events).items():
        database.feed(source, rows)
    answer = database.answer(SQL[query])
    assert answer, "the input is too small to show anything"
    return answer


def only_sink(flow: ps.Flow) -> str:
    (sink,) = flow.graph().sinks
    return sink


@pytest.mark.parametrize("size", [37, 500])
def test_after_every_tick_the_answer_is_that_of_all_events_so_far(query: str, size: int) -> None:
    flow = QUERIES[query]()
    sources, sink = flow.graph().sources, only_sink(flow)
    engine, database, answer = ps.Engine(flow), Recomputation(SOURCES), Counter[Any]()
    for tick in Generator(SEED).ticks(size * 40, size):
        for source, rows in tick.items():
            database.feed(source, rows)
        changes = engine.tick(**{s: rows for s, rows in tick.items() if s in sources})
        add(answer, changes[sink].raw)
        assert answer == database.answer(SQL[query])
    assert answer


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_arriving_files_give_the_same_answer(query: str, format: Format, tmp_path: Path) -> None:
    write_chunks(tmp_path, EVENTS, chunk=500, format=format, parameters=SEED)
    flow, kept = QUERIES[query](), Kept()
    ps.run(flow, sources=files(flow, tmp_path, format), sinks={only_sink(flow): kept})
    assert kept.ticks == 8
    assert kept.rows == expected(query)


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_spark_gives_the_same_answer(query: str, mode: Mode, tmp_path: Path, spark: Any) -> None:
    write_chunks(tmp_path, EVENTS, chunk=EVENTS // 4, format="parquet", parameters=SEED)
    flow, kept = QUERIES[query](), Kept()
    ps.spark.run(
        flow,
        spark,
        sources=files(flow, tmp_path, "parquet"),
        sinks={only_sink(flow): kept},
        checkpoint=tmp_path / "checkpoint" if mode == "stream" else None,
        mode=mode,
    )
    assert kept.ticks == {"stream": 4, "batch": 1}[mode]
    assert kept.rows == expected(query)


def files(flow: ps.Flow, folder: Path, format: Format) -> dict[str, Any]:
    kind = {"json": io.JsonFiles, "parquet": io.ParquetFiles}[format]
    return {source: kind(folder / source, files_per_tick=1) for source in flow.graph().sources}
