"""Large ticks on frames against Polars itself and a hand-written Python loop, in one run.

    python benches/columnar.py [--quick] [--crossover] [--one-core]

Each workload is one tick of a new engine. Inputs are given as a list of rows or
as a Polars frame; Polars is timed from the same. Medians of runs that take turns,
in milliseconds; every answer is checked against the loop's. The time of an engine
ends when its changes can be read; what reading all of them costs is beside it
where they are many.

--crossover prints for each shape the milliseconds per tick of both paths by the number
of rows, from which the default of `columnar_rows` was read.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import polars as pl

import headrace as hr
from headrace import col


class Pair(NamedTuple):
    key: int
    value: int


class Other(NamedTuple):
    key: int
    weight: int


# -- the flows ----------------------------------------------------------------------------


def chain() -> hr.Flow:
    flow = hr.Flow("chain")
    numbers = flow.source("numbers", int)
    kept = numbers.select(value=col.value * 3 + 1).filter(col.value % 2 == 0)
    flow.sink("out", kept.select(value=col.value * 2).group_by().agg(total=hr.sum(col.value)))
    return flow


def word_count() -> hr.Flow:
    flow = hr.Flow("words")
    flow.sink("out", flow.source("words", str).group_by(word=col.value).agg(count=hr.count()))
    return flow


def join() -> hr.Flow:
    flow = hr.Flow("join")
    flow.sink("out", flow.source("left", Pair).join(flow.source("right", Other), on="key"))
    return flow


def totals() -> hr.Flow:
    """A join that is not shown row by row: the sum over its pairs, per key."""
    flow = hr.Flow("totals")
    pairs = flow.source("left", Pair).join(flow.source("right", Other), on="key")
    flow.sink("out", pairs.group_by(bucket=col.key % 100).agg(total=hr.sum(col.value + col.weight)))
    return flow


def distinct() -> hr.Flow:
    flow = hr.Flow("distinct")
    flow.sink("out", flow.source("words", str).distinct())
    return flow


# -- by hand and by Polars ------------------------------------------------------------------


def chain_by_hand(numbers: list[int]) -> int:
    total = 0
    for n in numbers:
        m = n * 3 + 1
        if m % 2 == 0:
            total += m * 2
    return total


def chain_by_polars(frame: pl.DataFrame) -> int:
    made = pl.col("value") * 3 + 1
    return (
        frame.lazy()
        .select(m=made)
        .filter(pl.col("m") % 2 == 0)
        .select((pl.col("m") * 2).sum())
        .collect()
        .item()
    )


def count_by_hand(words: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def count_by_polars(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.lazy().group_by("value").len().collect()


def join_by_hand(left: list[Pair], right: list[Other]) -> list[tuple[int, int, int]]:
    by_key: dict[int, list[Pair]] = defaultdict(list)
    for row in left:
        by_key[row.key].append(row)
    out: list[tuple[int, int, int]] = []
    for key, weight in right:
        out += [(key, value, weight) for _, value in by_key.get(key, ())]
    return out


def join_by_polars(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    return left.lazy().join(right.lazy(), on="key").collect()


# -- timing ---------------------------------------------------------------------------------


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and what came of it."""
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    result = run()
    taken = (time.perf_counter() - start) * 1000
    gc.enable()
    return taken, result


