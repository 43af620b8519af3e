"""Driver side of a tick: one Spark job, then a commit, then publication of the output.

The driver tracks what tasks cannot know alone: the ends of sources and the watermarks, which a commit
keeps; the backlog of sources; and the sinks, prepared before the commit and published after it.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from headrace.engine.change import SinkChanges
from headrace.engine.endpoints import as_sink, table_sources
from headrace.engine.event_time import awaited_ends, more_after_the_end
from headrace.engine.progress import Observer, Progress, SourceProgress
from headrace.expr.code_runtime import EPOCH
from headrace.expr.row_classes import to_user
from headrace.expr.types import Rows
from headrace.io import Writer, open_sink
from headrace.io.files.file_reader import WideningLog
from headrace.io.outbox import DeliveredSink
from headrace.io.sink import PartsWriter, SinkRequest
from headrace.operators.event_time.late_rows import OnTime
from headrace.operators.event_time.watermark import EARLIEST, Watermark
from headrace.spark.sources.tick_input import Density, Expected, TickInput
from headrace.spark.ticks import task
from headrace.spark.ticks.failures import decoded_errors
from headrace.spark.ticks.intake import tagged_batch
from headrace.spark.ticks.messages import (
    ARROW,
    CostMeter,
    TickOutcome,
    collect_outcome,
    results_of,
    run_tasks,
)
from headrace.spark.ticks.output import outbox_of
from headrace.spark.ticks.plan import Compiled, ShippedPlan
from headrace.spark.ticks.round_jobs import FEW_ROWS, SparkJobs, run_in_jobs, run_stages
from headrace.spark.ticks.task import TickSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.engine.progress import Time
    from headrace.engine.prometheus import RunMetrics
    from headrace.graph.node import FlowGraph
    from headrace.io.source import DeadLetters
    from headrace.spark.placing.stages import StagePlan
    from headrace.spark.sources.arrivals import Arrivals
    from headrace.state.chain import BatchChain
    from headrace.state.checkpoint import Checkpoint
    from headrace.state.commit import Commit


Way: TypeAlias = Literal["one task", "stages", "here"]


@dataclass(slots=True)
class Ticker:
    """Runner of ticks, one after another; each is atomic, so after an error it has no effect.

    ways: "auto", or the way in which every tick runs.
    local: whether all tasks share this machine. tasks: how many run at a time.
    lag:   observer of source backlogs.
    metrics: also records the durations of Spark's batch phases. meter: measures what ticks cost.
    observer: receives the changes of sinks that the driver writes.
    """

    plan: Compiled
    checkpoint: Checkpoint
    outlets: Mapping[str, DriverSink]
    dead_letters: Mapping[str, DeadLetters]
    ways: Way | Literal["auto"]
    local: bool
    on_tick: Callable[[Progress], object] | None
    tasks: int = 1
    lag: SourceBacklog = field(default_factory=lambda: SourceBacklog({}))
    metrics: RunMetrics | None = None
    observer: Observer | None = None
    meter: CostMeter = field(default_factory=CostMeter)
    shipped: ShippedPlan = field(init=False)
    ends: Ends = field(init=False)
    lock: threading.Lock = field(default_factory=threading.Lock)
    widening: WideningLog = field(default_factory=WideningLog)
    totals: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    density: Density = field(default_factory=Density)
    _starts: dict[int, DataFrame] = field(default_factory=dict[int, "DataFrame"])

    def __post_init__(self) -> None:
        stays = self.ways == "here"
        self.shipped = ShippedPlan("", b"", self.plan) if stays else ShippedPlan.of(self.plan.plan)
        self.ends = Ends.of(self.plan.stages[0].stage.graph)

    @property
    def ended(self) -> frozenset[str]:
        """Sources that have ended for good."""
        last = self.checkpoint.last
        return frozenset(last.counters.get("ended", ())) if last else frozenset()

    @property
    def _due(self) -> frozenset[int]:
        """Cells to run in the next tick even without input."""
        last = self.checkpoint.last
        waiting = frozenset(last.counters.get("waiting", ())) if last else frozenset[int]()
        return waiting | self.plan.due(first=last is None)

    @property
    def pending(self) -> frozenset[int]:
        """Cells with deferred rows that start a tick."""
        last = self.checkpoint.last
        return frozenset(last.counters.get("pending", ())) if last else frozenset()

    def run(
        self,
        spark: SparkSession | None,
        given: TickInput,
        positions: Any,
        ended: Iterable[str] = (),
        times: tuple[int, ...] | None = None,
        sources: BatchChain | None = None,
    ) -> None:
        """Run the next tick. Raises the errors of the tick.

        positions, sources: positions of sources to commit, see `Commit`.
        ended: sources that end with this tick; `given` has the operators that are notified of it.
        times: for a tick that covers several times, see `TickSpec`.
        """
        start = time.perf_counter()
        tick = self.checkpoint.tick + 1
        expected = given.expected(self.plan.rows_of_one_task) if self._decides else None
        way = self._way(expected)
        outcome = self._job(spark, given, tick, way, times)
        self.ends.check(self.ended, outcome.taken)
        self.widening.warn(outcome.widened)
        # This process may have been stopped for long: another one may have taken over.
        self.checkpoint.check_lease()
        for name, outlet in self.outlets.items():
            outlet.prepare(tick, outcome.files.get(name, []), outcome.rows.get(name, []))
        for name, letters in self.dead_letters.items():
            letters.prepare(tick, outcome.bad.get(name, ()))
        rows_in = sum(outcome.taken.values())
        if expected is not None:
            self.density.learn(rows_in - expected.counted, expected.size)
        changes_out = sum(outcome.changes.values())
        commit = self.checkpoint.commit(
            outcome.chains,
            positions=positions,
            outputs=outcome.files,
            counters={
                "rows_in": rows_in,
                "changes_out": changes_out,
                "pending": sorted(outcome.pending),
                "waiting": sorted(outcome.waiting),
                "sinks": sorted(self.outlets),
                "ended": sorted({*self.ended, *ended}),
                **self._clocks(outcome),
            },
            sources=sources,
        )
        for name in outcome.passing:
            (self.plan.folder / name).unlink(missing_ok=True)
        self.checkpoint.check_lease()
        for outlet in self.outlets.values():
            outlet.publish(tick)
        for letters in self.dead_letters.values():
            letters.publish(tick)
        set_aside = sum(map(len, outcome.bad.values()))
        for at, count in enumerate((1, rows_in, set_aside, changes_out)):
            self.totals[at] += count
        if self.observer is not None:
            self.observer.on_changes(tick, outcome.rows)
        if self.on_tick is not None:
            did = Progress(tick, rows_in, set_aside, changes_out, time.perf_counter() - start, way)
            self.on_tick(self._stands(did, outcome, commit))

    def _stands(self, did: Progress, outcome: TickOutcome, commit: Commit) -> Progress:
        """Return the progress of a tick, and the position of the run after it."""
        names = [source.name for source in self.plan.plan.inputs]
        return replace(
            did,
            sources=self.lag.by_source(names, outcome.taken),
            watermarks=watermarks(commit, timestamps_of(self.plan.plan.stages)),
            late=late_rows(commit),
            state_bytes=commit.state_bytes,
            cost=self.meter.lap(outcome.costs),
        )

    def _clocks(self, outcome: TickOutcome) -> dict[str, dict[str, Any]]:
        last = self.checkpoint.last
        counters: Mapping[str, Any] = last.counters if last else {}
        marks = {name: encode_watermark(mark) for name, (mark, _) in outcome.clocks.items()}
        return {
            "watermarks": {
                **counters.get("watermarks", {}), **{n: mark for n, mark in marks.items() if mark is not None}
            },
            "late": {**counters.get("late", {}), **{n: late for n, (_, late) in outcome.clocks.items()}},
        }  # fmt: skip

    @property
    def _decides(self) -> bool:
        return self.ways == "auto" and self.local

    def _way(self, expected: Expected | None) -> Way:
        """Choose the way by the tick's expected rows or, if unknown, by the rows of the previous tick."""
        if self.ways != "auto":
            return self.ways
        last = self.checkpoint.last
        if not self.local or (expected is None and last is None):
            return "stages"
        before = last.counters.get("rows_in", 0) if last else 0
        rows = before if expected is None else expected.rows(self.density)
        return "one task" if rows <= self.plan.rows_of_one_task else "stages"

    def _job(
        self, spark: SparkSession | None, given: TickInput, tick: int, way: Way, times: tuple[int, ...] | None
    ) -> TickOutcome:
        last = self.checkpoint.last
        order = TickSpec(self.shipped, tick, dict(last.chains) if last else {}, self._due, times=times)
        if way == "here":
            batches = [tagged_batch(given.tagged()), *given.batches]
            made = pa.Table.from_batches(task.whole_tick(order)(batches), ARROW)
            return collect_outcome(results_of(made))
        assert spark is not None
        if way == "one task":
            rows, shares = self._start(spark, given, 1)
            rows = rows.coalesce(1) if given.frames else rows
            return _outcome_of(run_tasks(rows, task.whole_tick(order, shares)))
        stages, sent = self.plan.plan.stages, self.plan.folder / "sent"
        if self.local:
            order = replace(order, shared=str(sent))
        try:
            if stages.loops:
                few = FEW_ROWS if self.local else 0
                jobs = SparkJobs(spark, stages.shards, partial(self._scattered, spark, given), few)
                return run_in_jobs(stages, order, jobs, str(sent))
            messages = self._scattered(spark, given, order)
            return _outcome_of(run_stages(messages, order, stages.shards, range(1, len(stages.stages))))
        finally:
            shutil.rmtree(sent, ignore_errors=True)

    def _scattered(self, spark: SparkSession, given: TickInput, order: TickSpec) -> DataFrame:
        rows, shares = self._start(spark, given, min(self.tasks, max(1, len(given.located))))
        return run_tasks(rows, task.scatter(order, shares))

    def _start(self, spark: SparkSession, given: TickInput, tasks: int) -> tuple[DataFrame, task.Shares]:
        """Return the frame whose partitions start the tasks, and the additional input of each task."""
        if given.frames:
            return given.frame(spark), ()
        # Only made once, since Spark takes long to plan a frame.
        frame = self._starts.get(tasks)
        if frame is None:
            frame = self._starts[tasks] = spark.range(0, tasks, 1, tasks)
        return frame, given.shares(tasks)


