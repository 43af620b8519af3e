"""Module context: the edges, timers and tasks of one module in a running pipeline.

`open_module` opens a module so that an error fails its stream; a `Registry` has the running modules behind a
user's handle, across runs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import SPAWN, SynchronousCheck, is_unawaited
from headrace.pull.edge import PullEdge, stop_all
from headrace.pull.errors import NotAModule
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import BatchRead, End, Read, attach_close_error

if TYPE_CHECKING:
    from headrace.pull.pipeline_run import Run

S = TypeVar("S")


class Openable(Protocol):
    """Interface for a source that can be opened; see `headrace.pull.modules.Source`."""

    def open_in(self, run: Run) -> PullEdge: ...


class Module:
    """Context that a module's functions use: its edges, its run, timers and tasks.

    name, location: its name, and the user's source line that created it.
    run:         the run it belongs to.
    inputs:      open edges that it reads from. outputs: edges that read from it.
    advice:      reason and fix to report if it waits forever.
    """

    def __init__(self, run: Run, name: str, location: SourceLocation) -> None:
        self.run = run
        self.name = name
        self.location = location
        self.inputs: dict[PullEdge, None] = {}
        self.outputs: list[PullEdge] = []
        self.failure: Exception | None = None
        self.advice: tuple[str, str] | None = None
        self._waits: set[Cancellable] = set()
        self._close: Callable[[Exception | None, Callable[..., object]], object] | None = None
        self._settling = False
        run.added(self)

    def now(self) -> float:
        """Return the time of a monotonic clock in seconds."""
        return self.run.runtime.now()

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> Cancellable:
        """Start a timer, which is cancelled when the module ends or fails."""

        def fire() -> None:
            self._waits.discard(wait)
            self.guard(call, *args)

        wait = _Wait(self._waits)
        wait.of = self.run.runtime.later(seconds, fire)
        self._waits.add(wait)
        return wait

    def spawn(
        self, coroutine: Coroutine[Any, Any, Any], answer: Callable[[Exception | None, Any], object]
    ) -> Cancellable:
        """Start a task; `answer(error, result)` is called when it is done.

        When the module ends or fails, the task is cancelled without an answer.
        """

        def done(error: Exception | None, result: Any) -> None:
            self._waits.discard(wait)
            self.guard(answer, error, result)

        wait = _Wait(self._waits)
        wait.of = self.run.runtime.spawn(coroutine, done)
        self._waits.add(wait)
        return wait

    def guard(self, call: Callable[..., object], *args: Any) -> None:
        """Call a function of the module from outside; an exception fails the module."""
        if self.failure is None:
            try:
                returned = call(*args)
                if returned is not None:
                    self.drop(returned)
            except Exception as error:
                self.crash(error)

    def drop(self, returned: object) -> None:
        """Discard the return value of one of the module's functions. Raises `NotAwaited` for a coroutine."""
        if is_unawaited(returned):
            SynchronousCheck(f"a function of {self.name!r}", SPAWN, self.location)(returned)

    def from_thread(self) -> Callable[..., None]:
        """Return a function `resume(call, *args)` for one use by another thread; see `Runtime.expect`."""
        resume = self.run.runtime.expect()

        def guarded(call: Callable[..., object], *args: Any) -> None:
            resume(self.guard, call, *args)

        return guarded

    def enter(self, call: Callable[..., object], *args: Any) -> None:
        """Call a function of the module from user code, such as a `push`, and process all that follows."""
        self.run.runtime.enter(self.guard, call, *args)

    def cancel_at_end(self, resource: Cancellable) -> None:
        """Call `resource.cancel()` when the module ends or fails."""
        self._waits.add(resource)

    def closing(self, close: Callable[[Exception | None, Callable[..., object]], object]) -> None:
        """For sinks: call `close(error, closed)` once the inputs have ended, before the run is notified.

        error: failure of the sink, or None. `closed()` or `closed(error)` reports that closing is done.
        The call is made however the sink ends: by `done` or `fail` (within them if nothing is left to wait
        for), by an exception, or by a run that is stopped.
        """
        self._close = close

    def open(self, source: Openable) -> PullEdge:
        """Open a source as a further input of this module."""
        edge = source.open_in(self.run)
        self.connect(edge)
        return edge

    def connect(self, edge: PullEdge) -> None:
        edge.lower = self
        self.inputs[edge] = None

    def shared(self, owner: object, make: Callable[[], S]) -> S:
        """Return state shared by several modules of one run, created on first use."""
        return self.run.shared(owner, make)

    def done(self, result: Any = None) -> None:
        """For sinks: set the result, after aborting inputs that have not ended.

        An error while closing becomes the result. A module that has already failed ends with its failure.
        """

        def confirmed(end: End) -> None:
            if isinstance(end, Exception):
                self.fail(end)
            elif self.failure is None:
                self._settle(None, result)

        if self.failure is None:
            self._stop_inputs(True, confirmed)

    def fail(self, error: Exception, partial: Any = None) -> None:
        """For sinks: report that the stream failed, with the partial result. Inputs that have not ended are
        failed first.

        Errors of a failed module while it closes are attached to its failure.
        """
        if self.failure is not None:
            attach_close_error(self.failure, error)
            return
        self.failure = error
        self.cancel()
        self._stop_inputs(error, lambda _end: self._settle(error, partial))

    def crash(self, error: Exception) -> None:
        """Fail the module: fail its inputs, then end its outputs, both with the error."""
        if self.failure is not None:
            attach_close_error(self.failure, error)
            return
        self.failure = error
        self.run.failing[self] = error
        self.cancel()
        self._stop_inputs(error, lambda _end: self._give_up(error))

    def _give_up(self, error: Exception) -> None:
        self.run.failing.pop(self, None)
        if self.outputs and all(edge.ended is not None for edge in self.outputs):
            self.run.record_undelivered_failure(self, error)
        self._settle(error, None)  # The run knows which modules are sinks, since a sink may have outputs too.
        for edge in self.outputs:
            edge.finish(error)

    def _settle(self, error: Exception | None, result: Any) -> None:
        if self._settling:
            if error is not None:
                self.run.record_failure(error)
            return
        self._settling = True
        self.cancel()

        def closed(later: Exception | None = None) -> None:
            cause = later if error is None else error if later is None else attach_close_error(error, later)
            self._settled(cause, result)

        if self._close is None:
            closed()
            return
        self.run.stopping(self)
        try:
            self.drop(self._close(error, closed))
        except Exception as failure:
            closed(failure)

    def _settled(self, error: Exception | None, result: Any) -> None:
        self.run.record_result(self, error, result)

    def _stop_inputs(self, cause: End, then: Callable[[End], object]) -> None:
        """Stop all inputs, and call `then(end)` once all have confirmed."""
        # Include inputs that failed but have not reported it, so that no error is lost.
        stop_all([edge for edge in self.inputs if not edge.end_delivered], cause, then)

    def cancel(self) -> None:
        """Cancel all timers and tasks, and release held resources."""
        for wait in tuple(self._waits):
            try:
                wait.cancel()
            except Exception as error:
                self.run.record_undelivered_failure(self, error)
        self._waits.clear()


