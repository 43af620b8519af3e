"""Pull-streams against plain Python: chains of generators, calls by hand, waiting one at a time.

    python benches/pull.py [--quick]

1. A chain of ten functions over a list: generators, pipelines in batches, one value per request.
2. The parts of the protocol, each on its own: microseconds per value and edge.
3. A chain of modules that each wait: what the window does that a pipeline gives itself.
4. The two implementations of the protocol, callbacks and dataflow variables.
5. A flow between an endless source and a slow sink: how far ahead it reads.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import headrace as hr
from benches.measure import Table, race
from headrace import pull as callback
from headrace.pull import Pipeline, async_map, collect, dataflow, drain, for_each, map, pull, take, values

STAGES = 10
BATCH = 512


def plus_one(value: int) -> int:
    return value + 1


def chain(count: int) -> None:
    items = list(range(count))

    def generators() -> list[int]:
        through: Any = iter(items)
        for _ in range(STAGES):
            through = (plus_one(value) for value in through)
        return list(through)

    def piped(batch: int, fuse: bool) -> Callable[[], list[int]]:
        pipeline = pull(values(items), *[map(plus_one) for _ in range(STAGES)], collect(batch=batch))
        return lambda: pipeline.run(fuse=fuse)

    race(
        f"{STAGES} functions over {count:,} values",
        {
            "generators": generators,
            f"pipeline, {BATCH} values per request": piped(BATCH, True),
            f"the same, not fused, {STAGES + 1} edges": piped(BATCH, False),
            "one value per request": piped(1, True),
            f"one value per request, not fused, {STAGES + 1} edges": piped(1, False),
        },
        limits={f"pipeline, {BATCH} values per request": 1.5},
        repeats=3,
    )


def edges(count: int) -> None:
    """What a value costs per edge that it crosses."""

    def seconds(stages: int, batch: int) -> float:
        pipeline = pull(values(range(count)), *[map(plus_one)] * stages, drain(batch=batch))
        times: list[float] = []
        for _ in range(3):
            start = time.process_time()
            pipeline.run(fuse=False)
            times.append(time.process_time() - start)
        return statistics.median(times)

    table = Table(f"microseconds per value, {count:,} values", "", "source to sink", "each further map")
    for batch in (1, 8, 64, BATCH):
        first = seconds(0, batch)
        each = (seconds(STAGES, batch) - first) / STAGES
        table.add(f"{batch} per request", first / count * 1e6, each / count * 1e6)
    table.show()


def depth(count: int) -> None:
    """A chain of calls that wait 2 ms each; with one request in flight, only one of them works at a time."""

    async def wait(value: int) -> int:
        await asyncio.sleep(0.002)
        return value

    table = Table(
        f"values per second through a chain of modules that wait 2 ms each, {count} values",
        "modules",
        "one request",
        "window of the pipeline",
        "ratio",
    )
    for modules in (1, 2, 4, 8):
        pipeline = pull(values(range(count)), *[async_map(wait) for _ in range(modules)], collect())
        one, own = (count / _wall(pipeline, window) for window in (1, None))
        table.add(modules, f"{one:,.0f}", f"{own:,.0f}", own / one)
    table.show()


def forms(count: int) -> None:
    """One value per request through five maps, none fused."""

    def five(form: Any) -> Pipeline:
        return form.pull(form.values(range(count)), *[form.map(plus_one) for _ in range(5)], form.collect())

    callbacks, variables = five(callback), five(dataflow)
    race(
        f"the two forms of the protocol, five maps, {count:,} values",
        {"callbacks": lambda: callbacks.run(fuse=False), "dataflow variables": variables.run},
        repeats=3,
    )


def back_pressure() -> None:
    """A flow between an endless source and a slow sink: what is taken ahead, and the memory it takes."""
    table = Table(
        "an endless source, a sink that waits 0.2 ms for each value; ticks of 100 rows",
        "values",
        "rows ahead at most",
        "peak KiB",
    )
    _rows_ahead(10)  # imports what it needs
    for count in (500, 5_000):
        tracemalloc.start()
        ahead = _rows_ahead(count)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        table.add(f"{count:,}", ahead, f"{peak / 1024:,.0f}")
    table.show()


def _rows_ahead(count: int) -> int:
    drawn = ahead = seen = 0

    def endless() -> Iterator[int]:
        nonlocal drawn
        while True:
            drawn += 1
            yield drawn

    async def slow(_change: Any) -> None:
        nonlocal ahead, seen
        seen += 1
        ahead = max(ahead, drawn - seen)
        await asyncio.sleep(0.0002)

    flow = hr.Flow("slow sink")
    flow.sink("out", flow.source("in", int))
    hr.run(flow, {"in": endless()}, {"out": pull(take(count), for_each(slow))}, tick_rows=100)
    return ahead


def _wall(pipeline: Pipeline, window: int | None) -> float:
    times: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        pipeline.run(window=window)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pull-streams against plain Python.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    scale = 10 if parser.parse_args().quick else 1
    chain(1_000_000 // scale)
    edges(100_000 // scale)
    depth(200 // scale)
    forms(20_000 // scale)
    back_pressure()


if __name__ == "__main__":
    main()
