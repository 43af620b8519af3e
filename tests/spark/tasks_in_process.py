"""Runs a tick's tasks in this process, on Arrow batches, as Spark would: for tests that need no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa

from headrace import Engine, Flow
from headrace.analysis.column_lineage import live_graph
from headrace.io.arrow import rows_to_table
from headrace.operators.endpoints import SourceOperator
from headrace.spark.placing.pushdown import insert_partial_operators
from headrace.spark.placing.stages import LoopStages, cut_stages
from headrace.spark.ticks import task
from headrace.spark.ticks.intake import ENDED, Spooled
from headrace.spark.ticks.messages import (
    TO_DRIVER,
    TaskResult,
    TickOutcome,
    collect_outcome,
    from_batches,
    results_of,
    to_batches,
)
from headrace.spark.ticks.plan import Input, ShippedPlan, SinkOutput, TickPlan, compiled
from headrace.spark.ticks.round_jobs import run_in_jobs
from headrace.spark.ticks.round_task import Sent
from headrace.spark.ticks.task import TickSpec
from headrace.spark.ticks.ticker import Ends
from headrace.state.chain import BatchChain
from headrace.state.codec import value_encoder

SPOOLED = Spooled()
_TAGGED = pa.schema([("tag", pa.int32()), ("path", pa.string()), ("place", pa.int64())])


class InProcessTasks:
    """A flow cut into stages; `tick` runs one tick and commits it in memory.

    way: "one task", or "stages": then the input comes in `parts` partitions, its pieces of rows
         shuffled among them.
    rounds: loops are cut by key. few: rows of a round that one task runs, where the way is "stages".
    reading: how tasks read inputs; `SpooledTimes` where each is given as numbers of times with rows; None if
             they come as columns, like those of a DataFrame.
    times:  those of the next tick, see `TickSpec`.
    """

    def __init__(
        self, flow: Flow, shards: int, folder: Path, way: str, parts: int = 2, *, rounds: bool = False,
        few: int = 0, reading: Any = SPOOLED,
    ) -> None:  # fmt: skip
        self.engine = Engine(flow)
        self.flow, self.folder, self.way, self.parts, self.few = flow, folder, way, parts, few
        graph = live_graph(flow.graph(), at_sources=reading is not None)
        self.reading = reading
        self.schemas = {name: graph.nodes[node].schema for name, node in graph.sources.items()}
        inputs = []
        for name, node in graph.sources.items():
            operator = graph.nodes[node].operator
            assert isinstance(operator, SourceOperator)
            append = self.engine.program.source_append[name]
            inputs.append(Input(name, operator.schema, append, reading))
        outputs = {
            name: SinkOutput(name, graph.nodes[node].schema, None) for name, node in graph.sinks.items()
        }
        self.stages = cut_stages(insert_partial_operators(graph), shards, rounds=rounds)
        plan = TickPlan(self.stages, tuple(inputs), outputs, str(folder), False)
        self.shipped = ShippedPlan.of(plan)
        self.plan = compiled(plan)
        self.chains: dict[int, BatchChain] = {}
        self.pending: frozenset[int] = frozenset()
        self.waiting: frozenset[int] = frozenset()
        self.ticks = 0
        self.times: tuple[int, ...] | None = None
        self.ends = Ends.of(self.stages.stages[0].graph)
        self.ended: set[str] = set()

    def tick(
        self, inputs: Mapping[str, Sequence[Any]], ended: Iterable[str] = ()
    ) -> dict[str, list[tuple[Any, ...]]]:
        """Changes per sink, weights last. ended: sources that end with the tick."""
        outcome = self.attempt(inputs, ended)
        self.ended |= set(ended)
        self.ticks += 1
        self.chains |= outcome.chains
        self.pending, self.waiting = frozenset(outcome.pending), frozenset(outcome.waiting)
        return outcome.rows

    def attempt(self, inputs: Mapping[str, Sequence[Any]], ended: Iterable[str] = ()) -> TickOutcome:
        """Run the next tick without committing it. ended: sources that end with it."""
        due = self.waiting | self.plan.due(first=not self.ticks)
        order = TickSpec(self.shipped, self.ticks + 1, self.chains, due, times=self.times)
        partitions = self._partitions(inputs, ended)
        if self.way == "one task":
            whole = [batch for part in partitions for batch in part]
            return collect_outcome(results_of(_table(list(task.whole_tick(order)(whole)))))
        jobs = InProcessJobs(self, partitions)
        # Rows travel as they are, or in columns however few they are, in turn.
        few = self.ticks % 2 * 1_000_000
        with mock.patch("headrace.spark.ticks.messages._FEW_ROWS", few):
            if self.stages.loops:
                return run_in_jobs(self.stages, order, jobs, str(self.folder / "sent"))
            return collect_outcome(jobs.enter(order, self.stages.depth - 1))

    def shuffled(self, run: Any, messages: list[Any]) -> list[Any]:
        out: list[Any] = []
        for shard in range(self.stages.shards):
            here = SimpleNamespace(partitionId=lambda shard=shard: shard)
            with mock.patch("pyspark.TaskContext.get", return_value=here):
                out.extend(from_batches(run(to_batches([m for m in messages if m[1] == shard]))))
        return out

    def _partitions(
        self, inputs: Mapping[str, Sequence[Any]], ended: Iterable[str]
    ) -> list[list[pa.RecordBatch]]:
        paths: list[tuple[int, str, int | None]] = [
            (ENDED, operator, None) for operator in self.ends.ended_operators(self.ended, ended)
        ]
        encode = value_encoder()
        frames: list[tuple[int, pa.Table]] = []
        for tag, name in enumerate(self.flow.graph().sources):
            rows: list[Any] = list(inputs.get(name, ()))
            if self.times is None:
                rows = self.engine.internal_rows(name, rows)
            if self.reading is None:
                weighted = not self.engine.program.source_append[name]
                frames.append((tag, rows_to_table(rows, self.schemas[name], weighted=weighted)))
                continue
            for part in range(self.parts):
                file = self.folder / f"{name}-{self.ticks}-{part}.rows"
                width = -(-len(rows) // self.parts)
                file.write_bytes(encode(rows[part * width : (part + 1) * width]))
                paths.append((tag, str(file), part))
        # Spark starts with the largest file.
        paths.reverse()
        return [
            [
                pa.RecordBatch.from_pylist(
                    [{"tag": t, "path": p, "place": at} for t, p, at in paths[n :: self.parts]],
                    schema=_TAGGED,
                ),
                *(_tagged(tag, table, n, self.parts) for tag, table in frames),
            ]
            for n in range(self.parts)
        ]


def _tagged(tag: int, table: pa.Table, part: int, parts: int) -> pa.RecordBatch:
    """A part of the rows of a DataFrame, as Spark hands them over."""
    width = -(-len(table) // parts)
    mine = table.slice(part * width, width).combine_chunks()
    columns = [column.combine_chunks() for column in mine.columns]
    count = len(mine)
    rows = pa.StructArray.from_arrays(columns, fields=list(table.schema))
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(tag, pa.int32()), count),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.int64()),
            rows,
        ],
        names=["tag", "path", "place", f"row_{tag}"],
    )


class InProcessJobs:
    """The jobs of a tick, one task after the other."""

    def __init__(self, tasks: InProcessTasks, partitions: list[list[pa.RecordBatch]]) -> None:
        self.tasks, self.partitions = tasks, partitions

    def enter(self, order: TickSpec, last: int) -> list[TaskResult]:
        messages = [m for part in self.partitions for m in from_batches(task.scatter(order)(part))]
        return self._through(messages, order, 1, last)

    def run_stored_messages(
        self, order: TickSpec, sent: Sequence[Sent], first: int, last: int
    ) -> list[TaskResult]:
        return self._through([m.reference() for m in sent], order, first, last)

    def try_small_rounds(
        self, order: TickSpec, sent: Sequence[Sent], loop: LoopStages, before: int
    ) -> list[TaskResult] | None:
        if sum(m.rows for m in sent) > self.tasks.few:
            return None
        batches = to_batches(m.reference() for m in sent)
        return results_of(_table(list(task.make_rounds_task(order, loop, self.tasks.few, before)(batches))))

    def _through(self, messages: list[Any], order: TickSpec, first: int, last: int) -> list[TaskResult]:
        for number in range(first, last + 1):
            messages = self.tasks.shuffled(task.stage(order, number), messages)
        assert all(m[0] == TO_DRIVER for m in messages)
        return results_of(_table(list(to_batches(messages))))


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, schema=batches[0].schema) if batches else pa.table({"body": []})