class _Wait:
    """Timer or task of a module, which forgets it on cancellation."""

    __slots__ = ("_among", "of")

    def __init__(self, among: set[Cancellable]) -> None:
        self._among = among
        self.of: Cancellable | None = None

    def cancel(self) -> None:
        self._among.discard(self)
        if self.of is not None:
            self.of.cancel()


def open_module(module: Module, open: Callable[..., Read | BatchRead], *of: Any) -> Read | BatchRead:
    """Open a module and return its `read` function, or one that fails with the error raised while opening."""
    try:
        found = open(*of)
        if callable(found):  # pyright: ignore[reportUnnecessaryComparison]
            return found
        module.drop(found)
        raise NotAModule(
            f"{module.name!r} was opened and has no read: its function returned {type(found).__name__}",
            where=[module.location],
            why="Sources and transformers answer calls of read(abort, answer).",
            fix="return the function read(abort, answer)",
        )
    except Exception as error:
        failure = error

        def read(*_request: object) -> None:
            raise failure

        return read


T = TypeVar("T")


class Registry(Generic[T]):
    """Registry with an item per running module, removed when the module ends or its run is abandoned."""

    def __init__(self) -> None:
        self._items: dict[_Entry[T], T] = {}

    def add(self, module: Module, item: T) -> _Entry[T]:
        """Register an item until the module ends, or `cancel` is called."""
        entry = _Entry(self._items)
        self._items[entry] = item
        module.cancel_at_end(entry)
        return entry

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)


class _Entry(Generic[T]):
    def __init__(self, items: dict[_Entry[T], T]) -> None:
        self._items = items

    def cancel(self) -> None:
        self._items.pop(self, None)


class AbortHandle:
    """Handle that permanently stops modules from outside their pipelines, including later ones."""

    def __init__(self) -> None:
        self.cause: End | None = None
        self.at_work: Registry[Callable[[End], object]] = Registry()

    def abort(self, error: Exception | None) -> None:
        """Stop all modules, with `error` or, without one, as an abort. Only the first call counts."""
        if self.cause is None:
            self.cause = error or True
            for stop in self.at_work:
                stop(self.cause)
