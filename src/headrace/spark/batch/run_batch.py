"""Batch run of a flow over bounded sources: read, compute in one native plan, write sinks.

Tasks read files and Python rows as in streaming mode, so a file has the same meaning, including errors and
dead letters. Spark caches what was read until the run ends, so that no file is read twice. A DataFrame is
used unchanged.

The whole flow is lowered to DataFrames: one tick, no state. A stream is the bag of its rows: each row as
often as it is there, and no column of weights. Append sources are that already. A table source is made one at
its border (`frames`): the weights of equal rows are summed, and each row comes as often as its sum says. So
every operator after it is plain relational algebra, and Catalyst sees the whole plan. Expressions are native
columns. What has no native form runs on the in-process engine, inside tasks: loops (`loops`) and subplans
(`batch_plan`, `subplans`).
"""

from __future__ import annotations

import pickle
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import functions as f

from headrace.analysis.column_lineage import live_columns, live_graph
from headrace.engine.endpoints import as_read_by, as_sink, dead_letters_of
from headrace.engine.engine import Engine
from headrace.engine.progress import Progress
from headrace.engine.run import RunResult
from headrace.errors import BadInput
from headrace.expr.spark_columns import spark_schema, with_representatives
from headrace.expr.types import INT64, Field, Schema
from headrace.file_system import subfolder_for
from headrace.graph.graph_algorithms import adjacency_lists, is_cyclic, strongly_connected_components
from headrace.io.arrow import arrow_schema, rows_to_table, table_to_rows
from headrace.io.files.file_reader import ColumnMismatch, WideningLog
from headrace.io.files.table_files import TableFiles
from headrace.io.source import WEIGHT, BadRecord
from headrace.lowering.forms import lower_operator
from headrace.operators.across_ticks import DeferTick
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.operators.rows import Filter, Select
from headrace.operators.union import Union
from headrace.spark.batch.batch_plan import BatchPlan, Loop, Native, Subplan, plan_batch
from headrace.spark.batch.frames import ORDINAL, Site, checked_columns, exact_column, grouped_rows
from headrace.spark.batch.loops import LoopBound, run_loop
from headrace.spark.batch.subplans import run_subplan
from headrace.spark.placing.stages import LOOP_ROWS
from headrace.spark.session import is_local
from headrace.spark.sources.opening import Frame, Opening, open_on_spark, sends_rows, source_frame
from headrace.spark.sources.tick_input import frame_of_locations
from headrace.spark.ticks.failures import Task, decoded_errors, with_encoded_errors
from headrace.spark.ticks.intake import Taken, read_inputs
from headrace.spark.ticks.messages import collect_outcome, results_of, run_tasks, to_batches
from headrace.spark.ticks.output import bucket_route, task_target, write_changes
from headrace.spark.ticks.plan import Input, SinkOutput, pickled
from headrace.spark.ticks.ticker import DriverSink, open_outlets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph


_TICK = 1


@dataclass(frozen=True, slots=True)
class ReadSource:
    """A source that has been read. frame: its rows, with a `weight` column for a table."""

    frame: DataFrame
    rows: int
    bad: tuple[BadRecord, ...]