def _outcome_of(messages: DataFrame) -> TickOutcome:
    with decoded_errors():
        table = messages.toArrow()
    return collect_outcome(results_of(table))


@dataclass(frozen=True, slots=True)
class DriverSink:
    """An open sink of a run. target: data of `headrace.io`."""

    name: str
    target: object
    writer: Writer

    def prepare(self, tick: int, files: list[str], rows: Rows) -> None:
        """Stage the tick's output, invisible to readers: files of tasks, or rows."""
        if files:
            assert isinstance(self.writer, PartsWriter), "tasks write only for writers of parts"
            self.writer.assemble(tick, files)
        elif rows:
            self.writer.prepare(tick, rows)

    def publish(self, tick: int) -> None:
        self.writer.publish(tick)


def open_outlets(
    graph: FlowGraph,
    sinks: Mapping[str, Any],
    folder: Path,
    tick: int,
    durable: bool,
    closing: ExitStack,
    append: Mapping[str, bool],
    keep_ticks: int = 1,
) -> dict[str, DriverSink]:
    """Open the requested sinks and recover them to the committed tick.

    append:     by source whether its rows are never taken back.
    keep_ticks: of the checkpoint, see `SinkRequest`.

    Raises `BadInput` for what is no sink, or holds ticks that this run cannot have written.
    """
    outlets: dict[str, DriverSink] = {}
    for name, sink in sinks.items():
        target = as_sink(sink)
        schema = graph.nodes[graph.sinks[name]].schema
        user = to_user(schema)
        spool = outbox_of(folder, name) if durable or isinstance(target, DeliveredSink) else None
        sources = table_sources(graph, append, name)
        request = SinkRequest(
            name, schema, spool, lambda rows, user=user: SinkChanges(rows, False, user), sources, keep_ticks
        )
        writer = open_sink(target, request)
        closing.callback(writer.close)
        writer.recover(tick)
        outlets[name] = DriverSink(name, target, writer)
    return outlets


