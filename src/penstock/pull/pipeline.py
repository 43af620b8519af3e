"""Pipeline: sources connected with sinks, as a value that can be run any number of times."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.pull.options import check_confirm_within, whole
from penstock.pull.run import CONFIRM_WITHIN, Run
from penstock.pull.runtime import Runtime, running_loop

if TYPE_CHECKING:
    from penstock.pull.module import Module
    from penstock.pull.pieces import Sink, Source


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """A source that a sink reads from."""

    source: Source
    sink: Sink


@dataclass(frozen=True, eq=False, slots=True)
class Pipeline:
    """What `pull` makes of a source, transformers and a sink; or several of them that run as one.

    results_of_all: the result is a tuple of those of all sinks, not that of the last one.
    """

    segments: tuple[Segment, ...]
    results_of_all: bool = False

    def run(
        self, *, window: int | None = None, fuse: bool = True, confirm_within: float | None = CONFIRM_WITHIN
    ) -> Any:
        """Run it to the end, in this thread; the result of its sink.

        window:         requests in flight; by default as many as the depth of the pipeline can use.
        fuse:           run neighbouring synchronous transformers as one.
        confirm_within: seconds that a module may take to confirm that it has stopped; None: any time.

        Raises what a module failed with, first cause first, after every end has confirmed;
        `EndNotConfirmed`, `NeverAnswered`. Modules that wait for something outside need an
        event loop: where one runs already, await the pipeline instead.
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
        """Start it and return when nothing can go on without something from outside. See `run`, `Run`."""
        run = self._prepared(runtime or Runtime(running_loop()), window, fuse, confirm_within)
        try:
            run.runtime.work()
        except BaseException:
            run.stop()
            raise
        return run

    def __await__(self) -> Generator[Any, None, Any]:
        """Run it in the event loop that is running, beside its other tasks; the result of its sink."""
        return self._prepared(Runtime(running_loop()), None, True, CONFIRM_WITHIN).__await__()

    def _prepared(
        self, runtime: Runtime, window: int | None, fuse: bool, confirm_within: float | None
    ) -> Run:
        if window is not None:
            whole("a pipeline", "window", window, least=1)
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
        """Open new modules of all its pieces in a run; those of its sinks."""
        return tuple(segment.sink.open_in(run, segment.source.open_in(run)) for segment in self.segments)