def run_batch(
    flow: Flow,
    spark: SparkSession,
    *,
    sources: Mapping[str, Any],
    sinks: Mapping[str, Any],
    on_tick: Callable[[Progress], object] | None,
    loop_rows: int = LOOP_ROWS,
) -> RunResult:
    """Run `flow` as one native plan; the output equals that of one tick with all input.

    loop_rows: how many rows may enter a loop that runs in one task.

    Sinks are published once all of them are prepared. Raises the errors of `headrace.spark.run`.
    """
    start = time.perf_counter()
    with ExitStack() as closing, decoded_errors():
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="headrace-batch-")))
        run = _Run(flow, spark, folder, closing)
        plan = plan_batch(run.graph)
        in_order = {name for name, node in run.graph.sources.items() if node in plan.order.read}
        read = {name: run.read(name, source, name in in_order) for name, source in sources.items()}
        outlets = open_outlets(run.graph, sinks, folder, 0, False, closing, run.append)
        letters = {n: d for n, s in sources.items() if (d := dead_letters_of(n, s, False)) is not None}
        for name, dead_letters in letters.items():
            closing.callback(dead_letters.close)
            dead_letters.recover(0)
            dead_letters.prepare(_TICK, read[name].bad)
        bound = LoopBound(loop_rows, folder / "loops", is_local(spark))
        bags = lower_plan(plan, {name: r.frame for name, r in read.items()}, run.kept, bound)
        changes = sum(run.write(o, as_sink(sinks[name]), bags.sinks[name]) for name, o in outlets.items())
        for bag in bags.swallowed:
            bag.write.format("noop").mode("overwrite").save()
        for ready in (*outlets.values(), *letters.values()):
            ready.publish(_TICK)
    rows, bad = sum(r.rows for r in read.values()), sum(len(r.bad) for r in read.values())
    if on_tick is not None:
        on_tick(Progress(_TICK, rows, bad, changes, time.perf_counter() - start, "stages"))
    return RunResult(_TICK, 1, rows, bad, changes, stopped_by=None)


class _Run:
    """State shared by the steps of a run; `closing` releases its resources."""

    def __init__(self, flow: Flow, spark: SparkSession, folder: Path, closing: ExitStack) -> None:
        self._engine = Engine(flow)
        self._declared = flow.graph()
        self.graph = _narrow_sources(live_graph(self._declared), live_columns(self._declared))
        self.append = self._engine.program.source_append
        self._spark = spark
        self._folder = folder
        self._closing = closing

    def kept(self, frame: DataFrame) -> DataFrame:
        """Cache a frame until the run ends."""
        persisted = frame.persist()
        self._closing.callback(persisted.unpersist)
        return persisted

    def read(self, name: str, source: Any, in_order: bool) -> ReadSource:
        """Read a source, with ordinals if the order of its rows matters."""
        operator = cast("SourceOperator", self._declared.nodes[self._declared.sources[name]].operator)
        # Bounded: all that is there now, and no more.
        whole = replace(operator, bounded=True)
        opening = Opening(
            self._spark,
            self._engine,
            name,
            whole,
            0,
            subfolder_for(self._folder / "rows", name),
            follow=False,
            positions={},
        )
        source = as_read_by(operator, source)
        if sends_rows(source):
            frame = source_frame(source, opening, operator.schema)
            if frame.isStreaming:
                raise BadInput(
                    f"source {name!r} is a streaming DataFrame, and a batch needs input that ends",
                    fix='run it with mode="stream", or read it with spark.read',
                    source=name,
                )
            # The plan reads live columns only; the others have to be there, too.
            checked_columns(operator, frame)
            frame = frame if isinstance(source, Frame) else self.kept(frame)
            return ReadSource(frame, frame.count(), ())
        opened = open_on_spark(source, opening)
        schema = _as_read(opened.input)
        located = frame_of_locations(self._spark, opened.located)
        found = self.kept(located.mapInArrow(_reading(opened.input, schema), _read_type(schema)))
        unread = found.filter(exact_column("bad").isNotNull()).select("bad").toArrow()
        reports = [pickle.loads(report) for report in unread.column("bad").to_pylist()]
        WideningLog().warn(each for each in reports if isinstance(each, ColumnMismatch))
        bad = tuple(each for each in reports if isinstance(each, BadRecord))
        rows = found.filter(exact_column("bad").isNull())
        ordinal = [exact_column(name) for name in ORDINAL] if in_order else []
        frame = rows.select(*(exact_column("row").getField(n).alias(n) for n in schema.names), *ordinal)
        return ReadSource(frame, rows.count(), bad)

    def write(self, outlet: DriverSink, target: object, bag: DataFrame) -> int:
        """Prepare the output of a sink, each row with its multiplicity; return the number of changes."""
        schema = self.graph.nodes[self.graph.sinks[outlet.name]].schema
        changes = grouped_rows(bag, schema, f.count(f.lit(1)).alias(WEIGHT))
        if not schema.fields:  # of a group of everything there is a count, also where there is nothing
            changes = changes.filter(exact_column(WEIGHT) > 0)
        if isinstance(target, TableFiles):
            # Each bucket of a table is one file: one task makes all of them.
            changes = changes.repartition(1)
        elif (route := bucket_route(target)) is not None and route.columns:
            changes = changes.repartition(*(exact_column(name) for name in route.columns))
        output = SinkOutput(outlet.name, schema, task_target(target, outlet.name, self._folder))
        outcome = collect_outcome(results_of(run_tasks(changes, _writing(output)).toArrow()))
        outlet.prepare(_TICK, outcome.files.get(outlet.name, []), outcome.rows.get(outlet.name, []))
        return outcome.changes.get(outlet.name, 0)


