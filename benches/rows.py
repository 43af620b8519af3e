"""Flows of rows in this process against the loop that a person would write, in one run.

    python benches/rows.py [WORKLOAD ...]

Chain, running word count, join, distinct, least values with rows taken back. Each
hand-written loop takes the same input and gives the same answers out, with
dicts and nothing in between. "tick" is `Engine.tick`, which checks every value of
the input; "tick_rows" takes rows that were checked before. Peers take part where
they are installed (`pip install 'headrace[bench]'`).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import headrace as hr
from benches.measure import race
from headrace import col

MILLION = 1_000_000


class Left(NamedTuple):
    k: int
    v: int


class Right(NamedTuple):
    k: int
    w: int


class Total(NamedTuple):
    total: int


def one_tick(flow: hr.Flow, sink: str, answer: Callable[[Any], Any], **rows: list[Any]) -> dict[str, Any]:
    """The two ways in: checked, and rows that were checked before."""
    checked = {name: hr.Engine(flow).internal_rows(name, given) for name, given in rows.items()}
    return {
        "tick": lambda: answer(plain(hr.Engine(flow).tick(**rows)[sink])),
        "tick_rows": lambda: answer(hr.Engine(flow).tick_rows(checked)[sink]),
    }


def plain(changes: Any) -> Any:
    """What `tick_rows` would give: weights only where rows may be taken back."""
    return changes.rows if changes.is_append else changes.raw


def chain() -> None:
    """map, filter, map, sum over a million ints, as expressions and as callables."""
    numbers = list(range(MILLION))

    opaque = hr.Flow("chain of callables")
    called = opaque.source("numbers", int).map(add_one).filter(is_even).map(times_three)
    opaque.sink("sum", called.group_by().agg(total=hr.sum(col.value)))

    exact = one_tick(chain_flow(), "sum", total_of, numbers=numbers)
    ways = {f"expressions, {way}": run for way, run in exact.items()}
    called_ways = one_tick(opaque, "sum", total_of, numbers=numbers)
    ways |= {f"callables, {way}": run for way, run in called_ways.items()}
    race(
        "chain of map, filter, map, sum; 1M ints",
        {
            "by hand": lambda: chain_by_hand(numbers),
            "by hand, calls": lambda: by_hand_calls(numbers),
            **ways,
        },
        limits=dict.fromkeys(ways, 1.3),
    )


def chain_by_hand(numbers: list[int]) -> int:
    total = 0
    for x in numbers:
        y = x + 1
        if y % 2 == 0:
            total += y * 3
    return total


def chain_flow() -> hr.Flow:
    flow = hr.Flow("chain of expressions")
    source = flow.source("numbers", int)
    even = source.select(y=col.value + 1).filter(col.y % 2 == 0).select(z=col.y * 3)
    flow.sink("sum", even.group_by().agg(total=hr.sum(col.z)))
    return flow


def total_of(changes: Any) -> int:
    (row,) = changes
    return row[0]


def add_one(x: int) -> int:
    return x + 1


def is_even(x: int) -> bool:
    return x % 2 == 0


def times_three(x: int) -> int:
    return x * 3


def by_hand_calls(numbers: list[int]) -> int:
    total = 0
    for x in numbers:
        y = add_one(x)
        if is_even(y):
            total += times_three(y)
    return total


def zipf_words(count: int, distinct: int) -> list[str]:
    rng = random.Random(1)
    weights = list(accumulate(1 / rank for rank in range(1, distinct + 1)))
    words = [f"word{n}" for n in range(distinct)]
    return rng.choices(words, cum_weights=weights, k=count)


def running_word_count() -> None:
    """Every word with how often it has come so far: a million updates."""
    words = zipf_words(MILLION, 10_000)

    def by_hand() -> int:
        counts: dict[str, int] = {}
        out: list[tuple[int, str]] = []
        append = out.append
        for word in words:
            n = counts[word] = counts.get(word, 0) + 1
            append((n, word))
        return fingerprint(out)

    flow = hr.Flow("running word count")
    flow.sink("counts", flow.source("words", str).enumerate(per="value", start=1))
    ways = one_tick(flow, "counts", fingerprint, words=words)
    race(
        "running word count; 1M words, 10k distinct",
        {"by hand": by_hand, **ways},
        limits=dict.fromkeys(ways, 1.5),
    )


def fingerprint(rows: Any) -> int:
    """Of a long list a number that hardly another one has: every thousandth row counts, to cost little."""
    return hash((len(rows), *map(tuple, rows[::1000]), tuple(rows[-1])))


def word_count() -> None:
    """How often each word came, known at the end."""
    words = zipf_words(MILLION, 10_000)

    def by_hand() -> int:
        counts: dict[str, int] = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        return sum(n * n for n in counts.values())

    flow = hr.Flow("word count")
    flow.sink("counts", flow.source("words", str).group_by("value").agg(n=hr.count()))
    ways = one_tick(flow, "counts", lambda rows: sum(row[1] * row[1] for row in rows), words=words)
    race("word count; 1M words in one tick", {"by hand": by_hand, **ways})


def join() -> None:
    """Two streams that come by turns, 200k rows each, 800k pairs."""
    rng = random.Random(2)
    left = [Left(rng.randrange(50_000), at) for at in range(200_000)]
    right = [Right(rng.randrange(50_000), at) for at in range(200_000)]
    steps = [(left[at : at + 1000], right[at : at + 1000]) for at in range(0, 200_000, 1000)]

    def by_hand() -> tuple[int, int]:
        lefts: dict[int, list[Left]] = {}
        rights: dict[int, list[Right]] = {}
        pairs = checksum = 0
        for l_rows, r_rows in steps:
            out: list[tuple[int, int, int]] = []
            for row in l_rows:
                k, v = row
                for _, w in rights.get(k, ()):
                    out.append((k, v, w))
                lefts.setdefault(k, []).append(row)
            for row in r_rows:
                k, w = row
                for _, v in lefts.get(k, ()):
                    out.append((k, v, w))
                rights.setdefault(k, []).append(row)
            pairs += len(out)
            checksum += sum(v * 3 + w for _, v, w in out)
        return pairs, checksum

    flow = hr.Flow("join")
    flow.sink("pairs", flow.source("left", Left).join(flow.source("right", Right), on="k"))
    check = hr.Engine(flow)
    rows = [(check.internal_rows("left", a), check.internal_rows("right", b)) for a, b in steps]

    def tick() -> tuple[int, int]:
        engine = hr.Engine(flow)
        return summed(engine.tick(left=a, right=b)["pairs"].rows for a, b in steps)

    def tick_rows() -> tuple[int, int]:
        engine = hr.Engine(flow)
        return summed(engine.tick_rows({"left": a, "right": b}).get("pairs", ()) for a, b in rows)

    ways = {"tick": tick, "tick_rows": tick_rows}
    race(
        "join; 2 x 200k rows in ticks of 1,000, 800k pairs",
        {"by hand": by_hand, **ways},
        limits=dict.fromkeys(ways, 1.5),
    )


def summed(ticks: Any) -> tuple[int, int]:
    pairs = checksum = 0
    for out in ticks:
        pairs += len(out)
        checksum += sum(row[1] * 3 + row[2] for row in out)
    return pairs, checksum


def distinct() -> None:
    """The set of a million rows of which a tenth are new."""
    rng = random.Random(3)
    values = [Left(rng.randrange(1_000), rng.randrange(100)) for _ in range(MILLION)]
    ticks = [values[at : at + 1000] for at in range(0, MILLION, 1000)]

    def by_hand() -> int:
        seen: set[Left] = set()
        count = 0
        for tick in ticks:
            out: list[Left] = []
            for value in tick:
                if value not in seen:
                    seen.add(value)
                    out.append(value)
            count += len(out)
        return count

    flow = hr.Flow("distinct")
    flow.sink("set", flow.source("values", Left).distinct())
    check = hr.Engine(flow)
    rows = [check.internal_rows("values", tick) for tick in ticks]

    def tick() -> int:
        engine = hr.Engine(flow)
        return sum(len(engine.tick(values=values)["set"]) for values in ticks)

    def tick_rows() -> int:
        engine = hr.Engine(flow)
        return sum(len(engine.tick_rows({"values": given}).get("set", ())) for given in rows)

    ways = {"tick": tick, "tick_rows": tick_rows}
    race(
        "distinct; 1M rows in ticks of 1,000, 100k different",
        {"by hand": by_hand, **ways},
        limits=dict.fromkeys(ways, 1.5),
    )


def least() -> None:
    """The least value per key while rows come and go; 1,000 changes a tick."""
    import heapq

    rng = random.Random(4)
    live: list[Left] = []
    ticks: list[list[hr.Change[Left]]] = []
    for _ in range(300):
        changes: list[hr.Change[Left]] = []
        for _ in range(1000):
            if live and rng.random() < 0.4:
                at = rng.randrange(len(live))
                live[at], live[-1] = live[-1], live[at]
                changes.append(hr.delete(live.pop()))
            else:
                live.append(Left(rng.randrange(2_000), rng.randrange(10**6)))
                changes.append(hr.insert(live[-1]))
        ticks.append(changes)

    def by_hand() -> int:
        # A heap per key whose dead entries are dropped when they come to the top.
        heaps: dict[int, list[int]] = {}
        counts: dict[int, dict[int, int]] = {}
        answers: dict[int, int] = {}
        changed = 0
        for changes in ticks:
            touched: dict[int, int | None] = {}
            for (k, v), weight in changes:
                if k not in touched:
                    touched[k] = answers.get(k)
                own = counts.setdefault(k, {})
                n = own.get(v, 0) + weight
                if n:
                    own[v] = n
                    if weight > 0:
                        heapq.heappush(heaps.setdefault(k, []), v)
                else:
                    del own[v]
            for k, before in touched.items():
                heap, own = heaps.get(k, []), counts[k]
                while heap and heap[0] not in own:
                    heapq.heappop(heap)
                if heap:
                    answers[k] = heap[0]
                else:
                    answers.pop(k, None)
                changed += before != answers.get(k)
        return changed + sum(answers.values())

    flow = hr.Flow("least")
    flow.sink("least", flow.table("rows", Left).group_by("k").agg(least=hr.min(col.v)))
    check = hr.Engine(flow)
    rows = [check.internal_rows("rows", changes) for changes in ticks]

    def through(outs: Any) -> int:
        answers: dict[int, int] = {}
        changed = 0
        for out in outs:
            keys: set[int] = set()
            for k, v, weight in out:
                keys.add(k)
                if weight > 0:
                    answers[k] = v
                elif answers.get(k) == v:
                    del answers[k]
            changed += len(keys)
        return changed + sum(answers.values())

    def tick() -> int:
        engine = hr.Engine(flow)
        return through(engine.tick(rows=changes)["least"].raw for changes in ticks)

    def tick_rows() -> int:
        engine = hr.Engine(flow)
        return through(engine.tick_rows({"rows": given}).get("least", ()) for given in rows)

    ways = {"tick": tick, "tick_rows": tick_rows}
    race(
        "least value per key; 300k changes, 40 % of them deletions",
        {"by hand": by_hand, **ways},
        limits=dict.fromkeys(ways, 1.5),
    )


WORKLOADS = {w.__name__: w for w in (chain, running_word_count, word_count, join, distinct, least)}


if __name__ == "__main__":
    for name in sys.argv[1:] or WORKLOADS:
        WORKLOADS[name]()
