"""Loops in rounds on Spark Structured Streaming, from sources to sinks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace import Engine, Flow, io
from headrace.errors import FlowChanged, NotOnSpark
from headrace.spark import run
from headrace.state.checkpoint import Checkpoint
from headrace.state.manifest import as_it_is
from tests.properties.test_recursion import Pair
from tests.spark.test_rounds import closure, reached, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TICKS = [
    [Pair(n, n + 1) for n in range(5)],
    [Pair(7, 8), Pair(8, 7)],
    [Pair(5, 7), Pair(1, 0)],
]


def into(held: dict[str, Counter[Any]], sink: str) -> io.Call:
    def add(tick: int, changes: Any) -> None:
        for *row, weight in changes.raw:
            held[sink][tuple(row)] += weight

    return io.Call(add)


def in_process(flow: Flow, ticks: list[list[Pair]]) -> dict[str, Counter[Any]]:
    engine = Engine(flow)
    held: dict[str, Counter[Any]] = {name: Counter() for name in flow.graph().sinks}
    for edges in ticks:
        for name, changes in engine.tick(edges=edges).items():
            for *row, weight in changes.raw:
                held[name][tuple(row)] += weight
    return {name: +bag for name, bag in held.items()}


def streamed(
    spark: SparkSession, flow: Flow, ticks: list[list[Pair]], held: dict[str, Counter[Any]], **how: Any
) -> None:
    run(
        flow, spark, sources={"edges": io.Rows(ticks)}, sinks={name: into(held, name) for name in held}, **how
    )


def nothing_held(flow: Flow) -> dict[str, Counter[Any]]:
    return {name: Counter() for name in flow.graph().sinks}


def test_ticks_in_rounds_of_jobs_answer_what_the_engine_answers(spark: SparkSession, tmp_path: Path) -> None:
    flow = closure("paths")
    held = nothing_held(flow)
    streamed(spark, flow, TICKS, held, checkpoint=tmp_path, shards=2, loops="rounds", way="stages")
    assert {name: +bag for name, bag in held.items()} == in_process(flow, TICKS)
    # What only the rounds needed is gone; what is there, a commit names.
    with Checkpoint.open(tmp_path, as_it_is) as checkpoint:
        assert checkpoint.last is not None
        there = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("state/*/*")}
        assert there >= {file.name for file in checkpoint.last.files() if file.name.startswith("state")}
        assert len(there) < 40
    assert not (tmp_path / "sent").exists()


def test_what_speaks_in_every_tick_speaks_behind_a_loop_that_nothing_enters(spark: SparkSession) -> None:
    flow = Flow("spoken", ticks="given")
    edges = flow.source("edges", Pair)
    paths = flow.fixpoint(lambda found: step(found, edges), edges)
    flow.sink("news", paths.fold(0, lambda n, pair: n + 1, commutative=True, lifetime="tick"))
    held = nothing_held(flow)
    ticks = [TICKS[0], [], TICKS[1], []]
    streamed(spark, flow, ticks, held, shards=2, loops="rounds", way="stages")
    assert {name: +bag for name, bag in held.items()} == in_process(flow, ticks)


def test_small_ticks_and_large_ones_go_on_from_each_other(spark: SparkSession, tmp_path: Path) -> None:
    flow = closure()
    held = nothing_held(flow)
    for count, way in enumerate(("one task", "stages", "one task"), start=1):
        streamed(spark, flow, TICKS[:count], held, checkpoint=tmp_path, shards=2, loops="rounds", way=way)
        assert {name: +bag for name, bag in held.items()} == in_process(flow, TICKS[:count])


def test_where_loops_run_is_fixed_when_a_checkpoint_is_made(spark: SparkSession, tmp_path: Path) -> None:
    flow = closure()
    streamed(spark, flow, TICKS[:1], nothing_held(flow), checkpoint=tmp_path, loops="rounds")
    with pytest.raises(FlowChanged, match="has loops='rounds', not 'one shard'"):
        streamed(spark, flow, TICKS[:1], nothing_held(flow), checkpoint=tmp_path, loops="one shard")
    # Left out, it is what the checkpoint has.
    streamed(spark, flow, TICKS[:1], nothing_held(flow), checkpoint=tmp_path)


def test_rounds_are_refused_where_rows_may_be_taken_back(spark: SparkSession) -> None:
    flow = Flow("reachability")
    flow.sink("out", reached(flow, flow.source("start", int), flow.table("edges", Pair)))
    with pytest.raises(NotOnSpark, match="cannot run in rounds"):
        run(flow, spark, sources={"start": [0], "edges": [hr.insert(Pair(0, 1))]}, sinks={}, loops="rounds")
