"""Recursion over rows that come and go: reachability from one node, in one run with a loop by hand.

    python benches/recursion.py [--nodes 1000 10000 50000] [--edges FILE] [--changes 1000]

For each number of nodes a random graph of five edges per node, or the graph of FILE
(a line `from to` per edge): all edges in one tick, then single edges that come, then single
edges that go, each in a tick of its own with the answer after it. Beside it what a
person would write: a breadth-first search over a dict, which after each deletion
searches again, and after each insertion goes on from the new edge. Every answer is
checked against that search.

Times are CPU times, which other work on the machine disturbs less: medians (all edges at
once), and means with quantiles (single edges; the clock itself takes about half a microsecond), of
`Engine.tick_rows`, which takes rows that were checked before; all at once also of `Engine.tick`.
The worklist is the same loop over sources that only grow; from Arrow, it is given the edges as a table, and
from 20,000 rows on may run on columns.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import headrace as hr
from headrace import col


class Edge(NamedTuple):
    a: int
    b: int


Pairs = list[tuple[int, int]]


def flow(*, append: bool = False) -> hr.Flow:
    flow = hr.Flow("reachability")
    source = flow.source if append else flow.table
    edges, start = source("edges", Edge), source("start", int)
    reached = flow.feedback(int, changes=True)
    further = reached.join(edges, on=hr.left.value == hr.right.a).select(value=col.b, into=int)
    reached.close(start.union(further))
    flow.sink("reached", reached)
    return flow


def random_graph(nodes: int, seed: int) -> Pairs:
    """Five different edges per node on average."""
    rng = random.Random(seed)
    edges: dict[tuple[int, int], None] = {}
    while len(edges) < 5 * nodes:
        edges[rng.randrange(nodes), rng.randrange(nodes)] = None
    return list(edges)


class ByHand:
    """Reachability as a person would write it: the edges in a dict, and a search."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.edges: dict[int, list[int]] = {}
        self.reached: set[int] = set()

    def load(self, edges: Pairs) -> None:
        for a, b in edges:
            own = self.edges.get(a)
            if own is None:
                self.edges[a] = [b]
            else:
                own.append(b)
        self.search()

    def search(self) -> None:
        self.reached = {self.start}
        self._go_on([self.start])

    def _go_on(self, waiting: list[int]) -> None:
        reached, edges = self.reached, self.edges
        while waiting:
            found: list[int] = []
            for a in waiting:
                for b in edges.get(a, ()):
                    if b not in reached:
                        reached.add(b)
                        found.append(b)
            waiting = found

    def insert(self, a: int, b: int) -> None:
        self.edges.setdefault(a, []).append(b)
        if a in self.reached and b not in self.reached:
            self.reached.add(b)
            self._go_on([b])

    def delete(self, a: int, b: int) -> None:
        self.edges[a].remove(b)
        self.search()


def seconds(run: Callable[[], Any]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def bulk(edges: Pairs, start: int, repeats: int) -> dict[str, float]:
    """Median milliseconds of the first tick, in turns."""
    took: dict[str, list[float]] = {}
    users = [Edge(*edge) for edge in edges]
    table: Any = pa.table({name: list(of) for name, of in zip("ab", zip(*edges, strict=True), strict=True)})
    given = {
        True: ({"edges": edges, "start": [(start,)]}, {"edges": users, "start": [start]}),
        False: (
            {"edges": [(*edge, 1) for edge in edges], "start": [(start, 1)]},
            {"edges": [hr.insert(edge) for edge in users], "start": [start]},
        ),
    }
    for _ in range(repeats):
        hand = ByHand(start)
        gc.collect()
        took.setdefault("by hand", []).append(seconds(partial(hand.load, edges)) * 1e3)
        for name, append in (("worklist", True), ("by rounds", False)):
            rows, changes = given[append]
            ways: dict[str, Callable[[], Any]] = {
                name: partial(hr.Engine(flow(append=append)).tick_rows, rows),
                f"{name}, tick": partial(hr.Engine(flow(append=append)).tick, **changes),
            }
            if append:
                given_in_columns = {**changes, "edges": table}
                ways[f"{name}, from Arrow"] = partial(hr.Engine(flow(append=True)).tick, **given_in_columns)
            for way, run in ways.items():
                answers: list[Any] = []
                gc.collect()
                took.setdefault(way, []).append(seconds(lambda run=run, a=answers: a.append(run())) * 1e3)
                reached = answers[0]["reached"]
                found = {row[0] for row in (reached if isinstance(reached, list) else reached.raw)}
                assert found == hand.reached, way
    return {name: statistics.median(times) for name, times in took.items()}


def singles(edges: Pairs, nodes: Sequence[int], start: int, count: int, seed: int) -> None:
    """Mean microseconds of ticks of one edge that comes or goes."""
    rng = random.Random(seed)
    engine, hand = hr.Engine(flow()), ByHand(start)
    engine.tick_rows({"edges": [(*edge, 1) for edge in edges], "start": [(start, 1)]})
    hand.load(edges)
    held = set(hand.reached)
    there = dict.fromkeys(edges)
    gc.collect()
    gc.freeze()
    for what, weight in (("insert", 1), ("delete", -1)):
        ours: list[float] = []
        by_hand: list[float] = []
        moved = 0
        for _ in range(count):
            if weight > 0:
                edge = (rng.choice(nodes), rng.choice(nodes))
                while edge in there:
                    edge = (rng.choice(nodes), rng.choice(nodes))
                there[edge] = None
            else:
                edge = rng.choice(list(there))
                del there[edge]
            given = {"edges": [(*edge, weight)]}
            begin = time.thread_time_ns()
            out = engine.tick_rows(given).get("reached", ())
            ours.append((time.thread_time_ns() - begin) / 1e3)
            begin = time.thread_time_ns()
            hand.insert(*edge) if weight > 0 else hand.delete(*edge)
            by_hand.append((time.thread_time_ns() - begin) / 1e3)
            for node, change in out:
                (held.add if change > 0 else held.remove)(node)
            moved += len(out)
            assert held == hand.reached, edge
        ours.sort()
        print(
            f"  {what}: mean {statistics.mean(ours):.1f} us, median {ours[count // 2]:.1f}, "
            f"p99 {ours[count * 99 // 100]:.0f}, max {ours[-1]:.0f}; "
            f"by hand mean {statistics.mean(by_hand):.1f}; {moved / count:.2f} nodes per change"
        )
    gc.unfreeze()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="*", default=[1_000, 10_000, 50_000])
    parser.add_argument("--edges", type=Path, help="a file with a line `from to` per edge; the start is 1")
    parser.add_argument("--changes", type=int, default=1_000, help="single edges that come, and that go")
    parser.add_argument("--repeats", type=int, default=5, help="of the first tick")
    arguments = parser.parse_args()
    graphs = {f"{n:,} nodes": (random_graph(n, n), 0) for n in arguments.nodes}
    if arguments.edges:
        read = [tuple(map(int, line.split())) for line in arguments.edges.read_text().splitlines()]
        graphs[arguments.edges.name] = (list(dict.fromkeys((a, b) for a, b in read)), 1)
    for name, (edges, start) in graphs.items():
        nodes = sorted({node for edge in edges for node in edge})
        took = bulk(edges, start, arguments.repeats)
        hand = took.pop("by hand")
        told = ", ".join(f"{way} {ms:.1f} ({ms / hand:.2f}x)" for way, ms in took.items())
        print(f"{name}, {len(edges):,} edges: all at once, ms: by hand {hand:.1f}, {told}")
        singles(edges, nodes, start, arguments.changes, seed=7)


if __name__ == "__main__":
    main()
