"""Run queries of Nexmark, and compare their answers with DuckDB's.

python -m examples.nexmark.run q5                          # in this process
python -m examples.nexmark.run q5 --on spark --ticks 20    # as a stream on Spark
python -m examples.nexmark.run q5 q7 --on batch            # as a batch on Spark
python -m examples.nexmark.run all
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Any

from rich.console import Console

import headrace as hr
from examples.nexmark.events import SOURCES
from examples.nexmark.generator import Generator, Parameters, side_input
from examples.nexmark.oracle import Database, Rows
from examples.nexmark.queries import QUERIES, Query, flow_of
from headrace import io

WIDTH = 32
"""Characters of a value that are shown."""


@dataclass
class Answer:
    """A sink that adds up changes."""

    rows: Rows = field(default_factory=Counter[tuple[Any, ...]])
    ticks: int = 0

    def __call__(self, tick: int, changes: Iterable[hr.Change[Any]]) -> None:
        self.ticks += 1
        for row, weight in changes:
            self.rows[tuple(row)] += weight
            if not self.rows[tuple(row)]:
                del self.rows[tuple(row)]


@dataclass(frozen=True)
class Given:
    """What to run: `size` events in a tick."""

    queries: Sequence[Query]
    events: int
    ticks: int
    parameters: Parameters

    @property
    def size(self) -> int:
        return -(-self.events // self.ticks)

    @property
    def flow(self) -> hr.Flow:
        return flow_of(self.queries, "nexmark " + " ".join(query.name for query in self.queries))


def run_here(given: Given, answers: dict[str, Answer]) -> int:
    """In this process. Returns how many ticks there were."""
    flow = given.flow
    ticks = list(Generator(given.parameters).ticks(given.events, given.size))
    sources: dict[str, Any] = {kind: io.Rows([tick[kind] for tick in ticks]) for kind in SOURCES}
    sources["side_input"] = side_input()
    ended = hr.run(flow, sources={name: sources[name] for name in flow.graph().sources}, sinks=answers)
    return ended.ticks


def run_on_spark(given: Given, answers: dict[str, Answer], *, stream: bool) -> int:
    """On Spark, which generates the events itself. Returns how many ticks there were."""
    from examples.nexmark.spark_source import nexmark_events

    flow, spark = given.flow, hr.spark.session()
    ticks = given.ticks if stream else None
    events = nexmark_events(spark, given.events, ticks=ticks, parameters=given.parameters)
    sources: dict[str, Any] = {kind: hr.spark.Frame(frame) for kind, frame in events.items()}
    sources["side_input"] = side_input()
    ended = hr.spark.run(
        flow,
        spark,
        sources={name: sources[name] for name in flow.graph().sources},
        sinks=answers,
        mode="stream" if stream else "batch",
    )
    return ended.ticks


def recomputed(given: Given, *, stream: bool) -> dict[str, Rows]:
    """What DuckDB answers to all events at once."""
    database, generator = Database(), Generator(given.parameters)
    size = given.size if stream else given.events
    for tick, start in enumerate(range(0, given.events, size)):
        for kind in SOURCES:
            database.add(kind, tick, generator.table(kind, start, min(start + size, given.events)))
    return {query.name: database.answer(query) for query in given.queries}


def show(console: Console, query: Query, rows: Rows, count: int) -> None:
    """The first rows of an answer, in their own order."""
    console.print(f"[bold]{query.name}[/]: {query.asks}", soft_wrap=True)
    graph = query.flow().graph()
    columns = [column.name for column in graph.nodes[graph.sinks[query.name]].schema.fields]
    for row in sorted(rows, key=repr)[:count]:
        shown = (f"{name}={_short(value)}" for name, value in zip(columns, row, strict=True))
        console.print("  " + " ".join(shown), markup=False, soft_wrap=True)
    if rows.total() > count:
        console.print(f"  and {rows.total() - count:,} more")


def _short(value: object) -> str:
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def main(arguments: list[str] | None = None, console: Console | None = None) -> None:
    """Raises `SystemExit` if an answer is not that of DuckDB."""
    parser = argparse.ArgumentParser(description="Run queries of Nexmark and compare them with DuckDB.")
    parser.add_argument("queries", nargs="+", choices=[*QUERIES, "all"], metavar="q0 ... q22 | all")
    parser.add_argument("--on", choices=["here", "spark", "batch"], default="here")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("--delay", type=int, default=1_000, help="event time between events, in microseconds")
    parser.add_argument("--disorder", type=int, default=100, help="events are mixed in groups of so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=5, help="how many rows of an answer to show")
    asked = parser.parse_args(arguments)
    console = console or Console(highlight=False)
    delay = timedelta(microseconds=asked.delay)
    parameters = Parameters(seed=asked.seed, inter_event_delay=delay, disorder=asked.disorder)
    names = list(QUERIES) if "all" in asked.queries else list(dict.fromkeys(asked.queries))
    given = Given([QUERIES[name] for name in names], asked.events, asked.ticks, parameters)
    stream = asked.on != "batch"
    answers = {name: Answer() for name in names}
    started = time.perf_counter()
    if asked.on == "here":
        ticks = run_here(given, answers)
    else:
        ticks = run_on_spark(given, answers, stream=stream)
    seconds = time.perf_counter() - started
    for query in given.queries:
        show(console, query, answers[query.name].rows, asked.rows)
    print(f"{asked.events:,} events in {ticks} ticks: {seconds:.1f} s, start-up included", file=sys.stderr)
    if find_spec("duckdb") is None:
        console.print("Not compared: there is no DuckDB (pip install duckdb).")
    else:
        compare(console, answers, recomputed(given, stream=stream))


def compare(console: Console, answers: dict[str, Answer], expected: dict[str, Rows]) -> None:
    """Raises `SystemExit` where two answers differ."""
    for name, rows in expected.items():
        if answers[name].rows != rows:
            more, less = answers[name].rows - rows, rows - answers[name].rows
            raise SystemExit(
                f"{name}: DuckDB answers otherwise.\n"
                f"  {more.total():,} rows are here alone, such as {list(more)[:1]}\n"
                f"  {less.total():,} rows are there alone, such as {list(less)[:1]}"
            )
        console.print(f"[bold green]Checked[/]: {name}, {rows.total():,} rows, the same as from DuckDB.")


if __name__ == "__main__":
    main()
