"""Pipeline: sources connected to sinks, as a value that can run any number of times."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.pull.argument_checks import check_confirm_within, check_integer
from headrace.pull.pipeline_run import CONFIRM_WITHIN, Run
from headrace.pull.pipeline_runtime import Runtime, running_loop

if TYPE_CHECKING:
    from headrace.pull.module_context import Module
    from headrace.pull.modules import Sink, Source


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """Source connected to a sink."""

    source: Source
    sink: Sink


@dataclass(frozen=True, eq=False, slots=True)
class Pipeline:
    """Result of composing a source, transformers and a sink, or several such pipelines that run as one.

    results_of_all: the result is a tuple of all sinks' results instead of the last sink's.
    """

    segments: tuple[Segment, ...]
    results_of_all: bool = False

    def run(
        self, *, window: int | None = None, fuse: bool = True, confirm_within: float | None = CONFIRM_WITHIN
    ) -> Any:
        """Run the pipeline to its end in this thread, and return the result of its sink.

        window:         requests in flight; by default the depth of the pipeline.
        fuse:           run neighbouring synchronous transformers as one.
        confirm_within: seconds for a module to confirm a stop; None for unlimited.

        Raises the first failure of a module, after every end is confirmed; `EndNotConfirmed`,
        `NeverAnswered`. Modules that wait for outside events need an event loop: if one is already running,
        await the pipeline instead.
        """
        run = self._prepared(Runtime(), window, fuse, confirm_within)
        return run.wait()

    def start(
        self,
        runtime: Runtime | None = None,
        *,
        window: int | None = None,
        fuse: bool = True,
        confirm_within: float | None = CONFIRM_WITHIN,
    ) -> Run:
        """Start the pipeline, and return when it can only continue with outside input. See `run`, `Run`."""
        run = self._prepared(runtime or Runtime(running_loop()), window, fuse, confirm_within)
        try:
            run.runtime.work()
        except BaseException:
            run.stop()
            raise
        return run

    def __await__(self) -> Generator[Any, None, Any]:
        """Run the pipeline in the running event loop, and return the result of its sink."""
        return self._prepared(Runtime(running_loop()), None, True, CONFIRM_WITHIN).__await__()

    def _prepared(
        self, runtime: Runtime, window: int | None, fuse: bool, confirm_within: float | None
    ) -> Run:
        if window is not None:
            check_integer("a pipeline", "window", window, least=1)
        check_confirm_within("a pipeline", confirm_within)
        run = Run(runtime, fuse=fuse, window=window, confirm_within=confirm_within)
        runtime.prepare(self._build, run)
        return run

    def _build(self, run: Run) -> None:
        sinks = self.open_in(run)
        if self.results_of_all:
            run.wanted = sinks
        run.built()

    def open_in(self, run: Run) -> tuple[Module, ...]:
        """Open all modules in a run, and return those of the sinks."""
        return tuple(segment.sink.open_in(run, segment.source.open_in(run)) for segment in self.segments)
