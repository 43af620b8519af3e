"""Recursion on Spark: reachability from one node, as a batch and tick by tick.

    python benches/spark_recursion.py [--edges FILE] [--sizes 100000,1000000] [--ticks 100] [--memory]

As a batch, over random graphs of SIZE edges and half as many nodes: in one task, in rounds over
parts, and as a loop of DataFrames as one writes it by hand (the rows found last joined with the
edges, those that are known taken away, the new ones checkpointed).

Tick by tick, over the graph of FILE (a line `from to` per edge; the start is 1) or a random one of as
many edges: all edges at once, then ticks of 50 edges that come and 50 that go. Beside it the in-process
engine with the same ticks, the batch recomputed, and the loop of DataFrames. Then the same graph
with edges that only come, on one shard and in rounds.

Prints medians and ratios of one run. --memory: what a task takes per row, instead.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import headrace as hr
from headrace import col, io
from headrace.spark import Frame, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Pairs = list[tuple[int, int]]
EDGES_OF_FILE = 55_000
ONE_TASK, ROUNDS = 1 << 60, 0


class Edge(NamedTuple):
    a: int
    b: int


def reachability(*, append: bool) -> hr.Flow:
    flow = hr.Flow("reachability")
    source = flow.source if append else flow.table
    edges, start = source("edges", Edge), source("start", int)
    reached = flow.fixpoint(
        lambda found: found.join(edges, on=hr.left.value == hr.right.a).select(value=col.b, into=int), start
    )
    flow.sink("count", reached.group_by().agg(n=hr.count()))
    return flow


def random_edges(count: int, seed: int = 1) -> Pairs:
    rng = random.Random(seed)
    found: dict[tuple[int, int], None] = {}
    while len(found) < count:
        found[rng.randrange(count // 2), rng.randrange(count // 2)] = None
    return list(found)


def edges_of(file: Path | None) -> tuple[str, Pairs]:
    shared = Path(os.environ.get("HEADRACE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    found = file or shared / "data" / "reachability_edges.txt"
    if not found.is_file():
        return f"a random graph ({found} is not there)", random_edges(EDGES_OF_FILE)
    lines = (line.split() for line in found.read_text().splitlines())
    return found.name, list(dict.fromkeys((int(a), int(b)) for a, b in lines))


def reached_by_hand(edges: Pairs, start: int) -> int:
    after: dict[int, list[int]] = {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    found, waiting = {start}, [start]
    while waiting:
        fresh = {b for a in waiting for b in after.get(a, ())} - found
        found |= fresh
        waiting = list(fresh)
    return len(found)


def seconds(work: Callable[[], int], expected: int) -> float:
    begin = time.perf_counter()
    found = work()
    took = time.perf_counter() - begin
    assert found == expected, f"{found} nodes instead of {expected}"
    return took


def medians(ways: dict[str, tuple[Callable[[], int], int]], expected: int) -> dict[str, float]:
    """Median seconds per way, in turns, after one run of each that does not count; one way may run once."""
    took: dict[str, list[float]] = {}
    for turn in range(max(repeats for _, repeats in ways.values()) + 1):
        for name, (work, repeats) in ways.items():
            if turn <= repeats and (turn or repeats > 1):
                found = seconds(work, expected)
                if turn:
                    took.setdefault(name, []).append(found)
    return {name: statistics.median(times) for name, times in took.items()}


# --- as a batch ----------------------------------------------------------------------------


def frame_of(spark: SparkSession, edges: Pairs, file: Path) -> DataFrame:
    import pyarrow
    from pyarrow import parquet

    a, b = zip(*edges, strict=True)
    parquet.write_table(pyarrow.table({"a": a, "b": b}), file)
    return spark.read.parquet(str(file))


def batch(spark: SparkSession, edges: DataFrame, start: int, loop_rows: int) -> int:
    counts: list[Any] = []
    sources = {"edges": Frame(edges), "start": Frame(spark.createDataFrame([(start,)], "value bigint"))}
    run(
        reachability(append=True), spark, mode="batch", loop_rows=loop_rows, sources=sources,
        sinks={"count": counts},
    )  # fmt: skip
    return counts[-1].row.n


def frames(spark: SparkSession, edges: DataFrame, start: int) -> int:
    """The loop by hand. What is known is a union of what was found, checkpointed now and then."""
    edges = edges.localCheckpoint()
    known = fresh = spark.createDataFrame([(start,)], "value bigint").localCheckpoint()
    rounds = 0
    while fresh.take(1):
        rounds += 1
        found = fresh.join(edges, fresh.value == edges.a).select(edges.b.alias("value")).distinct()
        fresh = found.join(known, "value", "left_anti").localCheckpoint()
        known = known.union(fresh)
        if rounds % 8 == 0:
            known = known.localCheckpoint()
    return known.count()


def compare_batches(spark: SparkSession, sizes: list[int], folder: Path) -> None:
    print("\nAs a batch, seconds (times the one task)")
    print(f"{'edges':>10} {'reached':>10} {'one task':>10} {'rounds':>16} {'DataFrames':>16}")
    for size in sizes:
        pairs = random_edges(size)
        start = pairs[0][0]
        expected = reached_by_hand(pairs, start)
        edges = frame_of(spark, pairs, folder / f"{size}.parquet")
        took = medians(
            {
                "one": (lambda e=edges, s=start: batch(spark, e, s, ONE_TASK), 3),
                "rounds": (lambda e=edges, s=start: batch(spark, e, s, ROUNDS), 3),
                "frames": (lambda e=edges, s=start: frames(spark, e, s), 1),
            },
            expected,
        )
        one, others = took["one"], [took["rounds"], took["frames"]]
        factors = " ".join(f"{s:>8.2f} ({s / one:4.1f}x)" for s in others)
        print(f"{size:>10,} {expected:>10,} {one:>10.2f} {factors}", flush=True)


# --- tick by tick --------------------------------------------------------------------------


def ticks_of(edges: Pairs, count: int, *, append: bool) -> tuple[list[list[Any]], Pairs]:
    """All edges but some, then ticks of a hundred changes; and the edges in the end."""
    rng = random.Random(7)
    waiting = [edges[at] for at in rng.sample(range(len(edges)), 50 * count)]
    missing = set(waiting)
    there = [edge for edge in edges if edge not in missing]
    ticks: list[list[Any]] = [
        [hr.insert(Edge(*e)) for e in there] if not append else [Edge(*e) for e in there]
    ]
    for _ in range(count):
        new = [waiting.pop() for _ in range(50)]
        if append:
            ticks.append([Edge(*e) for e in new])
            there += new
            continue
        gone = [there.pop(rng.randrange(len(there))) for _ in range(50)]
        ticks.append([*(hr.insert(Edge(*e)) for e in new), *(hr.delete(Edge(*e)) for e in gone)])
        there += new
    return ticks, there


def starting(ticks: list[list[Any]], start: int) -> list[list[Any]]:
    return [[start], *([] for _ in ticks[1:])]


def on_spark(
    spark: SparkSession, ticks: list[list[Any]], start: int, expected: int, *, append: bool, **how: Any
) -> list[float]:
    """Seconds per tick."""
    took: list[float] = []
    counts: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        run(
            reachability(append=append), spark, checkpoint=folder,
            sources={"edges": io.Rows(ticks), "start": io.Rows(starting(ticks, start))},
            sinks={"count": counts}, on_tick=lambda done: took.append(done.seconds), **how,
        )  # fmt: skip
    assert (final := [c.row.n for c in counts if c.weight > 0][-1]) == expected, final
    return took


def in_process(ticks: list[list[Any]], start: int, expected: int, *, append: bool) -> list[float]:
    engine = hr.Engine(reachability(append=append))
    took: list[float] = []
    last = 0
    for edges, starts in zip(ticks, starting(ticks, start), strict=True):
        begin = time.perf_counter()
        out = engine.tick(edges=edges, start=starts)
        took.append(time.perf_counter() - begin)
        last = next((row[0] for row in out["count"].raw if row[-1] > 0), last)
    assert last == expected, last
    return took


def show(name: str, took: list[float], first: float, tick: float) -> None:
    bulk, rest = took[0], statistics.median(took[1:])
    print(
        f"{name:>34} {bulk:>9.2f} ({bulk / first:6.2f}x) {rest * 1000:>10.1f} ({rest / tick:8.2f}x)",
        flush=True,
    )


def compare_ticks(spark: SparkSession, name: str, edges: Pairs, count: int, folder: Path) -> None:
    start = 1 if any(a == 1 for a, _ in edges) else edges[0][0]
    ticks, final = ticks_of(edges, count, append=False)
    expected = reached_by_hand(final, start)
    print(f"\n{name}, {len(edges):,} edges, {expected:,} reached: {count} ticks of 50 inserts and 50 deletes")
    print(f"{'':>34} {'all at once, s':>18} {'a tick, ms (median)':>23}")
    on_spark(spark, ticks[:4], start, reached_by_hand(_after(ticks[:4]), start), append=False)
    ours = on_spark(spark, ticks, start, expected, append=False)
    first, tick = ours[0], statistics.median(ours[1:])
    show("Spark, tick by tick", ours, first, tick)
    show("in-process", in_process(ticks, start, expected, append=False), first, tick)
    frame = frame_of(spark, final, folder / "final.parquet")
    batch(spark, frame, start, ONE_TASK)
    again = [seconds(lambda: batch(spark, frame, start, ONE_TASK), expected) for _ in range(3)]
    show("Spark, the batch each tick", [statistics.median(again)] * 2, first, tick)
    show(
        "Spark, a loop of DataFrames",
        [seconds(lambda: frames(spark, frame, start), expected)] * 2,
        first,
        tick,
    )
    ticks, final = ticks_of(edges, min(count, 20), append=True)
    expected = reached_by_hand(final, start)
    print(f"\nEdges that only come: {len(ticks) - 1} ticks of 50")
    for label, how in {
        "one shard": {"loops": "one shard"},
        "rounds, a tick in one task": {"loops": "rounds", "way": "one task"},
        "rounds, each a job where large": {"loops": "rounds", "way": "stages"},
    }.items():
        show(label, on_spark(spark, ticks, start, expected, append=True, **how), first, tick)


def _after(ticks: list[list[Any]]) -> Pairs:
    there: dict[tuple[int, int], int] = {}
    for change in (change for tick in ticks for change in tick):
        there[tuple(change.row)] = there.get(tuple(change.row), 0) + change.weight
    return [edge for edge, weight in there.items() if weight]


# --- memory --------------------------------------------------------------------------------


def peak_of_workers(spark: SparkSession) -> int:
    """Bytes: the largest peak of Spark's Python workers so far."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        for _ in batches:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            yield pyarrow.RecordBatch.from_pylist([{"peak": peak}])

    # More tasks than workers, so that every worker gets one.
    found = spark.range(0, 8, numPartitions=8).mapInArrow(task, "peak bigint").toArrow()
    return max(found.column("peak").to_pylist())


