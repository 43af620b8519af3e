"""Loops of a batch: run in one task on the in-process engine or, beyond a row limit, in rounds.

Rounds run on partitions by key. They form one tick of the loop alone, with state in a folder of the run,
which is removed with it. The input of a batch loop is complete before its first round, so no row in the loop
is ever retracted.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.analysis import analyse
from headrace.expr.types import Rows
from headrace.operators.endpoints import SourceOperator
from headrace.spark.batch.frames import TaggedUnion, select_stream
from headrace.spark.batch.subplans import InOneTask, frame_layout, loop_flow, subplan_task
from headrace.spark.placing.earliest_stages import unpartitionable_reason
from headrace.spark.placing.stages import cut_stages
from headrace.spark.session import tasks_at_a_time
from headrace.spark.ticks.cell import run_stateless
from headrace.spark.ticks.failures import with_encoded_errors
from headrace.spark.ticks.messages import Message, TaskResult, messages_of, run_tasks, to_batches
from headrace.spark.ticks.output import write_changes
from headrace.spark.ticks.plan import ShippedPlan, SinkOutput, TickPlan
from headrace.spark.ticks.round_jobs import FEW_ROWS, SparkJobs, run_in_jobs
from headrace.spark.ticks.task import Attempt, CellOutput, TickSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headrace.graph.node import FlowGraph
    from headrace.spark.ticks.failures import Task


_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class LoopBound:
    """Row limit beyond which a loop of a batch no longer runs in one task.

    rows:   how many may enter it there. folder: for what lies between rounds; every host must have it.
    local:  whether all tasks run on this machine.
    """

    rows: int
    folder: Path
    local: bool

    def parts(self, rows: int, cores: int) -> int:
        """Return the number of parts for a loop with this many input rows; 0 for one task without rounds."""
        if rows <= self.rows:
            return 0
        return cores if self.rows < 1 else max(cores, -(-rows // self.rows))


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows of a stream that leave the rounds, stored in files in the batch layout of `ports`."""

    folder: str
    port: int
    ports: TaggedUnion


@write_changes.register
def _(
    target: KeptRows, output: SinkOutput, tick: int, attempt: str, rows: Rows, durable: bool
) -> Iterator[TaskResult]:
    import pyarrow

    path = Path(target.folder) / f"{attempt}-{target.port}.arrow"
    copies = [row[:-1] for row in rows for _ in range(row[-1])]
    found = list(target.ports.to_batches(copies, target.port))
    if found:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, found[0].schema) as out:
            for batch in found:
                out.write_batch(batch)
        yield TaskResult("file", (output.name, str(path), len(copies)))


def bound_sources(graph: FlowGraph) -> FlowGraph:
    """Mark the sources of a loop's flow as bounded: a batch delivers all input in the first tick."""
    nodes = tuple(
        replace(node, operator=replace(node.operator, bounded=True))
        if isinstance(node.operator, SourceOperator)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def why_in_one_task(graph: FlowGraph) -> str:
    """Return the reason why a loop's flow cannot run in rounds, as a sentence; empty if it can."""
    analysis = analyse(bound_sources(graph))
    ends = {*graph.sources.values(), *graph.sinks.values()}
    body = [node.id for node in graph.nodes if node.id not in ends]
    if {frozenset(loop) for loop in analysis.loops} != {frozenset(body)}:
        return "A way round in it waits for the next tick."
    return unpartitionable_reason(graph, body, analysis.facts)


def run_in_rounds(
    graph: FlowGraph,
    entering: TaggedUnion,
    leaving: TaggedUnion,
    rows: DataFrame,
    bound: LoopBound,
    parts: int,
) -> DataFrame:
    """Run a loop's flow over all its input and return its output as a frame of `leaving`.

    Sources and sinks of `graph` are in port order. The rounds run immediately; their output is read when the
    frame is. Raises the errors of rows, and `NoFixpoint`.
    """
    folder, spark = bound.folder / uuid.uuid4().hex[:12], rows.sparkSession
    outputs: Mapping[str, SinkOutput] = {
        name: SinkOutput(name, graph.nodes[node].schema, KeptRows(str(folder / "rows"), port, leaving))
        for port, (name, node) in enumerate(graph.sinks.items())
    }
    stages = cut_stages(bound_sources(graph), parts, rounds=True)
    plan = ShippedPlan.of(TickPlan(stages, (), dict(outputs), str(folder), durable=False))

    def scattered(order: TickSpec) -> DataFrame:
        return run_tasks(rows, _enter(order, entering))

    jobs = SparkJobs(spark, parts, scattered, FEW_ROWS if bound.local else 0)
    outcome = run_in_jobs(stages, TickSpec(plan, 1, {}, frozenset()), jobs, str(folder / "sent"))
    paths = [(path,) for found in outcome.files.values() for path in found]
    if not paths:
        return spark.createDataFrame([], leaving.type())
    kept = spark.createDataFrame(paths, "path string").repartition(min(parts, len(paths)))
    return kept.mapInArrow(_kept_rows, leaving.type())


def _enter(order: TickSpec, entering: TaggedUnion) -> Task:
    """Create the task that turns input rows into messages for the parts, in batches."""

    @with_encoded_errors
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = Attempt(order)
        out, waiting = attempt.outbox(), 0
        for batch in batches:
            for port in range(len(entering.streams)):
                rows = entering.rows(batch, port)
                waiting += len(rows)
                if rows:
                    run_stateless(attempt.plan.stages[0], {f"in{port}": rows}, out.send)
            if waiting > _ROWS_AT_ONCE:
                yield from to_batches(_messages(out))
                out, waiting = attempt.outbox(), 0
        yield from to_batches(_messages(out))

    return task


def _messages(out: CellOutput) -> Iterator[Message]:
    for address, rows in out.pieces():
        yield from messages_of(*address, rows)


def _kept_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow

    for batch in batches:
        for path in batch.column("path").to_pylist():
            with pyarrow.OSFile(path, "rb") as file, pyarrow.ipc.open_stream(file) as found:
                yield from found


def run_loop(
    graph: FlowGraph,
    group: Sequence[int],
    made: Mapping[int, DataFrame],
    share: Callable[[DataFrame], DataFrame],
    bound: LoopBound | None = None,
) -> dict[int, DataFrame]:
    """Run a loop and return the bags of its nodes that are read outside it.

    share: applied to what the loop answers where more than one of its nodes is read, and to what
           enters it where that is counted.
    bound: how many rows one task may have; more are counted, and go round in parts, at once. Without
           it all that enters comes to one task, whose memory must hold it with what follows from it.
    """
    part = loop_flow(graph, group)
    entering, leaving = frame_layout(part.entries), frame_layout(part.exits)
    streams = [entering.tag_rows(made[entry.node], port, {}) for port, entry in enumerate(part.entries)]
    assert streams, "a loop that nothing enters has no rows"
    whole = reduce(lambda one, other: one.unionAll(other), streams)
    parts = 0
    if bound is not None and not why_in_one_task(part.graph):
        whole = share(whole)
        parts = bound.parts(whole.count(), tasks_at_a_time(whole.sparkSession))
    if bound is not None and parts:
        answer = run_in_rounds(part.graph, entering, leaving, whole, bound, parts)
    else:
        answer = whole.repartition(1).mapInArrow(subplan_task(part, InOneTask()), leaving.type())
        answer = share(answer) if len(part.exits) > 1 else answer
    return {border.node: select_stream(answer, port, border.schema) for port, border in enumerate(part.exits)}