_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Ends:
    """Ends of sources. graph: stage 0. operators: by name, the sources whose ends an operator awaits."""

    graph: FlowGraph
    operators: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, graph: FlowGraph) -> Ends:
        operators = ((name, graph.nodes[node].operator) for name, node in awaited_ends(graph).items())
        return cls(graph, {name: frozenset(_sources(operator)) for name, operator in operators})

    @property
    def awaited(self) -> frozenset[str]:
        """Sources whose end some operator waits for."""
        return frozenset().union(*self.operators.values())

    def ended_operators(self, before: Iterable[str], now: Iterable[str]) -> list[str]:
        """Return the operators whose last sources end in `now`; those in `before` have already ended."""
        earlier = frozenset(before)
        after = earlier | frozenset(now)
        return [name for name, of in self.operators.items() if of <= after and not of <= earlier]

    def check(self, ended: Iterable[str], taken: Mapping[str, int]) -> None:
        """Raise `BadInput` for rows of a source that has ended."""
        for name in ended:
            if taken.get(name):
                raise more_after_the_end(self.graph, name)


def _sources(operator: Any) -> Iterable[str]:
    return operator.sources


def encode_watermark(watermark: Any) -> int | float | None:
    """Encode a watermark for a commit: microseconds since 1970, or a number; None before the first time."""
    if isinstance(watermark, datetime):
        return None if watermark <= EARLIEST else (watermark - EPOCH) // _MICROSECOND
    return watermark if watermark is not None and isfinite(watermark) else None


