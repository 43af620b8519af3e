"""Runs of a flow on Spark, from sources to sinks."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from headrace.engine.endpoints import (
    as_read_by,
    as_sink,
    check_names,
    dead_letters_of,
    held_back_by,
    table_sources,
    with_tick_time,
)
from headrace.engine.interrupt import Interrupt
from headrace.engine.progress import Observer, Progress, check_observers, combine_observers
from headrace.engine.progress_display import run_display
from headrace.engine.prometheus import Metrics, serving_metrics
from headrace.engine.rebuild import finish_rebuild
from headrace.engine.run import RunResult
from headrace.errors import BadInput, NotOnSpark
from headrace.file_system import local_path, raising_disk_full, subfolder_for
from headrace.graph.node import graph_of
from headrace.operators.endpoints import SourceOperator
from headrace.spark.placing.pushdown import NativeChain, native_parts, without_native
from headrace.spark.placing.stages import LOOP_ROWS, StagePlan
from headrace.spark.prepared_flow import PreparedFlow
from headrace.spark.resumption import Loops, SparkResumeBinding
from headrace.spark.session import is_local, tasks_at_a_time
from headrace.spark.sources import pull_source, record_frames
from headrace.spark.sources.arrivals import SourcePositions
from headrace.spark.sources.opening import (
    OpenedSource,
    Opening,
    has_own_name,
    named_sources_enabled,
    open_on_spark,
    sends_rows,
)
from headrace.spark.ticks.failures import explained_deaths
from headrace.spark.ticks.messages import CostMeter
from headrace.spark.ticks.output import bucket_route, task_target
from headrace.spark.ticks.plan import SinkOutput, TickPlan
from headrace.spark.ticks.tick_sequence import GIVEN, Query
from headrace.spark.ticks.ticker import Ticker, Way, open_outlets
from headrace.state.checkpoint import Checkpoint
from headrace.state.commit import KEEP_TICKS
from headrace.state.manifest import Bind, Manifest
from headrace.state.rewind import skipped_files, telling_ways_past

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.flow.flow import Flow
    from headrace.io.source import DeadLetters


SOURCES = (pull_source, record_frames)
"""Modules for further kinds of sources, which register with `open_on_spark` and `source_frame`."""


def run(
    flow: Flow | PreparedFlow,
    spark: SparkSession | None = None,
    *,
    sources: Mapping[str, Any],
    sinks: Mapping[str, Any] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    mode: Literal["stream", "batch"] = "stream",
    shards: int | None = None,
    follow: bool = False,
    on_tick: Callable[[Progress], object] | None = None,
    progress: bool | None = None,
    metrics: Metrics | None = None,
    way: Way | Literal["auto"] = "auto",
    loops: Loops | None = None,
    loop_rows: int = LOOP_ROWS,
    end: bool | None = None,
    keep_ticks: int = KEEP_TICKS,
    observer: Observer | None = None,
) -> RunResult:
    """Run `flow` on Spark until its sources end and no deferred rows remain.

    flow:       a flow; or a `PreparedFlow`, if this process runs it again and again.
    spark:      the session; by default `headrace.spark.session()`. Not needed with way="here".
    sources:    by name, a source of `headrace.io`, a `headrace.spark.Frame`, or an iterable of rows.
    sinks:      by name, a sink of `headrace.io`, a list to which `Change`s are appended, or a function of
                (tick, changes). Sinks that are not named are not written.
    checkpoint: a folder. State, source positions and output of each tick become durable together; a later run
                of the same flow continues after the last of these ticks. By default a temporary one.
    mode:       "stream": tick by tick, with state. "batch": one native plan over sources that end.
    shards:     number of state shards, fixed for the life of a checkpoint; by default Spark's number of
                concurrent tasks.
    follow:     keep waiting for new input until Ctrl-C or SIGTERM.
    on_tick:    callback after every tick, with a `Progress`.
    progress:   whether to show ticks, rows per second, lag, state and cost while it runs: by default only in
                notebooks, as a bar (`headrace[notebook]`); True also on a terminal (`headrace[cli]`) or as
                lines in a log.
    metrics:    where to serve Prometheus metrics during the run: a port of this machine, "HOST:PORT", or a
                `prometheus_client.CollectorRegistry` that is served elsewhere; or a `pathlib.Path` of a file
                to write at the end.
    way:        how a tick runs: in "one task", in "stages" with shuffles between them, or "auto", which
                decides by the number of rows that the tick will have, as far as it is known before it runs;
                or "here", in this process and without Spark: sources are rows, files or
                `headrace.spark.ArrowTable`s then. The results, and the checkpoint, are the same.
    loops:      where a loop runs: on "one shard" (the default), which must hold all its rows, or partitioned
                by key in "rounds" on all shards, which requires rows that are never retracted. Fixed for the
                life of a checkpoint. A batch decides by `loop_rows`.
    loop_rows:  limit on the input rows of a batch loop in one task; a loop with more runs in rounds.
    end:        whether a source that is finished has ended for good, so that event-time windows close. True
                by default without a checkpoint, since nothing can continue such a run. A later run must not
                bring more rows of an ended source. In a batch, all sources end.
    keep_ticks: number of ticks that can be rewound to (`headrace rewind`), including the last one. Files are
                kept as long as one of these ticks needs them.
    observer:   receives each tick's changes of sinks that the driver writes; see `Observer`. Not in a batch.

    Ctrl-C and SIGTERM end the run after the current tick, which is committed; a second signal acts at once.

    Raises the errors of the flow's analysis; `BadInput`, `BadRow` and `UnreadableSource` for input;
    `FlowChanged`, `CheckpointDamaged` and `CheckpointInUse` for the checkpoint; `SparkProcessDied`; and the
    errors of a tick, which is then neither committed nor published.
    """
    prepared = PreparedFlow.of(flow)
    flow = prepared.flow
    graph = graph_of(flow, "run")
    sources = with_tick_time(graph, sources)
    check_names(graph, sources, {} if sinks is None else sinks)
    check_observers(on_tick, observer, progress)
    _check_choice("mode", mode, "stream", "batch")
    _check_choice("way", way, "auto", "one task", "stages", "here")
    _check_choice("loops", loops, None, "one shard", "rounds")
    _check_whole("shards", 1 if shards is None else shards)
    _check_whole("keep_ticks", keep_ticks)
    if mode == "batch":
        if checkpoint is not None or follow:
            raise BadInput(
                "a batch keeps no state: it takes neither a checkpoint nor follow=True",
                fix='run it with mode="stream", or without them',
            )
        from headrace.spark.batch.run_batch import run_batch

        spark = _session(spark)
        with (
            raising_disk_full(None),
            serving_metrics(metrics, flow.name) as registered,
            run_display(progress, flow.name) as display,
            explained_deaths(spark, lambda: None),
        ):
            on_tick = combine_observers(registered and registered.observe, on_tick, display)
            return run_batch(
                flow, spark, sources=sources, sinks=sinks or {}, on_tick=on_tick, loop_rows=loop_rows
            )
    with raising_disk_full(checkpoint), ExitStack() as closing:
        registered = closing.enter_context(serving_metrics(metrics, flow.name))
        display = closing.enter_context(run_display(progress, flow.name))
        on_tick = combine_observers(registered and registered.observe, on_tick, display)
        folder = _checkpoint_folder(checkpoint, closing)
        spark = None if way == "here" else _session(spark)
        running = _Run(prepared, spark, folder, closing, durable=checkpoint is not None)
        ends = checkpoint is None if end is None else end
        closing.enter_context(telling_ways_past(checkpoint))
        with _explained_deaths(spark, lambda: None):
            ticker, query = running.open(
                sources, sinks or {}, shards, loops, follow, on_tick, way, ends, keep_ticks
            )
        ticker.metrics = registered
        ticker.observer = observer
        if observer is not None:
            observer.on_start()
        interrupt = closing.enter_context(Interrupt())
        with _explained_deaths(spark, lambda: None if checkpoint is None else ticker.checkpoint.tick):
            query.until_done(interrupt)
        held_back = held_back_by({name: outlet.writer for name, outlet in ticker.outlets.items()})
        return RunResult(
            ticker.checkpoint.tick, *ticker.totals, stopped_by=interrupt.signal, held_back=held_back
        )


def _check_choice(option: str, given: object, *choices: str | None) -> None:
    """Raise `BadInput` for a misspelled choice, which would otherwise be taken for a different one."""
    if given not in choices:
        raise BadInput(
            f"{option} is {given!r}", fix=f"give one of {', '.join(map(repr, choices))}", option=option
        )


def _check_whole(option: str, given: object) -> None:
    if not isinstance(given, int):
        raise BadInput(f"{option} is {given!r}", fix="give a whole number", option=option)


def _session(spark: SparkSession | None) -> SparkSession:
    """Find or start the session to run on. Raises `NotOnSpark` if its arithmetic differs from Headrace's."""
    if spark is None:
        from headrace.spark.session import session

        return session()
    with explained_deaths(spark, lambda: None):
        ansi = spark.conf.get("spark.sql.ansi.enabled", "true")
    if ansi != "true":
        raise NotOnSpark(
            "the session has ANSI mode off",
            why="Native columns would then give null or wrap around where the flow means an error.",
            fix='spark.conf.set("spark.sql.ansi.enabled", "true"), or spark.newSession() with it',
        )
    return spark


