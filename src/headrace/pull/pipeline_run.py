"""Run: one execution of a pipeline, from its start until every end is confirmed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.pull.argument_checks import refuse_async
from headrace.pull.edge import EdgeModule, PullEdge
from headrace.pull.errors import EndNotConfirmed, NeverAnswered, NotFinished
from headrace.pull.pipeline_runtime import Cancellable, Runtime
from headrace.pull.protocol import attach_close_error

if TYPE_CHECKING:
    import asyncio


_OUTSIDE = (
    "Requests wait there, and no timer, task or thread of the pipeline is left to answer them.",
    "start() it and bring the values before result(), or await it beside the task that does",
)


def unconfirmed_stop_error(stopping: Mapping[PullEdge | EdgeModule, EdgeModule]) -> EndNotConfirmed:
    """Build the error for unconfirmed stops, naming the modules that wait for none of the others.

    stopping: stopped modules by edge, and closing sinks.

    NamedModule are those that wait for none of the others.
    """
    culprits = [module for module in stopping.values() if not any(i in stopping for i in module.inputs)]
    return EndNotConfirmed(
        f"{_names(culprits)} was stopped but has not confirmed",
        where=[module.location for module in culprits],
        why="A module confirms an abort once it and everything upstream of it have closed.",
        fix="answer every abort and error in the module, or allow more time: confirm_within=SECONDS",
        modules=tuple(module.name for module in culprits),
    )


def unfinished_run_error(outstanding: int) -> NotFinished:
    """Build the error for a result read early. outstanding: pending timers, tasks and threads."""
    return NotFinished(
        "the pipeline is still running",
        why=f"Pending timers, tasks and threads: {outstanding}.",
        fix="call wait(), or await the run, before result()",
        outstanding=outstanding,
    )


def stalled_pipeline_error(edges: Iterable[PullEdge]) -> NeverAnswered:
    """Build the error for a pipeline that can no longer finish. edges: those that have not ended.

    Names outputs that nobody reads although others wait for them; otherwise modules that were asked and ask
    nobody; otherwise modules that nobody asks.
    """
    there = dict.fromkeys(edges)
    unread = [edge for edge in there if edge.lower is None]
    if unread:
        return NeverAnswered(
            f"the pipeline is not finished, and nobody reads {', '.join(map(_output, unread))}",
            where=[edge.upper.location for edge in unread],
            why="Readers of one module wait for each other.",
            fix="read all of them in the same run: together(pipeline, pipeline)",
            modules=tuple(edge.upper.name for edge in unread),
        )
    waiting = [e for e in there if e.asked and not any(i.asked for i in e.upper.inputs)]
    idle = [e for e in there if not any(i in there for i in e.upper.inputs)]
    culprits = [edge.upper for edge in waiting or idle]
    why, fix = next((module.advice for module in culprits if module.advice is not None), _OUTSIDE)
    names = _names(culprits) or "the sink"
    return NeverAnswered(
        f"the pipeline is not finished, and nothing will come from {names} by itself",
        where=[module.location for module in culprits],
        why=why,
        fix=fix,
        modules=tuple(module.name for module in culprits),
    )


def _names(modules: Iterable[EdgeModule]) -> str:
    return ", ".join(dict.fromkeys(repr(module.name) for module in modules))


def _output(edge: PullEdge) -> str:
    outputs = edge.upper.outputs
    which = f"branch {outputs.index(edge) + 1} of " if len(outputs) > 1 else ""
    return f"{which}{edge.upper.name!r}"


S = TypeVar("S")

CONFIRM_WITHIN = 30.0
"""Default limit on the seconds a module may take to confirm a stop."""


@dataclass(frozen=True, slots=True)
class _Stopping:
    """Module being stopped, and since when."""

    module: EdgeModule
    since: float


class Run:
    """Started pipeline. It is finished when its sinks have results and every edge has ended.

    fuse:    run neighbouring stateless transformers as one.
    window:  requests that sinks keep in flight; None lets each edge choose.
    failures of several sinks: the first is the run's, later ones are attached to it.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        fuse: bool = True,
        window: int | None = None,
        confirm_within: float | None = CONFIRM_WITHIN,
    ) -> None:
        self.runtime = runtime
        self.fuse = fuse
        self.window = window
        self.modules: dict[EdgeModule, None] = {}
        """Modules built with the run, and modules opened later that have not ended."""
        self._later: set[EdgeModule] = set()
        self.finished = False
        self.error: Exception | None = None
        self.partial: Any = None
        """Partial result of the sink when its stream failed."""
        self.results: dict[EdgeModule, Any] = {}
        """Results of the sinks that settled without an error."""
        self.wanted: tuple[EdgeModule, ...] | None = None
        """Sinks whose results form the run's result; None for the last one's."""
        self.interrupted: Callable[[BaseException], object] = lambda _error: self.stop()
        """Exception that interrupted waiting for the run, such as Ctrl-C or a cancellation."""
        self._confirm_within = confirm_within
        self._edges: dict[PullEdge, None] = {}
        self.failing: dict[EdgeModule, Exception] = {}
        """Failed modules whose inputs have not yet confirmed."""
        self._unheard: list[Exception] = []  # undelivered, after a failure that was on its way
        self._stopping: dict[PullEdge | EdgeModule, _Stopping] = {}
        self._sinks: set[EdgeModule] = set()
        self._main: EdgeModule | None = None
        self._shared: dict[object, Any] = {}
        self._listeners: list[Callable[[Run], object]] = []
        self._building = True
        self._timer: Cancellable | None = None
        self._awaiting = 0

    def add_sink(self, module: EdgeModule) -> None:
        """Register a sink. The last one registered before `built` provides the run's result."""
        self._sinks.add(module)
        if self._building:
            self._main = module

    def built(self) -> None:
        """Record that all modules are connected."""
        self._building = False
        self._look()

    def shared(self, owner: object, make: Callable[[], S]) -> S:
        """See `Module.shared`."""
        if owner not in self._shared:
            self._shared[owner] = make()
        return self._shared[owner]

    def added(self, module: EdgeModule) -> None:
        self.modules[module] = None
        if not self._building:
            self._later.add(module)

    def opened(self, edge: PullEdge) -> None:
        self._edges[edge] = None

    def stopping(self, module: EdgeModule, edge: PullEdge | None = None) -> None:
        """Start the time limit of a module told to stop at an edge, or of a closing sink."""
        self._stopping[module if edge is None else edge] = _Stopping(module, self.runtime.now())
        if self.runtime.has_loop:
            self._watch()

    def closed(self, edge: PullEdge) -> None:
        """Handle a stream that has ended with all its requests answered."""
        self._edges.pop(edge, None)
        self._stopping.pop(edge, None)
        upper = edge.upper
        if all(output.ended is not None for output in upper.outputs):
            upper.cancel()
            if upper in self._later:
                self._later.discard(upper)
                del self.modules[upper]
        if not edge.undelivered_failure:
            self.heard(edge)
        self._look()

    def heard(self, edge: PullEdge) -> None:
        """Handle delivery of an edge's end downstream. Until then, its failure counts as a closing error."""
        if edge.lower is not None:
            edge.lower.inputs.pop(edge, None)

    def record_result(self, module: EdgeModule, error: Exception | None, result: Any) -> None:
        """Record the result of a sink, or its partial result if its stream failed."""
        if module not in self._sinks:
            return
        self._sinks.discard(module)
        self._stopping.pop(module, None)
        if error is not None:
            if self.error is None:
                self.partial = result
            self.record_failure(error)
        else:
            self.results[module] = result
        self._look()

    def record_failure(self, error: Exception) -> None:
        """Set the run's error unless there is an earlier one. Also for modules whose streams have ended."""
        if self.error is None:
            self.error = error
        else:
            attach_close_error(self.error, error)

    def record_undelivered_failure(self, module: EdgeModule, error: Exception) -> None:
        """Record the failure of a module whose streams have ended, so that no neighbour can receive it.

        An earlier failure may still be on its way to a sink, or be caught, so only the end of the run decides
        which of them is the run's error.
        """
        edges = (*module.outputs, *self._edges)
        on_its_way = (*(edge.ended for edge in edges), *(sink.failure for sink in self._sinks))
        if self.failing or any(isinstance(end, Exception) for end in on_its_way):
            self._unheard.append(error)
        else:
            self.record_failure(error)

    def _look(self) -> None:
        if not (self.finished or self._building or self._edges or self._sinks):
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        for error in self._unheard:
            self.record_failure(error)
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners:
            listener(self)

    def when_finished(self, listener: Callable[[Run], object]) -> None:
        """Call `listener(run)` when the run is finished, or immediately if it already is."""
        refuse_async("when_finished", listener, fix="await the run")
        if self.finished:
            listener(self)
        else:
            self._listeners.append(listener)

    def result(self) -> Any:
        """Return the result of the last sink; its partial result if the run was stopped.

        Raises the error of a failed stream. For an unfinished run, raises `EndNotConfirmed`, `NotFinished` if
        outside events may still come, and otherwise `NeverAnswered`.
        """
        self.runtime.raise_escaped()
        if not self.finished:
            raise self.unfinished_error()
        if self.error is not None:
            raise self.error
        if self.wanted is not None:
            return tuple(self.results[module] for module in self.wanted)
        return self.results[self._main] if self._main is not None else None

    def wait(self) -> Any:
        """Work until the run is finished, in an event loop of its own if a module needs one.

        Returns the result. Ctrl-C and the like abort the inputs of all sinks, wait for them, and are then
        raised.
        """
        self.runtime.move_here()
        try:
            self._work()
        except BaseException as error:
            if not self.finished:
                self.interrupted(error)
                self._work()
            raise
        finally:
            self.abandon()
            if self.runtime.has_loop and not self.runtime.is_shared:
                self.runtime.loop.run_until_complete(
                    self.runtime.wait_for_cancelled_tasks(self._confirm_within)
                )
            self.runtime.close()
        return self.result()

    def _work(self) -> None:
        self.runtime.work()
        if not self.finished and self.runtime.has_loop:
            self.runtime.check_no_loop_runs()
            self.runtime.loop.run_until_complete(self._until_finished())

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in the running event loop. On cancellation, abort the sinks' inputs and wait for them."""
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        import asyncio

        self.runtime.move_here()
        self.runtime.adopt(asyncio.get_running_loop())
        self._awaiting += 1
        try:
            self.runtime.work()
            await self._until_finished()
        except GeneratorExit as error:
            self.interrupted(error)
            raise
        except BaseException as error:
            others = self._awaiting > 1 and isinstance(error, asyncio.CancelledError)
            if not (self.finished or others):
                self.interrupted(error)
                await self._until_finished()
            raise
        finally:
            self._awaiting -= 1
            if not self._awaiting:
                self.abandon()
                await self.runtime.wait_for_cancelled_tasks(self._confirm_within)
        return self.result()

    async def _until_finished(self) -> None:
        import asyncio

        self._watch()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def over(*_run: Run) -> None:
            if not future.done():
                future.set_result(None)

        self.when_finished(over)
        self.runtime.when_idle = over
        if not self.runtime.idle and self.runtime.escaped is None:
            await future
        self.runtime.raise_escaped()

    def stop(self, cause: Exception | None = None) -> None:
        """Abort (or fail) the inputs of all running sinks; the run finishes when they confirm."""
        for module in tuple(self._sinks):
            if cause is None:
                self.runtime.enter(module.done)
            else:
                self.runtime.enter(module.crash, cause)

    def abandon(self) -> None:
        """Cancel all remaining timers and tasks."""
        for module in tuple(self.modules):
            module.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Start the timer of the module whose stop has been pending longest."""
        if self._timer is None and self._stopping and self._confirm_within is not None and not self.finished:
            since = next(iter(self._stopping.values())).since
            left = max(since + self._confirm_within - self.runtime.now(), 0)
            self._timer = self.runtime.loop.call_later(left, self._overdue)

    def _overdue(self) -> None:
        assert self._confirm_within is not None
        self._timer = None
        first = next(iter(self._stopping.values()), None)
        over = first is not None and self.runtime.now() >= first.since + self._confirm_within
        if over and not self.finished:
            self.record_failure(self.unfinished_error())
            self._finish()
        self._watch()

    def unfinished_error(self) -> Exception:
        """Build the error of an unfinished run: its first failure, and the modules that others wait for."""
        error = self._stuck()
        if self.runtime.replay:
            error.add_note(self.runtime.replay)
        for cause in (self.error, *self.failing.values(), *self._unheard):
            if cause is not None:
                return attach_close_error(cause, error)
        return error

    def _stuck(self) -> EndNotConfirmed | NeverAnswered | NotFinished:
        if self._stopping:
            return unconfirmed_stop_error({at: stopping.module for at, stopping in self._stopping.items()})
        if self.runtime.outstanding:
            return unfinished_run_error(self.runtime.outstanding)
        return stalled_pipeline_error(self._edges)
