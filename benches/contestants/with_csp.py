"""csp: a C++ engine with Python nodes; NumPy sources, which are its fastest."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import csp
import numpy as np
from csp import ts

_START = datetime(2020, 1, 1)


def _curve(type_: type, values: Any) -> Any:
    times = np.datetime64(_START) + np.arange(1, len(values) + 1).astype("timedelta64[us]")
    return csp.curve(type_, (times, values))


def _run(graph: Any, *arguments: Any) -> Any:
    return csp.run(
        graph, *arguments, starttime=_START, endtime=timedelta(days=1), realtime=False, output_numpy=True
    )


@csp.graph
def _chain(values: object):
    x = _curve(int, values)
    y = x + 1
    z = csp.filter(y % csp.const(2) == 0, y) * 3
    csp.add_graph_output("sum", csp.accum(z), tick_count=1)


def chain(numbers: list[int]) -> int:
    return int(_run(_chain, np.array(numbers))["sum"][1][-1])


@csp.graph
def _diamond(values: object):
    a = _curve(float, values)
    csp.add_graph_output("d", (a + 1.0) / (a + 2.0))


def diamond(values: list[float]) -> tuple[int, float]:
    out = _run(_diamond, np.array(values))["d"][1]
    return len(out), round(float(out.sum()), 3)


@csp.node  # noqa: RET503
def _count(word: ts[object]) -> ts[int]:
    with csp.state():
        s_counts = {}
    if csp.ticked(word):
        n = s_counts[word] = s_counts.get(word, 0) + 1
        return n


@csp.graph
def _running(words: object):
    csp.add_graph_output("n", _count(_curve(object, words)))


def running_word_count(words: list[str]) -> tuple[int, int]:
    out = _run(_running, np.array(words, dtype=object))["n"][1]
    return len(out), int(out.sum())


@csp.graph
def _moving(values: object):
    csp.add_graph_output("mean", csp.stats.mean(_curve(float, values), interval=100, min_window=100))


def moving_average(values: list[float]) -> tuple[int, float]:

    out = _run(_moving, np.array(values))["mean"][1]
    out = out[~np.isnan(out)]
    return len(out), round(float(out.sum()), 3)