def _explained_deaths(
    spark: SparkSession | None, tick: Callable[[], int | None]
) -> AbstractContextManager[None]:
    return nullcontext() if spark is None else explained_deaths(spark, tick)


def _checkpoint_folder(checkpoint: str | PathLike[str] | None, closing: ExitStack) -> Path:
    if checkpoint is not None:
        folder = Path(local_path(checkpoint, "checkpoint")).absolute()
        finish_rebuild(folder)
        return folder
    folder = Path(tempfile.mkdtemp(prefix="headrace-checkpoint-"))
    closing.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


class _Run:
    """Assembly of a run; `closing` releases everything it opened."""

    def __init__(
        self,
        prepared: PreparedFlow,
        spark: SparkSession | None,
        folder: Path,
        closing: ExitStack,
        *,
        durable: bool,
    ) -> None:
        self._prepared = prepared
        self._engine = prepared.engine
        self._append = self._engine.program.source_append
        self._graph = prepared.graph
        self._spark = spark
        self._folder = folder
        self._closing = closing
        self._durable = durable

    def open(
        self,
        sources: Mapping[str, Any],
        sinks: Mapping[str, Any],
        shards: int | None,
        loops: Loops | None,
        follow: bool,
        on_tick: Callable[[Progress], object] | None,
        way: Way | Literal["auto"],
        end: bool,
        keep_ticks: int,
    ) -> tuple[Ticker, Query]:
        default = (os.cpu_count() or 1) if self._spark is None else tasks_at_a_time(self._spark)
        named = not any(map(has_own_name, sources.values()))
        plan_for = partial(self._plan, sinks)
        binding = SparkResumeBinding(self._graph, plan_for, sinks, shards, default, loops, named)
        options = (dict(sinks), shards, default, loops, named)
        checkpoint = self._checkpoint(partial(self._prepared.bind, binding, options), keep_ticks)
        plan = binding.plan
        frames = [name for name, source in sources.items() if sends_rows(source)]
        native = native_parts(self._prepared.divided, frames)
        named = bool(checkpoint.manifest.layout.get("named"))
        positions = SourcePositions(checkpoint, sources, durable=self._durable)
        self._closing.callback(positions.close)
        read = _sources_read(checkpoint)
        for gone in sorted(read - sources.keys()):
            positions.forget(gone)
        setting = nullcontext() if self._spark is None else named_sources_enabled(self._spark, named)
        with setting:
            opened = self._open_sources(sources, checkpoint, positions, read, follow, native, named, default)
        inputs = tuple(source.input for source in opened)
        stages = without_native(plan.stages, native) if native else plan.stages
        ready = self._prepared.compiled(replace(plan, stages=stages, inputs=inputs))
        letters = self._open_dead_letters(sources, checkpoint.tick)
        outlets = open_outlets(
            self._graph, sinks, self._folder, checkpoint.tick, self._durable, self._closing, self._append,
            keep_ticks,
        )  # fmt: skip
        ticker = Ticker(ready, checkpoint, outlets, letters, way, self._is_local, on_tick, default)
        ticker.meter = CostMeter(self._spark, self._exchange_names(plan.stages))
        query = Query(self._spark, ticker, opened, positions, read, follow=follow, end=end, named=named)
        return ticker, query

    @property
    def _is_local(self) -> bool:
        return self._spark is None or is_local(self._spark)

    def _exchange_names(self, stages: StagePlan) -> tuple[str, ...]:
        from headrace.spark.explanation import sender_label

        whole = self._prepared.divided
        return tuple(sender_label(self._graph, whole, e.node) for e in stages.exchanges)

    def _plan(self, sinks: Mapping[str, Any], shards: int, loops: Loops) -> TickPlan:
        targets = {name: as_sink(sink) for name, sink in sinks.items()}
        tables = {name: route for name, t in targets.items() if (route := bucket_route(t)) is not None}
        stages = self._prepared.stages(shards, tables, loops)
        outputs = {name: self._output(name, target) for name, target in targets.items()}
        return TickPlan(stages, (), outputs, str(self._folder), self._durable)

    def _output(self, name: str, target: object) -> SinkOutput:
        schema = self._graph.nodes[self._graph.sinks[name]].schema
        sources = table_sources(self._graph, self._append, name)
        return SinkOutput(name, schema, task_target(target, name, self._folder), sources)

    def _checkpoint(self, bind: Bind, keep_ticks: int) -> Checkpoint:
        checkpoint = Checkpoint.open(
            self._folder,
            bind,
            keep_ticks=keep_ticks,
            durable=self._durable,
            private=self._is_local,
        )
        self._closing.callback(checkpoint.close)
        if checkpoint.last is None:
            # What an interrupted start left; nothing of it counts.
            for leftover in ("source", GIVEN):
                shutil.rmtree(self._folder / leftover, ignore_errors=True)
        return checkpoint

    def _open_sources(
        self,
        sources: Mapping[str, Any],
        checkpoint: Checkpoint,
        positions: SourcePositions,
        read: frozenset[str],
        follow: bool,
        native: Mapping[str, NativeChain],
        named: bool,
        tasks: int,
    ) -> list[OpenedSource]:
        opened: list[OpenedSource] = []
        skip = skipped_files(self._folder)
        for tag, name in enumerate(checkpoint.manifest.layout["sources"]):
            operator = cast("SourceOperator", self._graph.nodes[self._graph.sources[name]].operator)
            spool = subfolder_for(self._folder / GIVEN, name)
            # Of what Spark reads itself, Spark keeps the positions.
            source = as_read_by(operator, sources[name])
            own = {} if sends_rows(source) else positions.of(name)
            opening = Opening(
                spark=self._spark,
                engine=self._engine,
                name=name,
                operator=operator,
                tag=tag,
                spool=spool,
                follow=follow,
                positions=own,
                resumed=checkpoint.tick > 0,
                read=name in read,
                skip=skip,
                native=native.get(name, ()),
                named=named,
                tasks=tasks,
            )
            opened.append(open_on_spark(source, opening))
        return opened

    def _open_dead_letters(self, sources: Mapping[str, Any], tick: int) -> dict[str, DeadLetters]:
        opened: dict[str, DeadLetters] = {}
        for name, source in sources.items():
            letters = dead_letters_of(name, source, self._durable)
            if letters is not None:
                letters.recover(tick)
                self._closing.callback(letters.close)
                opened[name] = letters
        return opened


def _sources_read(checkpoint: Checkpoint) -> frozenset[str]:
    """Return the sources that the ticks so far have read."""
    last = checkpoint.last
    return frozenset(
        () if last is None else Manifest.read(checkpoint.folder, last.manifest).layout["sources"]
    )
