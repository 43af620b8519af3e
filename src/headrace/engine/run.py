"""In-process runs of a flow, from sources to sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.analysis.column_lineage import live_graph
from headrace.engine.endpoints import (
    TICK_ROWS,
    AnySink,
    AnySource,
    OpenSink,
    OpenSource,
    SinkEndpoint,
    SourceEndpoint,
    check_names,
    held_back_by,
    is_async,
    open_sinks,
    open_sources,
    reachable_sinks,
    with_tick_time,
)
from headrace.engine.engine import Engine
from headrace.engine.interrupt import Interrupt
from headrace.engine.progress import Observer, Progress, RunResult, check_observers, combine_observers
from headrace.engine.progress_display import run_display
from headrace.engine.prometheus import Metrics, serving_metrics
from headrace.engine.queue import PerSource, check_limits
from headrace.engine.run_module import RunModule
from headrace.errors import BadInput, SourceLocation
from headrace.expr.expression_errors import explains_calls
from headrace.file_system import local_path, raising_disk_full
from headrace.graph.node import graph_of
from headrace.pull.argument_checks import check_confirm_within
from headrace.pull.ask_buffer import StopOnce
from headrace.pull.edge import CallbackEdge
from headrace.pull.errors import CallCancelled, LoopRunsAlready
from headrace.pull.module_context import Module
from headrace.pull.pipeline_run import CONFIRM_WITHIN, Run
from headrace.pull.pipeline_runtime import Runtime, running_loop

if TYPE_CHECKING:
    from headrace.engine.checkpointed_state import CheckpointedState
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph


__all__ = [
    "Progress",
    "RunResult",
    "arun",
    "run",
]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of `headrace.run`, documented there."""

    tick_rows: PerSource
    checkpoint: str | PathLike[str] | None
    follow: bool
    on_tick: Callable[[Progress], object] | None
    max_iterations: int | None
    end: bool | None
    confirm_within: float | None
    observer: Observer | None = None


class StartedRun:
    """A run in progress, with open endpoints and recovered sinks. `closing` closes what it opens.

    Raises the errors of `run` before its first tick.
    """

    def __init__(
        self,
        flow: Flow,
        sources: Mapping[str, AnySource],
        sinks: Mapping[str, AnySink],
        options: RunOptions,
        runtime: Runtime,
        interrupt: Interrupt | None,
        closing: ExitStack,
    ) -> None:
        graph = live_graph(flow.graph(), at_sources=False)
        self._interrupt = interrupt
        state = _open_state(graph, options, sinks, closing)
        tick = 0 if state is None else state.tick
        slots = None if state is None else state.slots
        self._engine = Engine(flow, state=slots, first_tick=tick, max_iterations=options.max_iterations)
        opened = open_sources(
            self._engine, sources, slots,
            tick_rows=options.tick_rows, follow=options.follow, closing=closing,
            resumed=tick > 0, skip=frozenset() if state is None else state.skipped,
        )  # fmt: skip
        self._sinks = open_sinks(self._engine, sinks, state.folder if state else None, closing)
        for sink in self._sinks:
            sink.recover(tick)
        for source in opened:
            if source.dead_letters:
                source.dead_letters.recover(tick)
                closing.callback(source.dead_letters.close)
        self._run = Run(runtime, confirm_within=options.confirm_within)
        self._run.interrupted = self._interrupted
        self._modules: dict[str, Module] = {}
        module = Module(self._run, f"flow {flow.name}", SourceLocation.of_caller())
        self._running = RunModule(
            module,
            self._engine,
            state,
            interrupt,
            begins=any(node.operator.runs_first_tick for node in graph.nodes),
            end=options.checkpoint is None if options.end is None else options.end,
            on_tick=options.on_tick,
            observer=options.observer,
        )
        runtime.prepare(self._build, module, graph, opened)
        if options.observer is not None:
            options.observer.on_start()

    def _build(self, module: Module, graph: FlowGraph, sources: list[OpenSource]) -> None:
        names = [sink.name for sink in self._sinks]
        inlets = [
            self._inlet(module, source, reachable_sinks(graph, source.name, names)) for source in sources
        ]
        outlets = [self._outlet(module, sink) for sink in self._sinks]
        self._run.add_sink(module)
        self._running.connect(inlets, outlets)
        self._run.built()

    def _inlet(self, module: Module, source: OpenSource, readers: frozenset[str]) -> SourceEndpoint:
        edge = self._named(f"source {source.name}", lambda: module.open(source.stream))
        return SourceEndpoint(
            source.name, edge, StopOnce(edge), readers,
            source.bounded, source.positions, source.dead_letters,
        )  # fmt: skip

    def _outlet(self, module: Module, sink: OpenSink) -> SinkEndpoint:
        outlet = SinkEndpoint(sink.name, sink.append, sink.only_holds)
        edge = outlet.edge = CallbackEdge(module, partial(self._running.read, outlet), linear=True)
        self._modules[sink.name] = self._named(
            f"sink {sink.name}", lambda: sink.stream.open_in(self._run, edge)
        )
        return outlet

    def _named(self, end: str, open: Callable[[], Any]) -> Any:
        """Open modules so that their errors name the endpoint."""
        before = set(self._run.modules)
        opened = open()
        for module in self._run.modules:
            if module not in before:
                module.name = f"{end}: {module.name}"
        return opened

    # -- to the end -----------------------------------------------------------------------------

    def wait(self) -> RunResult:
        """Run until every source and sink has confirmed its end."""
        self._run.wait()
        return self._result()

    async def finished(self) -> RunResult:
        """Wait like `wait`, in the running event loop. If cancelled, the run ends after the current tick."""
        await self._run
        return self._result()

    def _interrupted(self, error: BaseException) -> None:
        from asyncio import CancelledError

        if isinstance(error, CancelledError):
            self._run.runtime.enter(self._running.stop)
        else:
            # Failed, not aborted: a sink that aborts has enough, and would not be given the rest again.
            self._run.stop(_cut_off(error))

    def _result(self) -> RunResult:
        stopped_by = None if self._interrupt is None else self._interrupt.signal
        streams = [sink.name for sink in self._sinks if sink.writer is None]
        results = {name: self._run.results[self._modules[name]] for name in streams}
        held_back = held_back_by({s.name: s.writer for s in self._sinks if s.writer is not None})
        done = self._running
        return RunResult(
            self._engine.ticks,
            done.ticks,
            done.rows_in,
            done.set_aside,
            done.changes_out,
            stopped_by,
            results,
            held_back,
        )


