"""Driver side of a tick whose loops run in rounds: jobs until no shard has new rows.

The first job runs the input up to the end of the first loop. Each further job is a round of that loop, on the
rows fed back by the previous round, or continues after the loop. The state that a job leaves is a version
like any other, and is passed to the next job; none of it counts until the tick is committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from headrace.spark.ticks import task
from headrace.spark.ticks.failures import decoded_errors
from headrace.spark.ticks.messages import (
    ARROW,
    TaskResult,
    TickOutcome,
    collect_outcome,
    results_of,
    run_tasks,
)
from headrace.spark.ticks.round_task import NOTHING, RoundJob, Sent, rounds_of, split_sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.placing.stages import LoopStages, StagePlan
    from headrace.spark.ticks.task import TickSpec
    from headrace.state.chain import BatchChain


FEW_ROWS = 20_000
"""Number of rows up to which a round runs in one task, if tasks share a machine."""


def run_stages(messages: DataFrame, order: TickSpec, shards: int, stages: range) -> DataFrame:
    """Run consecutive stages on the messages sent to them, each after its own exchange."""
    for number in stages:
        placed = messages.repartitionById(shards, messages.shard)
        messages = run_tasks(placed, task.stage(order, number))
    return messages


class Jobs(Protocol):
    """Runner of a tick's jobs; each method returns the results of the tasks."""

    def enter(self, order: TickSpec, last: int) -> list[TaskResult]:
        """Run the input through the stages up to `last`."""
        ...

    def run_stored_messages(
        self, order: TickSpec, sent: Sequence[Sent], first: int, last: int
    ) -> list[TaskResult]:
        """Run stored messages through the stages from `first` to `last`."""
        ...

    def try_small_rounds(
        self, order: TickSpec, sent: Sequence[Sent], loop: LoopStages, before: int
    ) -> list[TaskResult] | None:
        """Run small rounds in one task, after `before` rounds; None if that does not pay."""
        ...


@dataclass(slots=True)
class _Tick:
    order: TickSpec
    folder: str
    results: list[TaskResult] = field(default_factory=list[TaskResult])
    waiting: list[Sent] = field(default_factory=list[Sent])
    written: set[str] = field(default_factory=set[str])
    legs: int = 0

    def begin(self, last: int) -> TickSpec:
        """Return the tick specification for the next job, which ends with stage `last`."""
        self.order = replace(self.order, leg=RoundJob(self.legs, last, self.folder))
        self.legs += 1
        return self.order

    def end(self, results: Iterable[TaskResult]) -> None:
        """Take a job's results. Raises an error that they report."""
        sent, others = split_sent(results)
        self.waiting += sent
        self.results += others
        chains = collect_outcome(others).chains
        self.written |= files_of(chains)
        self.order = replace(self.order, chains={**self.order.chains, **chains})

    def take(self, first: int, last: int) -> list[Sent]:
        """Take the messages that wait for the stages from `first` to `last`."""
        mine = [sent for sent in self.waiting if first <= sent.stage <= last]
        self.waiting = [sent for sent in self.waiting if not first <= sent.stage <= last]
        return mine


def run_in_jobs(stages: StagePlan, order: TickSpec, jobs: Jobs, folder: str) -> TickOutcome:
    """Run a tick and combine the results of its jobs. folder: for the messages between jobs.

    Raises the errors of jobs, and `NoFixpoint`.
    """
    tick = _Tick(order, folder)
    at = 1
    for loop in stages.loops:
        _go_on(tick, jobs, at, loop.last)
        _until_quiet(tick, jobs, loop)
        at = loop.last + 1
    if at < stages.depth and (tick.waiting or order.due):
        _go_on(tick, jobs, at, stages.depth - 1)
    outcome = collect_outcome(tick.results)
    outcome.passing = tick.written - files_of(outcome.chains) - files_of(order.chains)
    return outcome


def files_of(chains: Mapping[int, BatchChain]) -> set[str]:
    return {file.name for chain in chains.values() for file in chain.files()}


def _go_on(tick: _Tick, jobs: Jobs, first: int, last: int) -> None:
    order = tick.begin(last)
    tick.end(
        jobs.enter(order, last)
        if first == 1
        else jobs.run_stored_messages(order, tick.take(first, last), first, last)
    )


def _until_quiet(tick: _Tick, jobs: Jobs, loop: LoopStages) -> None:
    growth: list[Mapping[int, int]] = []
    while back := tick.take(loop.first, loop.last):
        sent = Counter[int]()
        for message in back:
            sent[message.port] += message.rows
        growth.append(sent)
        loop.check(growth)
        order = tick.begin(loop.last)
        results = jobs.try_small_rounds(order, back, loop, len(growth))
        if results is None:
            results = jobs.run_stored_messages(order, back, loop.first, loop.last)
        growth += rounds_of(results)
        tick.end(results)


# --- on Spark -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SparkJobs:
    """Jobs on Spark. scattered: creates the input's messages. few: row limit of one-task rounds, or 0."""

    spark: SparkSession
    shards: int
    scattered: Callable[[TickSpec], DataFrame]
    few: int

    def enter(self, order: TickSpec, last: int) -> list[TaskResult]:
        return self._through(self.scattered(order), order, 1, last)

    def run_stored_messages(
        self, order: TickSpec, sent: Sequence[Sent], first: int, last: int
    ) -> list[TaskResult]:
        return self._through(self._frame(sent), order, first, last)

    def try_small_rounds(
        self, order: TickSpec, sent: Sequence[Sent], loop: LoopStages, before: int
    ) -> list[TaskResult] | None:
        if sum(message.rows for message in sent) > self.few:
            return None
        frame = self._frame(sent).coalesce(1)
        with decoded_errors():
            job = run_tasks(frame, task.make_rounds_task(order, loop, self.few, before))
            return results_of(job.toArrow())

    def _through(self, messages: DataFrame, order: TickSpec, first: int, last: int) -> list[TaskResult]:
        with decoded_errors():
            return results_of(run_stages(messages, order, self.shards, range(first, last + 1)).toArrow())

    def _frame(self, sent: Sequence[Sent]) -> DataFrame:
        import pyarrow

        messages = [message.reference() for message in sent] or [NOTHING]
        arrays = [pyarrow.array([m[at] for m in messages], type=f.type) for at, f in enumerate(ARROW)]
        return self.spark.createDataFrame(pyarrow.Table.from_arrays(arrays, schema=ARROW))
