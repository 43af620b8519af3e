"""In-process runs of a flow, from sources to sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from os import PathLike
from typing import TYPE_CHECKING

from penstock.engine.endpoints import TICK_ROWS, AnySink, AnySource, check_names, is_async
from penstock.engine.interrupt import Interrupt
from penstock.engine.progress import Progress, RunResult
from penstock.engine.prometheus import Metrics, combine_observers, serving_metrics
from penstock.engine.queue import PerSource, check_limits
from penstock.engine.started_run import RunOptions, StartedRun
from penstock.errors import BadInput, LoopRunsAlready
from penstock.pull.argument_checks import check_confirm_within
from penstock.pull.pipeline_run import CONFIRM_WITHIN
from penstock.pull.pipeline_runtime import Runtime, running_loop

if TYPE_CHECKING:
    from penstock.flow.flow import Flow


def run(
    flow: Flow,
    sources: Mapping[str, AnySource],
    sinks: Mapping[str, AnySink] | None = None,
    *,
    tick_rows: PerSource = TICK_ROWS,
    checkpoint: str | PathLike[str] | None = None,
    follow: bool = False,
    on_tick: Callable[[Progress], object] | None = None,
    max_iterations: int | None = None,
    end: bool | None = None,
    confirm_within: float | None = CONFIRM_WITHIN,
    metrics: Metrics | None = None,
) -> RunResult:
    """Run `flow` in this process until its sources end and no deferred rows start another tick.

    sources:    per name a source of `penstock.io` or of `penstock.pull`, or any iterable of rows,
                or an async one (also the async generator function that makes it). An async source
                is read ahead of the ticks by as many rows as a tick takes of it, and not further.
    sinks:      per name a sink of `penstock.io`, a list that `Change`s are appended to, a
                function of (tick, changes), or a sink of `penstock.pull`, which is given each
                `Change`. Sinks that are not named are not written.
    tick_rows:  how many rows a tick takes from each source at most; one number, or one per
                source (1000 where nothing is said). A bounded source is read whole in the
                first tick; `Rows` and `files_per_tick` cut ticks themselves.
    checkpoint: a folder. State, source positions and output of each tick become durable
                together; a run with the same flow goes on after the last of these ticks.
                Iterables must then bring the same rows again: those that were taken are skipped.
    follow:     keep looking for new files until Ctrl-C or SIGTERM.
    on_tick:    callback after every tick.
    max_iterations: limit on the rounds of every loop within one tick, which overrides the flow's own.
    end:        whether a source that is done has ended for good, so that windows of event time
                close. By default so without a checkpoint, as nothing can go on then. A later
                run of an ended source must not bring more rows.

    confirm_within: seconds that a source or sink may take to confirm that it has ended; None: any time.
    metrics:    where to serve metrics for Prometheus while the run lasts: a port of this machine,
                "HOST:PORT", or a `prometheus_client.CollectorRegistry` that is served elsewhere.

    All ends are pull-streams: a tick begins when each sink has asked for more, so a slow sink holds
    back the sources. A source that only sinks read which have enough (`take` in front of one) is
    aborted; when all have, the run ends. It ends in each case when every source and sink has confirmed.

    Where the sources bring nothing at all, there is one empty tick, if the flow has something to
    say in its first one (the `init` of a `fold`, `initialize()`), and else none.

    Ctrl-C and SIGTERM end the run after the tick at work, committed; a second one
    acts at once. Sources, sinks and the checkpoint are closed in every case.

    returns: what was done, what each sink of `penstock.pull` ended with, and the rows that tables hold
    back because they were retracted more often than they came.

    Raises what the analysis of the flow raises; `BadInput`, `BadRow`,
    `UnreadableSource` for input, before its tick began, and whatever an iterable raises;
    `FlowChanged`, `CheckpointDamaged`, `CheckpointInUse` for the checkpoint; and what fails
    within a tick, nothing of which is then committed or published; what a source or sink fails
    with. All other ends are failed with the same error, and what they fail with in turn is noted
    on it. `EndNotConfirmed` names a source or sink that has not confirmed in time,
    `NeverAnswered` one that nothing will come of. `BadOption` for a `confirm_within` that is no time.
    Where an event loop runs already, ends that wait for something need `arun`: `BadInput`.
    """
    check_ends(flow, sources, sinks, tick_rows)
    check_confirm_within("run", confirm_within)
    if any(map(is_async, sources.values())) and running_loop() is not None:
        raise _loop_runs()
    with serving_metrics(metrics, flow.name) as told, Interrupt() as interrupt, ExitStack() as closing:
        heard = combine_observers(on_tick, told)
        options = RunOptions(tick_rows, checkpoint, follow, heard, max_iterations, end, confirm_within)
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
    max_iterations: int | None = None,
    end: bool | None = None,
    confirm_within: float | None = CONFIRM_WITHIN,
    metrics: Metrics | None = None,
) -> RunResult:
    """Run `flow` like `run`, in the running event loop.

    Ticks and reads of files hold the loop while they last; between them the others have their
    turn. Signals are the program's own affair: cancel the task to end it early. It
    then ends between two ticks, with sources, sinks and the checkpoint closed.
    """
    check_ends(flow, sources, sinks, tick_rows)
    check_confirm_within("arun", confirm_within)
    with serving_metrics(metrics, flow.name) as told, ExitStack() as closing:
        heard = combine_observers(on_tick, told)
        options = RunOptions(tick_rows, checkpoint, follow, heard, max_iterations, end, confirm_within)
        started = StartedRun(flow, sources, sinks or {}, options, Runtime(running_loop()), None, closing)
        return await started.finished()


def check_ends(
    flow: Flow,
    sources: Mapping[str, AnySource],
    sinks: Mapping[str, AnySink] | None,
    tick_rows: PerSource,
) -> None:
    """Raise `BadInput` for unknown source or sink names and invalid limits."""
    graph = flow.graph()
    check_names(graph, sources, sinks or {})
    check_limits("tick_rows", tick_rows, graph.sources)


def _loop_runs() -> BadInput:
    return BadInput(
        "run() has sources or sinks that wait for something, and an event loop is running already",
        why="It would stop that loop, and with it everything else in it.",
        fix="await penstock.arun(...) with the same arguments",
    )


__all__ = ["Progress", "RunResult", "arun", "run"]