def medians(
    runs: dict[str, Callable[[], Any]], repeats: int, check: Callable[[str, Any], None]
) -> dict[str, float]:
    """The median milliseconds of each, which take turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            taken, result = timed(run)
            check(name, result)
            times[name].append(taken)
            del result
    return {name: statistics.median(taken) for name, taken in times.items()}


def one_tick(flow: Callable[[], hr.Flow], columnar: Any = "auto", **inputs: Any) -> Callable[[], Any]:
    """One tick of a new engine; the compilation is not part of what is timed."""

    def run() -> Any:
        return engines.pop().tick(**inputs)["out"]

    built = flow()
    engines = [hr.Engine(built, columnar=columnar) for _ in range(64)]
    for engine in engines:
        engine._machine.large_ticks()
    return run


def show(title: str, taken: dict[str, float], base: str, list_base: str | None = None) -> None:
    print(f"\n{title}")
    for name, milliseconds in taken.items():
        ratio = milliseconds / taken[base]
        more = "" if list_base is None else f"  {milliseconds / taken[list_base]:6.2f} x {list_base}"
        print(f"  {name:<34} {milliseconds:9.1f} ms  {ratio:6.2f} x {base}{more}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, three repeats")
    parser.add_argument("--crossover", action="store_true")
    parser.add_argument("--one-core", action="store_true", help="run everything on one core")
    arguments = parser.parse_args()
    if arguments.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if arguments.crossover:
        crossover()
        return
    rows, repeats = (100_000, 3) if arguments.quick else (1_000_000, 7)
    rng = random.Random(7)
    print(f"{rows:,} rows, medians of {repeats}, Polars {pl.__version__}, {pl.thread_pool_size()} threads")
    bench_chain(rows, repeats)
    bench_words(rng, rows, repeats)
    bench_join(rng, "join 2 x 200k, fan-out 4", rows // 5, rows // 20, repeats)
    bench_join(rng, "join 2 x 1M", rows, rows, repeats)


def bench_chain(rows: int, repeats: int) -> None:
    numbers = list(range(rows))
    frame = pl.DataFrame({"value": numbers})
    wanted = chain_by_hand(numbers)

    def check(name: str, result: Any) -> None:
        found = result if isinstance(result, int) else result[0].row.total
        assert found == wanted, name

    runs: dict[str, Callable[[], Any]] = {
        "loop": lambda: chain_by_hand(numbers),
        "Polars, frame": lambda: chain_by_polars(frame),
        "Polars, list": lambda: chain_by_polars(pl.DataFrame({"value": numbers})),
        "rows, list": one_tick(chain, "never", numbers=numbers),
        "columnar, list": one_tick(chain, numbers=numbers),
        "columnar, frame": one_tick(chain, numbers=frame),
    }
    show(
        "chain: map, filter, map, sum of ints", medians(runs, repeats, check), "Polars, frame", "Polars, list"
    )


def bench_words(rng: random.Random, rows: int, repeats: int) -> None:
    words = [f"word{rng.randrange(10_000)}" for _ in range(rows)]
    frame = pl.DataFrame({"value": words})
    wanted = count_by_hand(words)

    def check(name: str, result: Any) -> None:
        if isinstance(result, pl.DataFrame):
            result = dict(result.iter_rows())
        if not isinstance(result, dict):
            result = {word: count for (word, count), _ in result}
        assert result == wanted, name

    runs: dict[str, Callable[[], Any]] = {
        "loop": lambda: count_by_hand(words),
        "Polars, frame": lambda: count_by_polars(frame),
        "Polars, list": lambda: count_by_polars(pl.DataFrame({"value": words})),
        "rows, list": one_tick(word_count, "never", words=words),
        "columnar, list": one_tick(word_count, words=words),
        "columnar, frame": one_tick(word_count, words=frame),
    }
    show("word count, final counts", medians(runs, repeats, check), "Polars, frame", "Polars, list")


def bench_join(rng: random.Random, title: str, rows: int, keys: int, repeats: int) -> None:
    left = [Pair(rng.randrange(keys), at) for at in range(rows)]
    right = [Other(rng.randrange(keys), at) for at in range(rows)]
    left_frame = pl.DataFrame(left, schema=["key", "value"], orient="row")
    right_frame = pl.DataFrame(right, schema=["key", "weight"], orient="row")
    wanted = Counter(join_by_hand(left, right))

    def check(name: str, result: Any) -> None:
        assert len(result) == wanted.total(), name
        if name in checked:
            return
        checked.add(name)
        if isinstance(result, pl.DataFrame):
            result = result.select("key", "value", "weight").rows()
        elif not isinstance(result, list):
            result = [tuple(row) for row, _ in result]
        assert Counter(result) == wanted, name

    def from_lists() -> pl.DataFrame:
        one = pl.DataFrame(left, schema=["key", "value"], orient="row")
        return join_by_polars(one, pl.DataFrame(right, schema=["key", "weight"], orient="row"))

    checked: set[str] = set()
    runs: dict[str, Callable[[], Any]] = {
        "loop": lambda: join_by_hand(left, right),
        "Polars, frames": lambda: join_by_polars(left_frame, right_frame),
        "Polars, lists": from_lists,
        "rows, lists": one_tick(join, "never", left=left, right=right),
        "columnar, lists": one_tick(join, left=left, right=right),
        "columnar, frames": one_tick(join, left=left_frame, right=right_frame),
    }
    taken = medians(runs, min(repeats, 5), check)
    show(f"{title}: {wanted.total():,} results", taken, "Polars, frames", "Polars, lists")


def crossover() -> None:
    """Both paths by the number of rows of a tick, given as a list."""
    rng = random.Random(7)
    print(f"{'rows':>8}  " + "  ".join(f"{name:>23}" for name in ("chain", "words", "distinct", "join+sum")))
    for rows in (1_000, 3_000, 10_000, 20_000, 40_000, 80_000, 300_000):
        numbers = list(range(rows))
        words = [f"word{rng.randrange(10_000)}" for _ in range(rows)]
        left = [Pair(rng.randrange(rows), at) for at in range(rows)]
        right = [Other(rng.randrange(rows), at) for at in range(rows)]
        shown: list[str] = []
        for flow, inputs in (
            (chain, {"numbers": numbers}),
            (word_count, {"words": words}),
            (distinct, {"words": words}),
            (totals, {"left": left, "right": right}),
        ):
            in_rows, on_frames = (_per_tick(flow, c, inputs) for c in ("never", "always"))
            shown.append(f"{in_rows:10.3f} {on_frames:10.3f} {'*' if on_frames < in_rows else ' '}")
        print(f"{rows:>8}  " + "  ".join(f"{text:>23}" for text in shown))


def _per_tick(flow: Callable[[], hr.Flow], columnar: Any, inputs: dict[str, list[Any]]) -> float:
    taken: list[float] = []
    built = flow()
    for _ in range(9):
        engine = hr.Engine(built, columnar=columnar)
        engine._machine.large_ticks()
        taken.append(timed(lambda engine=engine: list(engine.tick(**inputs)["out"]))[0])
    return statistics.median(taken)


if __name__ == "__main__":
    main()