def _cut_off(error: BaseException) -> CallCancelled:
    return CallCancelled(
        f"{type(error).__name__} ended the run in the middle of a tick",
        why="What was not committed is left out; what was and has not arrived comes with the next run.",
    )


def _open_state(
    graph: FlowGraph, options: RunOptions, sinks: Mapping[str, AnySink], closing: ExitStack
) -> CheckpointedState | None:
    if options.checkpoint is None:
        return None
    # Only runs with a checkpoint need its codec.
    from headrace.engine.checkpointed_state import open_checkpoint
    from headrace.engine.rebuild import finish_rebuild
    from headrace.state.rewind import telling_ways_past

    folder = Path(local_path(options.checkpoint, "checkpoint"))
    finish_rebuild(folder)
    closing.enter_context(telling_ways_past(options.checkpoint))
    return closing.enter_context(open_checkpoint(graph, folder, sinks))


_WRONG_CALL = explains_calls('sources and sinks are dicts: run(flow, {"source": rows}, {"sink": []})')


@_WRONG_CALL
def run(
    flow: Flow,
    sources: Mapping[str, AnySource],
    sinks: Mapping[str, AnySink] | None = None,
    *,
    tick_rows: PerSource = TICK_ROWS,
    checkpoint: str | PathLike[str] | None = None,
    follow: bool = False,
    on_tick: Callable[[Progress], object] | None = None,
    progress: bool | None = None,
    max_iterations: int | None = None,
    end: bool | None = None,
    confirm_within: float | None = CONFIRM_WITHIN,
    metrics: Metrics | None = None,
    observer: Observer | None = None,
) -> RunResult:
    """Run `flow` in this process until its sources end and no deferred rows start another tick.

    sources:    by name, a source of `headrace.io` or `headrace.pull`, an iterable of rows, or an async
                iterable (or the async generator function that creates it). An async source is read ahead by
                at most the rows of one tick.
    sinks:      by name, a sink of `headrace.io`, a list to which `Change`s are appended, a function of (tick,
                changes), or a sink of `headrace.pull`, which receives each `Change`. Sinks that are not named
                are not written.
    tick_rows:  limit on the rows that a tick takes from each source: one number, or one per source; 1000 by
                default. A bounded source is read completely in the first tick; `Rows` and `files_per_tick`
                define ticks themselves.
    checkpoint: a folder. State, source positions and output of each tick become durable together; a later run
                of the same flow continues after the last of these ticks. Iterables must then produce the same
                rows again, of which those already taken are skipped.
    follow:     keep looking for new files until Ctrl-C or SIGTERM.
    on_tick:    callback after every tick.
    progress:   whether to show ticks, rows per second, lag and state while it runs: by default only in
                notebooks, as a bar (`headrace[notebook]`); True also on a terminal (`headrace[cli]`) or as
                lines in a log.
    max_iterations: limit on the rounds of every loop within one tick, which overrides the flow's own.
    end:        whether a source that is finished has ended for good, so that event-time windows close. True
                by default without a checkpoint, since nothing can continue such a run. A later run must not
                bring more rows of an ended source.

    confirm_within: seconds that a source or sink may take to confirm its end; None for no limit.
    metrics:    where to serve Prometheus metrics during the run: a port of this machine, "HOST:PORT", or a
                `prometheus_client.CollectorRegistry` that is served elsewhere; or a `pathlib.Path` of a file
                to write at the end.
    observer:   receives each tick's changes and samples the time of regions; see `Observer`.

    All endpoints are pull-streams: a tick begins when every sink has asked for more, so a slow sink holds
    back the sources. A source is aborted when all sinks that read it are finished (say, with a `take`); when
    all sinks are finished, the run ends. In each case, the run ends only after every source and sink has
    confirmed.

    If the sources bring no rows at all, one empty tick runs if the flow has output in its first tick (the
    `init` of a `fold`, `initialize()`), and otherwise none.

    Ctrl-C and SIGTERM end the run after the current tick, which is committed; a second signal acts at once.
    Sources, sinks and the checkpoint are always closed.

    returns: totals of the run, the result of each sink of `headrace.pull`, and the rows that tables hold back
    because they were retracted more often than inserted.

    Raises the errors of the flow's analysis; `BadInput`, `BadRow` and `UnreadableSource` for input, before
    its tick begins, and any error of an iterable; `FlowChanged`, `CheckpointDamaged` and `CheckpointInUse`
    for the checkpoint; the errors of a tick, which is then neither committed nor published; and the errors of
    sources and sinks. All other endpoints then fail with the same error, and any errors they raise in turn
    are added to it as notes. `EndNotConfirmed` names a source or sink that has not confirmed in time,
    `NeverAnswered` one that will never answer. `BadOption` is raised for an invalid `confirm_within`, and
    `BadInput` inside a running event loop if an endpoint has to wait: use `arun`.
    """
    graph = graph_of(flow, "run")
    sources = with_tick_time(graph, sources)
    check_ends(graph, sources, sinks, tick_rows)
    check_observers(on_tick, observer, progress)
    check_confirm_within("run", confirm_within)
    if any(map(is_async, sources.values())) and running_loop() is not None:
        raise _loop_runs()
    with (
        raising_disk_full(checkpoint),
        serving_metrics(metrics, flow.name) as registered,
        run_display(progress, flow.name) as display,
        Interrupt() as interrupt,
        ExitStack() as closing,
    ):
        on_tick = combine_observers(registered and registered.observe, on_tick, display)
        options = RunOptions(
            tick_rows, checkpoint, follow, on_tick, max_iterations, end, confirm_within, observer
        )
        try:
            return StartedRun(flow, sources, sinks or {}, options, Runtime(), interrupt, closing).wait()
        except LoopRunsAlready as error:
            raise _loop_runs() from error


