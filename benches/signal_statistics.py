"""Statistics of signals against hand-written loops, NumPy and pandas, in one run.

    python benches/signal_statistics.py [--quick]

1. The moving mean of 100 over a million floats, with a limit.
2. Nanoseconds per value of each statistic, beside the loop that a person would write for
   it, who keeps running sums and cares neither for drift nor for holes; and beside pandas
   and NumPy, which see the whole column at once. Answers are compared.
3. What is left in the answers of values that have long left the window: the largest error
   of the moving mean and deviation, against sums that are exact.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import statistics
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

import headrace as hr
from benches.measure import Table, race
from headrace.flow.signal import Signal

WINDOW = 100
Values = list[float]


# -- hand-written loops --------------------------------------------------------------------------------


def mean_by_hand(xs: Values) -> Values:
    ring, at, total, seen, out = [0.0] * WINDOW, 0, 0.0, 0, []
    for x in xs:
        total += x - ring[at]
        ring[at] = x
        at += 1
        if at == WINDOW:
            at = 0
        if seen < WINDOW - 1:
            seen += 1
        else:
            out.append(total / WINDOW)
    return out


def std_by_hand(xs: Values) -> Values:
    ring, at, total, squares, seen, out = [0.0] * WINDOW, 0, 0.0, 0.0, 0, []
    for x in xs:
        old = ring[at]
        total += x - old
        squares += x * x - old * old
        ring[at] = x
        at += 1
        if at == WINDOW:
            at = 0
        if seen < WINDOW - 1:
            seen += 1
        else:
            out.append(math.sqrt(max(0.0, (squares - total * total / WINDOW) / (WINDOW - 1))))
    return out


def max_by_hand(xs: Values) -> Values:
    best: deque[tuple[float, int]] = deque()
    out: Values = []
    for i, x in enumerate(xs):
        while best and best[-1][0] <= x:
            best.pop()
        best.append((x, i))
        if best[0][1] <= i - WINDOW:
            best.popleft()
        if i >= WINDOW - 1:
            out.append(best[0][0])
    return out


def median_by_hand(xs: Values) -> Values:
    ring: deque[float] = deque()
    ordered: Values = []
    out: Values = []
    half = WINDOW // 2
    for x in xs:
        ring.append(x)
        insort(ordered, x)
        if len(ring) > WINDOW:
            del ordered[bisect_left(ordered, ring.popleft())]
        if len(ring) == WINDOW:
            out.append((ordered[half - 1] + ordered[half]) / 2)
    return out


def rank_by_hand(xs: Values) -> Values:
    ring: deque[float] = deque()
    ordered: Values = []
    out: Values = []
    for x in xs:
        ring.append(x)
        insort(ordered, x)
        if len(ring) > WINDOW:
            del ordered[bisect_left(ordered, ring.popleft())]
        if len(ring) == WINDOW:
            out.append(bisect_left(ordered, x) + 1.0)
    return out


def ewm_by_hand(xs: Values) -> Values:
    keep, weighted, weights, out = 1 - 2 / (WINDOW + 1), 0.0, 0.0, []
    for x in xs:
        weighted = weighted * keep + x
        weights = weights * keep + 1.0
        out.append(weighted / weights)
    return out


def corr_by_hand(xs: Values, ys: Values) -> Values:
    ring: deque[tuple[float, float]] = deque()
    sx = sy = sxx = sxy = syy = 0.0
    n, out = WINDOW, []
    for x, y in zip(xs, ys):
        ring.append((x, y))
        sx += x
        sy += y
        sxx += x * x
        sxy += x * y
        syy += y * y
        if len(ring) > n:
            x, y = ring.popleft()
            sx -= x
            sy -= y
            sxx -= x * x
            sxy -= x * y
            syy -= y * y
        if len(ring) == n:
            out.append((n * sxy - sx * sy) / math.sqrt((n * sxx - sx * sx) * (n * syy - sy * sy)))
    return out


def diff_by_hand(xs: Values) -> Values:
    before, out = None, []
    for x in xs:
        if before is not None:
            out.append(x - before)
        before = x
    return out


def expanding_std_by_hand(xs: Values) -> Values:
    mean, squares, out = 0.0, 0.0, []
    for n, x in enumerate(xs, 1):
        d = x - mean
        mean += d / n
        squares += d * (x - mean)
        if n > 1:
            out.append(math.sqrt(squares / (n - 1)))
    return out


# -- the statistics ------------------------------------------------------------------------------------

Make = Callable[[Signal[float], Signal[float], Signal[float]], Signal[Any]]
Pandas = Callable[[Any, Any], Any]

STATISTICS: dict[str, tuple[Make, Callable[..., Values] | None, Pandas | None]] = {
    "moving mean": (
        lambda a, b, t: a.moving(WINDOW).mean(),
        mean_by_hand,
        lambda a, b: a.rolling(WINDOW).mean(),
    ),
    "moving sum": (lambda a, b, t: a.moving(WINDOW).sum(), None, lambda a, b: a.rolling(WINDOW).sum()),
    "moving std": (lambda a, b, t: a.moving(WINDOW).std(), std_by_hand, lambda a, b: a.rolling(WINDOW).std()),
    "moving max": (lambda a, b, t: a.moving(WINDOW).max(), max_by_hand, lambda a, b: a.rolling(WINDOW).max()),
    "moving median": (
        lambda a, b, t: a.moving(WINDOW).median(),
        median_by_hand,
        lambda a, b: a.rolling(WINDOW).median(),
    ),
    "moving rank": (
        lambda a, b, t: a.moving(WINDOW).rank(method="min"),
        rank_by_hand,
        lambda a, b: a.rolling(WINDOW).rank(method="min"),
    ),
    "moving corr": (
        lambda a, b, t: a.moving(WINDOW).corr(b),
        corr_by_hand,
        lambda a, b: a.rolling(WINDOW).corr(b),
    ),
    "moving regression": (lambda a, b, t: a.moving(WINDOW).regression()[0], None, None),
    "mean of the last 100 s": (
        lambda a, b, t: a.moving("100s", at=t, min_periods=WINDOW).mean(),
        None,
        lambda a, b: a.set_axis(pd.to_datetime(a.index, unit="s")).rolling("100s", min_periods=WINDOW).mean(),
    ),
    "expanding mean": (lambda a, b, t: a.expanding().mean(), None, lambda a, b: a.expanding().mean()),
    "expanding std": (
        lambda a, b, t: a.expanding(2).std(),
        expanding_std_by_hand,
        lambda a, b: a.expanding(2).std(),
    ),
    "expanding median": (lambda a, b, t: a.expanding().median(), None, lambda a, b: a.expanding().median()),
    "ewm mean": (
        lambda a, b, t: a.ewm(span=WINDOW).mean(),
        ewm_by_hand,
        lambda a, b: a.ewm(span=WINDOW).mean(),
    ),
    "ewm std": (
        lambda a, b, t: a.ewm(span=WINDOW, min_periods=2).std(),
        None,
        lambda a, b: a.ewm(span=WINDOW).std(),
    ),
    "diff": (lambda a, b, t: a.diff(), diff_by_hand, lambda a, b: a.diff()),
    "crossed": (lambda a, b, t: a.crossed(b), None, None),
    "bars of 100": (lambda a, b, t: a.ohlc(WINDOW)[3], None, None),
}


def flow_of(make: Make) -> hr.Flow:
    flow = hr.Flow("a statistic")
    flow.sink("out", make(flow.signal("a", float), flow.signal("b", float), flow.signal("t", float)))
    return flow


def nanoseconds(work: Callable[[], Any], values: int, repeats: int) -> tuple[float, Any]:
    """The median per value, and what came of it."""
    took: list[float] = []
    answer: Any = None
    for _ in range(repeats):
        del answer
        gc.collect()
        start = time.process_time_ns()
        answer = work()
        took.append((time.process_time_ns() - start) / values)
    return statistics.median(took), answer


def each_statistic(count: int, repeats: int) -> None:
    rng = random.Random(5)
    xs = [rng.gauss(50, 10) for _ in range(count)]
    ys = [x + rng.gauss(0, 10) for x in xs]
    ts = [float(i) for i in range(count)]
    a: Any = pd.Series(xs)
    b: Any = pd.Series(ys)
    columns = {"a": xs, "b": ys, "t": ts}
    # The cost of taking the values in and letting one of them out, which is in all the others.
    bare, _ = nanoseconds(lambda: _replay(flow_of(lambda a, b, t: a), {"a": xs}), count, repeats)
    table = Table(f"ns per value, {count:,} values", "", "headrace", "by hand", "ratio", "pandas")
    table.add("(nothing)", f"{bare:.0f}", "", "", "")
    for name, (make, by_hand, in_pandas) in STATISTICS.items():
        flow = flow_of(make)
        read = {n: columns[n] for n in columns if _reads(flow, n)}
        ours, answer = nanoseconds(lambda flow=flow, read=read: _replay(flow, read), count, repeats)
        hand = ratio = pandas = ""
        if by_hand is not None:
            inputs = [read[n] for n in ("a", "b") if n in read]
            took, expected = nanoseconds(lambda f=by_hand, i=inputs: f(*i), count, repeats)
            _compare(name, answer, expected)
            hand, ratio = f"{took:.0f}", f"{ours / took:.2f}"
        if in_pandas is not None:
            took, expected = nanoseconds(lambda f=in_pandas: f(a, b).to_numpy(), count, repeats)
            _compare(name, answer, expected[~np.isnan(expected)])
            pandas = f"{took:.0f}"
        table.add(name, f"{ours:.0f}", hand, ratio, pandas)
    table.show()


def _reads(flow: hr.Flow, name: str) -> bool:
    node = flow.graph().sources[name]
    return any(node in n.inputs for n in flow.nodes)


def _replay(flow: hr.Flow, columns: dict[str, Values]) -> Values:
    return hr.Engine(flow).replay(**columns)["out"].values


def _compare(name: str, answer: Sequence[float], expected: Sequence[float]) -> None:
    assert len(answer) == len(expected), f"{name}: {len(answer)} values, not {len(expected)}"
    np.testing.assert_allclose(answer, expected, rtol=1e-6, err_msg=name)


def the_limit(count: int, repeats: int) -> None:
    rng = random.Random(1)
    xs = [rng.random() for _ in range(count)]
    flow = flow_of(STATISTICS["moving mean"][0])

    def short(values: Values) -> tuple[int, float, float]:
        return len(values), round(values[-1], 9), round(math.fsum(values), 3)

    race(
        f"moving mean of {WINDOW}, {count:,} floats",
        {"loop": lambda: short(mean_by_hand(xs)), "headrace": lambda: short(_replay(flow, {"a": xs}))},
        repeats=repeats,
        limits={"headrace": 2.0},
    )


def what_stays_behind(count: int) -> None:
    rng = random.Random(9)
    xs = [1e6 + rng.random() for _ in range(count)]
    for at in range(0, count, 1_000):
        xs[at] = 1e15
    looked_at = [at for at in range(2 * WINDOW, count, 997) if at % 1_000 >= WINDOW]
    flow_mean = flow_of(lambda a, b, t: a.moving(WINDOW).mean())
    flow_std = flow_of(lambda a, b, t: a.moving(WINDOW).std())
    series: Any = pd.Series(xs)
    rows = {
        "running sums by hand": (mean_by_hand(xs), std_by_hand(xs)),
        "pandas": (
            series.rolling(WINDOW).mean().to_numpy()[WINDOW - 1 :],
            series.rolling(WINDOW).std().to_numpy()[WINDOW - 1 :],
        ),
        "headrace": (_replay(flow_mean, {"a": xs}), _replay(flow_std, {"a": xs})),
    }
    worst = {name: [0.0, 0.0] for name in rows}
    for at in looked_at:
        window = [Fraction(x) for x in xs[at - WINDOW + 1 : at + 1]]
        mean = sum(window) / WINDOW
        std = math.sqrt(sum((x - mean) ** 2 for x in window) / (WINDOW - 1))
        for name, (means, stds) in rows.items():
            location = at - WINDOW + 1
            worst[name][0] = max(worst[name][0], abs(means[location] - float(mean)) / std)
            worst[name][1] = max(worst[name][1], abs(stds[location] - std) / std)
    title = f"largest error in standard deviations, {count:,} values around 1e6, one in 1,000 is 1e15"
    table = Table(title, "", "mean", "std")
    for name, (mean, std) in worst.items():
        table.add(name, f"{mean:.1e}", f"{std:.1e}")
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer values and repeats")
    quick = parser.parse_args().quick
    the_limit(200_000 if quick else 1_000_000, 3 if quick else 5)
    each_statistic(50_000 if quick else 200_000, 3)
    what_stays_behind(100_000 if quick else 1_000_000)


if __name__ == "__main__":
    main()
