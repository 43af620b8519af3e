"""Run a flow in this process, from sources to sinks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.analysis.fingerprint import describe, diff, fingerprint
from penstock.engine.ends import (
    TICK_ROWS,
    AnySink,
    AnySource,
    check_names,
    is_async,
    positions_slot,
)
from penstock.engine.interrupt import Interrupt
from penstock.engine.queue import PerSource, check_limits
from penstock.engine.running import Progress, Running, RunResult
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.state.directory import DirectoryState


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
) -> RunResult:
    """Run `flow` in this process until its sources are done and nothing is deferred that starts a tick.

    sources:    per name a source of `penstock.io`, or any iterable of rows, or an async one
                (also the async generator function that makes it). An async source is read
                ahead of the ticks by as many rows as a tick takes of it, and not further.
    sinks:      per name a sink of `penstock.io`, a list that `Change`s are appended to, or a
                function of (tick, changes). Sinks that are not named are not written.
    tick_rows:  how many rows a tick takes from each source at most; one number, or one per
                source (1000 where nothing is said). A bounded source is read whole in the
                first tick; `Rows` and `files_per_tick` cut ticks themselves.
    checkpoint: a folder. State, source positions and output of each tick become durable
                together; a run with the same flow goes on after the last of these ticks.
                Iterables must then bring the same rows again: those that were taken are skipped.
    follow:     look for new files for ever, until Ctrl-C or SIGTERM.
    on_tick:    called after every tick.
    max_iterations: bound of the rounds of every loop within one tick, instead of the flow's own.
    end:        whether a source that is done has ended for good, so that windows of event time
                close. By default so without a checkpoint, as nothing can go on then. A later
                run of an ended source must not bring more rows.

    Where the sources bring nothing at all, there is one empty tick, if the flow has something to
    say in its first one (the `init` of a `fold`, `initialize()`), and else none.

    Ctrl-C and SIGTERM end the run after the tick at work, committed; a second one
    acts at once. Sources, sinks and the checkpoint are closed in every case.

    Raises what the analysis of the flow raises; `BadInput`, `BadRow`,
    `UnreadableSource` for input, before its tick began, and whatever an iterable raises;
    `FlowChanged`, `CheckpointDamaged`, `CheckpointInUse` for the checkpoint; and what fails
    within a tick, nothing of which is then committed or published.
    Where an event loop runs already, async sources need `arun`: `BadInput`.
    """
    check_ends(flow, sources, sinks, tick_rows)
    opened = partial(
        _open, flow, sources, sinks or {}, tick_rows, max_iterations, checkpoint, follow, on_tick, end
    )
    with Interrupt() as interrupt:
        if any(map(is_async, sources.values())):
            _check_no_loop_runs()
            return asyncio.run(_run_in_loop(opened, interrupt))
        with ExitStack() as closing:
            return opened(closing).until_done(interrupt)


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
) -> RunResult:
    """`run` in the event loop that is running, beside its other tasks.

    Ticks and reads of files hold the loop while they last; between them the others have their
    turn. Signals are the program's own affair: cancel the task to end it early. It
    then ends between two ticks, with async sources, sinks and the checkpoint closed.
    """
    check_ends(flow, sources, sinks, tick_rows)
    opened = partial(
        _open, flow, sources, sinks or {}, tick_rows, max_iterations, checkpoint, follow, on_tick, end
    )
    return await _run_in_loop(opened, None)


async def _run_in_loop(opened: Callable[[ExitStack], Running], interrupt: Interrupt | None) -> RunResult:
    with ExitStack() as closing:
        return await opened(closing).until_done_async(interrupt)


def check_ends(
    flow: Flow,
    sources: Mapping[str, AnySource],
    sinks: Mapping[str, AnySink] | None,
    tick_rows: PerSource,
) -> None:
    """Raises `BadInput` for names that the flow does not have, and for limits that are none."""
    graph = flow.graph()
    check_names(graph, sources, sinks or {})
    check_limits("tick_rows", tick_rows, graph.sources)


def _check_no_loop_runs() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BadInput(
        "run() has async sources, and an event loop is running already",
        why="It would stop that loop, and with it everything else in it.",
        fix="await penstock.arun(...) with the same arguments",
    )


def _open(
    flow: Flow,
    sources: Mapping[str, AnySource],
    sinks: Mapping[str, AnySink],
    tick_rows: PerSource,
    max_iterations: int | None,
    checkpoint: str | PathLike[str] | None,
    follow: bool,
    on_tick: Callable[[Progress], object] | None,
    end: bool | None,
    closing: ExitStack,
) -> Running:
    return Running(
        flow,
        sources,
        sinks,
        _open_state(flow, checkpoint, closing),
        closing,
        tick_rows=tick_rows,
        max_iterations=max_iterations,
        follow=follow,
        on_tick=on_tick,
        end=checkpoint is None if end is None else end,
    )


def _open_state(
    flow: Flow, checkpoint: str | PathLike[str] | None, closing: ExitStack
) -> DirectoryState | None:
    if checkpoint is None:
        return None
    # Only runs with a checkpoint need its codec.
    from penstock.engine.program import compile_program
    from penstock.state.directory import DirectoryState

    graph = flow.graph()
    thaws: dict[str, Callable[[Any], Any] | None] = {s.name: s.thaw for s in compile_program(graph).slots}
    thaws.update({positions_slot(name): None for name in graph.sources})
    return closing.enter_context(
        DirectoryState.open(
            Path(checkpoint),
            fingerprint=fingerprint(graph),
            description=describe(graph),
            slots=thaws,
            diff=diff,
        )
    )


__all__ = ["Progress", "RunResult", "arun", "run"]