async def arun(
    flow: Flow,
    sources: Mapping[str, AnySource],
    sinks: Mapping[str, AnySink] | None = None,
    *,
    tick_rows: PerSource = TICK_ROWS,
    checkpoint: str | PathLike[str] | None = None,
    follow: bool = False,
    on_tick: Callable[[Progress], object] | None = None,
    progress: bool | None = None,
    max_iterations: int | None = None,
    end: bool | None = None,
    confirm_within: float | None = CONFIRM_WITHIN,
    metrics: Metrics | None = None,
    observer: Observer | None = None,
) -> RunResult:
    """Run `flow` like `run`, in the running event loop.

    Ticks and file reads block the event loop; between them, other tasks run. Signals are left to the program:
    cancel the task to end the run early. It then ends between two ticks, with sources, sinks and the
    checkpoint closed.
    """
    graph = graph_of(flow, "arun")
    sources = with_tick_time(graph, sources)
    check_ends(graph, sources, sinks, tick_rows)
    check_observers(on_tick, observer, progress)
    check_confirm_within("arun", confirm_within)
    with (
        raising_disk_full(checkpoint),
        serving_metrics(metrics, flow.name) as registered,
        run_display(progress, flow.name) as display,
        ExitStack() as closing,
    ):
        on_tick = combine_observers(registered and registered.observe, on_tick, display)
        options = RunOptions(
            tick_rows, checkpoint, follow, on_tick, max_iterations, end, confirm_within, observer
        )
        started = StartedRun(flow, sources, sinks or {}, options, Runtime(running_loop()), None, closing)
        return await started.finished()


def check_ends(
    graph: FlowGraph,
    sources: Mapping[str, AnySource],
    sinks: Mapping[str, AnySink] | None,
    tick_rows: PerSource,
) -> None:
    """Raise `BadInput` for unknown source or sink names and invalid limits."""
    check_names(graph, sources, {} if sinks is None else sinks)
    check_limits("tick_rows", tick_rows, graph.sources)


def _loop_runs() -> BadInput:
    return BadInput(
        "run() has sources or sinks that wait for something, and an event loop is running already",
        why="It would stop that loop, and with it everything else in it.",
        fix="await headrace.arun(...) with the same arguments",
    )