def watermarks(commit: Commit, timestamps: frozenset[str]) -> dict[str, Time]:
    """Return the current watermarks, by operator name.

    timestamps: operators whose watermarks are timestamps, which a commit has in microseconds since 1970.
    """
    found: Mapping[str, int | float] = commit.counters.get("watermarks") or {}
    return {
        name: EPOCH + timedelta(microseconds=value) if name in timestamps else value
        for name, value in found.items()
    }


def late_rows(commit: Commit) -> dict[str, int]:
    """Return the number of late rows so far, per watermark."""
    return dict(commit.counters.get("late") or {})


def timestamps_of(plan: StagePlan) -> frozenset[str]:
    """Return the operators of a flow whose watermark is a timestamp rather than a number."""
    return frozenset(
        node.name
        for stage in plan.stages
        for node in stage.graph.nodes
        if isinstance(node.operator, OnTime | Watermark)
        and isinstance(node.operator.clock.lateness, timedelta)
    )


@dataclass(slots=True)
class SourceBacklog:
    """Observer of source backlogs during a run.

    arrivals: of the sources whose input the driver finds.
    query:    the one that runs, once there is one.
    """

    arrivals: Mapping[str, Arrivals]
    query: StreamingQuery | None = None

    def by_source(self, names: Iterable[str], rows: Mapping[str, int]) -> dict[str, SourceProgress]:
        """Return the progress of each source in `names`: its rows in this tick, and its backlog."""
        named = list(names)
        connectors = [] if self.arrivals.keys() >= set(named) else self._connectors()
        # Spark names sources by their connector: which of ours it is shows where there is one of each.
        alone = len(connectors) == 1 and sum(name not in self.arrivals for name in named) == 1
        backlog = connectors[0] if alone else {}
        return {name: self._one(name, rows.get(name, 0), backlog) for name in named}

    def _one(self, name: str, rows: int, backlog: Mapping[str, str]) -> SourceProgress:
        arrivals = self.arrivals.get(name)
        if arrivals is None:
            return SourceProgress(rows, backlog=backlog)
        return SourceProgress(rows, arrivals.waiting, arrivals.newest)

    def _connectors(self) -> list[dict[str, str]]:
        """Return the connectors' reports on the previous batch."""
        last: Any = None if self.query is None else self.query.lastProgress
        return [] if last is None else [_metrics(source) for source in last.sources]


def _metrics(source: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in (source.metrics or {}).items()}
