"""Started run: endpoints, checkpoint and flow, connected."""

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
    AnySink,
    AnySource,
    Inlet,
    OpenSink,
    OpenSource,
    Outlet,
    held_back_by,
    open_sinks,
    open_sources,
    reachable_sinks,
)
from headrace.engine.engine import Engine
from headrace.engine.progress import RunResult
from headrace.engine.run_module import RunModule
from headrace.errors import SourceLocation
from headrace.file_system import local_path
from headrace.pull.ask_buffer import StopOnce
from headrace.pull.edge import CallbackEdge
from headrace.pull.errors import CallCancelled
from headrace.pull.module_context import Module
from headrace.pull.pipeline_run import Run

if TYPE_CHECKING:
    from headrace.engine.checkpointed_state import CheckpointedState
    from headrace.engine.interrupt import Interrupt
    from headrace.engine.progress import Observer, Progress
    from headrace.engine.queue import PerSource
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph
    from headrace.pull.pipeline_runtime import Runtime


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

    def _inlet(self, module: Module, source: OpenSource, readers: frozenset[str]) -> Inlet:
        edge = self._named(f"source {source.name}", lambda: module.open(source.stream))
        return Inlet(
            source.name, edge, StopOnce(edge), readers,
            source.bounded, source.positions, source.dead_letters,
        )  # fmt: skip

    def _outlet(self, module: Module, sink: OpenSink) -> Outlet:
        outlet = Outlet(sink.name, sink.append, sink.only_holds)
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
