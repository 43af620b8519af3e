"""Driver side of a tick: one Spark job, then a commit, then publication of the output."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.engine.progress import Observer, Progress
from headrace.io.files.file_reader import WideningLog
from headrace.spark.sources.tick_input import Density, Expected, TickInput
from headrace.spark.ticks import progress, task
from headrace.spark.ticks.cost import CostMeter
from headrace.spark.ticks.errors import told_errors
from headrace.spark.ticks.event_time import Ends, stand_of
from headrace.spark.ticks.lag import Lag
from headrace.spark.ticks.messages import results_of, run_tasks
from headrace.spark.ticks.plan import Compiled, ShippedPlan
from headrace.spark.ticks.round_jobs import FEW_ROWS, SparkJobs, run_in_jobs, run_stages
from headrace.spark.ticks.task import TickOrder
from headrace.spark.ticks.task_outcome import Outcome, gathered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.engine.prometheus import RunMetrics
    from headrace.io.source import DeadLetters
    from headrace.spark.ticks.driver_sinks import DriverSink
    from headrace.state.chain import BatchChain
    from headrace.state.checkpoint import Checkpoint
    from headrace.state.commit import Commit

Way: TypeAlias = Literal["one task", "stages"]


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
    lag: Lag = field(default_factory=lambda: Lag({}))
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
        self.shipped = ShippedPlan.of(self.plan.plan)
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
        spark: SparkSession,
        given: TickInput,
        positions: Any,
        ended: Iterable[str] = (),
        times: tuple[int, ...] | None = None,
        sources: BatchChain | None = None,
    ) -> None:
        """Run the next tick. Raises the errors of the tick.

        positions, sources: positions of sources to commit, see `Commit`.
        ended: sources that end with this tick; `given` has the operators that are notified of it.
        times: for a tick that covers several times, see `TickOrder`.
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

    def _stands(self, did: Progress, outcome: Outcome, commit: Commit) -> Progress:
        """Return the progress of a tick, and the position of the run after it."""
        names = [source.name for source in self.plan.plan.inputs]
        return replace(
            did,
            sources=self.lag.by_source(names, outcome.taken),
            watermarks=progress.watermarks(commit, progress.timestamps_of(self.plan.plan.stages)),
            late=progress.late_rows(commit),
            state_bytes=commit.state_bytes,
            cost=self.meter.lap(outcome.costs),
        )

    def _clocks(self, outcome: Outcome) -> dict[str, dict[str, Any]]:
        last = self.checkpoint.last
        counters: Mapping[str, Any] = last.counters if last else {}
        marks = {name: stand_of(mark) for name, (mark, _) in outcome.clocks.items()}
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
        """Choose the way by the rows that the tick will have or, if unknown, that the one before had."""
        if self.ways != "auto":
            return self.ways
        last = self.checkpoint.last
        if not self.local or (expected is None and last is None):
            return "stages"
        before = last.counters.get("rows_in", 0) if last else 0
        rows = before if expected is None else expected.rows(self.density)
        return "one task" if rows <= self.plan.rows_of_one_task else "stages"

    def _job(
        self, spark: SparkSession, given: TickInput, tick: int, way: Way, times: tuple[int, ...] | None
    ) -> Outcome:
        last = self.checkpoint.last
        order = TickOrder(self.shipped, tick, dict(last.chains) if last else {}, self._due, times=times)
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

    def _scattered(self, spark: SparkSession, given: TickInput, order: TickOrder) -> DataFrame:
        rows, shares = self._start(spark, given, min(self.tasks, max(1, len(given.located))))
        return run_tasks(rows, task.scatter(order, shares))

    def _start(self, spark: SparkSession, given: TickInput, tasks: int) -> tuple[DataFrame, task.Shares]:
        """Return the frame whose partitions start the tasks, and what each of these reads besides it."""
        if given.frames:
            return given.frame(spark), ()
        # Only made once, since Spark takes long to plan a frame.
        frame = self._starts.get(tasks)
        if frame is None:
            frame = self._starts[tasks] = spark.range(0, tasks, 1, tasks)
        return frame, given.shares(tasks)


def _outcome_of(messages: DataFrame) -> Outcome:
    with told_errors():
        table = messages.toArrow()
    return gathered(results_of(table))
