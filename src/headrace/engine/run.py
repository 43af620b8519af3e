"""In-process runs of a flow, from sources to sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from os import PathLike
from typing import TYPE_CHECKING

from headrace.engine.endpoints import TICK_ROWS, AnySink, AnySource, check_names, is_async, with_tick_time
from headrace.engine.interrupt import Interrupt
from headrace.engine.progress import Observer, Progress, RunResult, check_observers, combine_observers
from headrace.engine.progress_display import run_display
from headrace.engine.prometheus import Metrics, serving_metrics
from headrace.engine.queue import PerSource, check_limits
from headrace.engine.started_run import RunOptions, StartedRun
from headrace.errors import BadInput
from headrace.expr.expression_errors import explains_calls
from headrace.file_system import telling_full_disk
from headrace.graph.node import graph_of
from headrace.pull.argument_checks import check_confirm_within
from headrace.pull.errors import LoopRunsAlready
from headrace.pull.pipeline_run import CONFIRM_WITHIN
from headrace.pull.pipeline_runtime import Runtime, running_loop

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph


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
        telling_full_disk(checkpoint),
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
        telling_full_disk(checkpoint),
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


__all__ = ["Progress", "RunResult", "arun", "run"]