def tell_memory(spark: SparkSession, sizes: list[int], folder: Path) -> None:
    """What a loop takes in its one task, and in rounds, in turns of growing size."""
    print(f"{'edges':>10} {'way':>10} {'peak of a worker, MB':>22} {'bytes per row that enters':>28}")
    for way, loop_rows in (("rounds", ROUNDS), ("one task", ONE_TASK)):
        base = peak_of_workers(spark)
        for size in sorted(sizes):
            pairs = random_edges(size)
            batch(spark, frame_of(spark, pairs, folder / f"{size}.parquet"), pairs[0][0], loop_rows)
            peak = peak_of_workers(spark)
            print(f"{size:>10,} {way:>10} {peak / 1e6:>22,.0f} {(peak - base) / size:>28,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edges", type=Path, help="a file with a line `from to` per edge; the start is 1")
    parser.add_argument(
        "--sizes", default="100000,1000000", help="edges of random graphs, with commas between"
    )
    parser.add_argument("--ticks", type=int, default=100)
    parser.add_argument("--memory", action="store_true")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",") if size]
    spark = hr.spark.session()
    with tempfile.TemporaryDirectory() as name:
        if given.memory:
            tell_memory(spark, sizes, Path(name))
            return
        compare_batches(spark, sizes, Path(name))
        compare_ticks(spark, *edges_of(given.edges), given.ticks, Path(name))
    spark.stop()


if __name__ == "__main__":
    main()
