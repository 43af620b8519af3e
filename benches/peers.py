"""Other streaming libraries for Python on the same work, in one run; answers compared with a loop by hand.

    pip install 'headrace[bench]'; python benches/peers.py [WORKLOAD ...]

Only libraries that are installed take part. "wrong" means that the answer is not the
loop's: where two paths meet again, engines that push events depth first answer
in between, with half of a change.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
from collections.abc import Callable
from typing import Any

import headrace as hr
from benches.measure import race
from benches.rows import MILLION, chain_by_hand, chain_flow, one_tick, total_of, zipf_words

PEERS = ("csp", "bytewax", "streamz", "reactivex", "pathway")
Runs = dict[str, Callable[[], Any]]


def peers(workload: str, data: Any, skip: tuple[str, ...] = ()) -> Runs:
    """What the installed libraries make of a workload."""
    runs: Runs = {}
    for peer in PEERS:
        if peer in skip or importlib.util.find_spec(peer) is None:
            continue
        function = getattr(importlib.import_module(f"benches.contestants.with_{peer}"), workload, None)
        if function is not None:
            runs[peer] = lambda function=function: function(data)
    return runs


def chain() -> None:
    numbers = list(range(MILLION))

    ours = one_tick(chain_flow(), "sum", total_of, numbers=numbers)
    race(
        "chain of map, filter, map, sum; 1M ints",
        {"by hand": lambda: chain_by_hand(numbers), "headrace": ours["tick"]},
        others=peers("chain", numbers),
        repeats=3,
    )


def diamond() -> None:
    values = [float(x) for x in range(300_000)]

    def by_hand() -> tuple[int, float]:
        out = []
        for a in values:
            b = a + 1
            c = a + 2
            out.append(b / c)
        return len(out), round(sum(out), 3)

    flow = hr.Flow("diamond")
    a = flow.signal("a", float)
    flow.sink("d", (a + 1) / (a + 2))

    def ours() -> tuple[int, float]:
        out = hr.Engine(flow).replay(a=values)["d"].values
        return len(out), round(sum(out), 3)

    race(
        "diamond; 300k events, a tick each",
        {"by hand": by_hand, "headrace": ours},
        others=peers("diamond", values),
        repeats=3,
    )


def running_word_count() -> None:
    words = zipf_words(MILLION, 10_000)

    def by_hand() -> tuple[int, int]:
        counts: dict[str, int] = {}
        out: list[tuple[str, int]] = []
        for word in words:
            n = counts[word] = counts.get(word, 0) + 1
            out.append((word, n))
        return len(out), sum(n for _, n in out)

    flow = hr.Flow("running word count")
    flow.sink("counts", flow.source("words", str).enumerate(per="value", start=1))
    at = flow.graph().nodes[flow.graph().sinks["counts"]].schema.names.index("index")
    ours = one_tick(flow, "counts", lambda rows: (len(rows), sum(row[at] for row in rows)), words=words)
    race(
        "running word count; 1M words, every update",
        {"by hand": by_hand, "headrace": ours["tick"]},
        others=peers("running_word_count", words),
        repeats=3,
    )


def moving_average() -> None:
    rng = random.Random(1)
    values = [rng.random() for _ in range(MILLION)]

    def by_hand() -> tuple[int, float]:
        window = [0.0] * 100
        out: list[float] = []
        total, at = 0.0, 0
        for n, value in enumerate(values):
            total += value - window[at]
            window[at] = value
            at = at + 1 if at < 99 else 0
            if n >= 99:
                out.append(total / 100)
        return len(out), round(sum(out), 3)

    flow = hr.Flow("moving average")
    flow.sink("mean", flow.signal("a", float).moving(100).mean())

    def ours() -> tuple[int, float]:
        out = hr.Engine(flow).replay(a=values)["mean"].values
        return len(out), round(sum(out), 3)

    # streamz sums each window anew: a hundred times the work.
    race(
        "moving average of 100; 1M floats",
        {"by hand": by_hand, "headrace": ours},
        others=peers("moving_average", values, skip=("streamz",)),
        repeats=3,
    )


WORKLOADS = {w.__name__: w for w in (chain, diamond, running_word_count, moving_average)}


if __name__ == "__main__":
    for name in sys.argv[1:] or WORKLOADS:
        WORKLOADS[name]()