def _narrow_sources(graph: FlowGraph, live: Sequence[AbstractSet[str]]) -> FlowGraph:
    """Return a narrowed flow whose sources have their live columns only.

    Dead columns of files are null, and copies of a row are counted by what is live of it.
    """
    nodes = list(graph.nodes)
    for n in graph.sources.values():
        schema = Schema(tuple(f for f in nodes[n].schema.fields if f.name in live[n]))
        operator = replace(cast("SourceOperator", nodes[n].operator), schema=schema)
        nodes[n] = replace(nodes[n], operator=operator, schema=schema)
    return replace(graph, nodes=tuple(nodes))


# --- tasks -------------------------------------------------------------------------


def _as_read(source: Input) -> Schema:
    """Return the columns of a source as read; a table's weight comes last."""
    # Readers give None for columns that the flow does not read.
    dead = set[str]() if source.live is None else set(source.schema.names) - source.live
    fields = tuple(replace(f, nullable=True) if f.name in dead else f for f in source.schema.fields)
    return Schema(fields if source.append else (*fields, Field(WEIGHT, INT64)))


def _read_type(schema: Schema) -> Any:
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    ordinal = [StructField(name, LongType()) for name in ORDINAL]
    return StructType([StructField("row", spark_schema(schema)), StructField("bad", BinaryType()), *ordinal])


def _reading(source: Input, schema: Schema) -> Task:
    """Create the task that reads paths to rows, with unreadable ones and widened columns in `bad`."""
    shipped = pickled((source, schema))

    @with_encoded_errors
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        source, schema = pickle.loads(shipped)
        kind = pyarrow.struct(list(arrow_schema(schema)))
        names = ["row", "bad", *ORDINAL]
        taken = Taken()
        for piece in read_inputs(batches, (source,), taken):
            place = 0
            for batch in rows_to_table(piece.rows, schema).to_batches(max_chunksize=10_000):
                none = pyarrow.nulls(len(batch), pyarrow.binary())
                parts = pyarrow.array([piece.place] * len(batch), pyarrow.int64())
                places = pyarrow.array(range(place, place + len(batch)), pyarrow.int64())
                arrays = [batch.to_struct_array(), none, parts, places]
                yield pyarrow.RecordBatch.from_arrays(arrays, names=names)
                place += len(batch)
        reports = [*(record for _, record in taken.bad), *taken.widened]
        bad = pyarrow.array([pickle.dumps(report) for report in reports], pyarrow.binary())
        none = pyarrow.nulls(len(bad), pyarrow.int64())
        row = pyarrow.nulls(len(bad), kind)
        yield pyarrow.RecordBatch.from_arrays([row, bad, none, none], names=names)

    return task


def _writing(output: SinkOutput) -> Task:
    """Create the task that writes counted rows to files, or sends them to the driver."""
    shipped = pickled(output)

    @with_encoded_errors
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        to: SinkOutput = pickle.loads(shipped)
        rows = [row for batch in batches for row in table_to_rows(batch, to.schema, weighted=True)]
        if rows:
            results = write_changes(to.target, to, _TICK, uuid.uuid4().hex[:12], rows, durable=False)
            yield from to_batches(result.message(0) for result in results)

    return task


@dataclass(frozen=True, slots=True)
class LoweredFlow:
    """Bags computed by a flow. sinks: rows of each sink, by name. swallowed: results that no sink reads."""

    sinks: dict[str, DataFrame]
    swallowed: tuple[DataFrame, ...]


Share = Callable[["DataFrame"], "DataFrame"]


def lower_flow(
    graph: FlowGraph, frames: Mapping[str, DataFrame], share: Share = lambda frame: frame
) -> LoweredFlow:
    """Lower a flow to lazily computed DataFrames.

    frames: per source its rows, columns by name and of the types declared; further columns
            are left out. For a table source a column `weight`, a long, says how often a row
            comes (or is retracted); without it each row comes once.
    share:  applied to what several sinks are made of, where computing it twice would cost;
            `DataFrame.persist`, for one.

    The rows are those that an engine's output adds up to when all input comes in one tick and
    what is deferred is waited for. Raises the errors of the flow's analysis, `BadInput` and
    `WrongType` where a frame is missing or does not fit, `NotOnSpark`. What rows raise, reading
    raises; under `headrace.spark.ticks.failures.decoded_errors()` as errors of ours.
    """
    return lower_plan(plan_batch(graph), frames, share)


def lower_plan(
    plan: BatchPlan, frames: Mapping[str, DataFrame], share: Share, bound: LoopBound | None = None
) -> LoweredFlow:
    """Lower a flow that has already been divided.

    bound:  when a loop leaves its one task; without it never. One that does runs at once.
    frames: those of the sources whose order the plan reads may have the columns of
            `headrace.spark.batch.frames`; else Spark's order is taken.
    """
    graph = plan.graph
    after = adjacency_lists(
        len(graph.nodes), ((i, n) for n, r in plan.reads.items() for i in r if i is not None)
    )
    forks = costly_forks(graph, after)
    made: dict[int, DataFrame] = {}

    def with_zeros(n: int, frame: DataFrame) -> DataFrame:
        return with_representatives(frame, graph.nodes[n].schema) if n in plan.zeros else frame

    for unit in plan.units:
        match unit:
            case Native(n):
                node, read = graph.nodes[n], [i for i in plan.reads[n] if i is not None]
                inputs, schemas = tuple(made[i] for i in read), tuple(graph.nodes[i].schema for i in read)
                frame = with_zeros(n, lower_operator(node.operator, Site(node, inputs, schemas, frames)))
                made[n] = share(frame) if n in forks else frame
            case Loop(nodes):
                answers = run_loop(graph, nodes, made, share, bound)
                made |= {n: with_zeros(n, a) for n, a in answers.items()}
            case Subplan():
                answers = run_subplan(plan, unit, made, frames, share)
                answers = {n: with_zeros(n, a) for n, a in answers.items()}
                alone = len(answers) == 1
                made |= {n: share(a) if alone and n in forks else a for n, a in answers.items()}
    ends = (n for n in plan.reads if graph.nodes[n].operator.ends_streams)
    # What ends in a subplan runs with it.
    swallowed = tuple(made[i] for n in ends for i in graph.nodes[n].inputs if i in made)
    return LoweredFlow({name: made[n] for name, n in graph.sinks.items()}, swallowed)


_CHEAP = (DeferTick, Filter, Select, SinkOperator, SourceOperator, Union)


def costly_forks(graph: FlowGraph, after: Sequence[Sequence[int]]) -> frozenset[int]:
    """Return the nodes computed by more than filters and selections whose readers lead to different sinks.

    after: readers of each node. Loops are excluded: they share their results themselves.
    """
    reached: list[set[int]] = [set() for _ in graph.nodes]
    costly = [False] * len(graph.nodes)
    groups = strongly_connected_components(after)
    for group in groups:
        sinks = {n for n in group if isinstance(graph.nodes[n].operator, SinkOperator)}
        sinks.update(s for n in group for m in after[n] for s in reached[m])
        for n in group:
            reached[n] = sinks
    for group in reversed(groups):
        hard = any(not isinstance(graph.nodes[n].operator, _CHEAP) for n in group) or any(
            costly[i] for n in group for i in graph.nodes[n].inputs
        )
        for n in group:
            costly[n] = hard
    alone = {group[0] for group in groups if not is_cyclic(group, after)}
    return frozenset(
        n
        for n in alone
        if costly[n] and len(set(after[n])) > 1 and len({frozenset(reached[m]) for m in after[n]}) > 1
    )
