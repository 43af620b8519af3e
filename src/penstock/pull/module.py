"""Module: one element of a running pipeline, with its edges and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.errors import SourceLocation
from penstock.pull.edge import Edge, when_all
from penstock.pull.protocol import End, attach_close_error
from penstock.pull.runtime import Cancellable
from penstock.pull.synchronous import SPAWN, Synchronous, is_unawaited

if TYPE_CHECKING:
    from penstock.pull.run import Run

S = TypeVar("S")


class Opens(Protocol):
    """A source: see `penstock.pull.pieces.Source`."""

    def open_in(self, run: Run) -> Edge: ...


class Module:
    """What a module's functions get of the pipeline they run in.

    name, location: what it is called, and the user's line that wrote it.
    run:         the run it belongs to.
    inputs:      edges that it reads from and that have not closed. outputs: edges that read from it.
    advice:      where it waits for others for ever: why it does, and what to do.
    """

    def __init__(self, run: Run, name: str, location: SourceLocation) -> None:
        self.run = run
        self.name = name
        self.location = location
        self.inputs: dict[Edge, None] = {}
        self.outputs: list[Edge] = []
        self.failure: Exception | None = None
        self.advice: tuple[str, str] | None = None
        self._waits: set[Cancellable] = set()
        self._close: Callable[[Exception | None, Callable[..., object]], object] | None = None
        self._settling = False
        run.added(self)

    # -- time and tasks -------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        return self.run.runtime.now()

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> Cancellable:
        """A timer. It does not fire after the module has ended or failed."""

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
        """A task beside the pipeline; `answer(error, result)` is called when it is done.

        It is cancelled, and answers nothing, when the module has ended or failed.
        """

        def done(error: Exception | None, result: Any) -> None:
            self._waits.discard(wait)
            self.guard(answer, error, result)

        wait = _Wait(self._waits)
        wait.of = self.run.runtime.spawn(coroutine, done)
        self._waits.add(wait)
        return wait

    def guard(self, call: Callable[..., object], *args: Any) -> None:
        """Call a function of the module from outside; what it raises fails the module."""
        if self.failure is None:
            try:
                returned = call(*args)
                if returned is not None:
                    self.drop(returned)
            except Exception as error:
                self.crash(error)

    def drop(self, returned: object) -> None:
        """Do nothing with what one of its functions returned. Raises `NotAwaited` for a coroutine."""
        if is_unawaited(returned):
            Synchronous(f"a function of {self.name!r}", SPAWN, self.location)(returned)

    def from_thread(self) -> Callable[..., None]:
        """A function `resume(call, *args)` for another thread to use, once; see `Runtime.expect`."""
        resume = self.run.runtime.expect()

        def guarded(call: Callable[..., object], *args: Any) -> None:
            resume(self.guard, call, *args)

        return guarded

    def enter(self, call: Callable[..., object], *args: Any) -> None:
        """Call a function of the module from the user's own code, as for a `push`, and all that follows."""
        self.run.runtime.enter(self.guard, call, *args)

    # -- what it holds outside ------------------------------------------------------------------

    def hold(self, resource: Cancellable) -> None:
        """Have `resource.cancel()` called when the module has ended, however it does."""
        self._waits.add(resource)

    def closing(self, close: Callable[[Exception | None, Callable[..., object]], object]) -> None:
        """For sinks: `close(error, closed)` is called once when the inputs ended, before the end is told.

        error: what the sink fails with, else None. `closed()` or `closed(error)` says that it is closed.
        It comes however the sink ends: by `done` or `fail` (from within these, where nothing is left to wait
        for), an exception, or a run that is stopped.
        """
        self._close = close

    # -- other modules --------------------------------------------------------------------------

    def open(self, source: Opens) -> Edge:
        """Open a source as a further input of this module."""
        edge = source.open_in(self.run)
        self.connect(edge)
        return edge

    def connect(self, edge: Edge) -> None:
        edge.lower = self
        self.inputs[edge] = None

    def shared(self, owner: object, make: Callable[[], S]) -> S:
        """State that several modules of one run have in common, made by the first that asks for it."""
        return self.run.shared(owner, make)

    # -- the end --------------------------------------------------------------------------------

    def done(self, result: Any = None) -> None:
        """For sinks: this is the result. Inputs that have not ended are aborted, and confirm first.

        What closing fails with is the result then. A module that has failed ends with its failure.
        """

        def confirmed(end: End) -> None:
            if isinstance(end, Exception):
                self.fail(end)
            elif self.failure is None:
                self._settle(None, result)

        if self.failure is None:
            when_all(self._open_inputs(), True, confirmed)

    def fail(self, error: Exception, partial: Any = None) -> None:
        """For sinks: the stream failed, and this came before. Inputs that have not ended are failed first.

        What a module that has failed meets while it closes is attached to its failure.
        """
        if self.failure is not None:
            attach_close_error(self.failure, error)
            return
        self.failure = error
        self.cancel()
        when_all(self._open_inputs(), error, lambda _end: self._settle(error, partial))

    def crash(self, error: Exception) -> None:
        """The module failed: fail what it reads from, then end what reads from it, both with the error."""
        if self.failure is not None:
            attach_close_error(self.failure, error)
            return
        self.failure = error
        self.run.failing[self] = error
        self.cancel()
        when_all(self._open_inputs(), error, lambda _end: self._give_up(error))

    def _give_up(self, error: Exception) -> None:
        self.run.failing.pop(self, None)
        if self.outputs and all(edge.ended is not None for edge in self.outputs):
            self.run.unheard(self, error)
        self._settle(error, None)  # the run knows which modules are sinks: one may have outputs, too
        for edge in self.outputs:
            edge.finish(error)

    def _settle(self, error: Exception | None, result: Any) -> None:
        if self._settling:
            if error is not None:
                self.run.failed(error)
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
        self.run.settled(self, error, result)

    def _open_inputs(self) -> list[Edge]:
        # Also one that has failed and has not said so yet: that is no error to be lost.
        return [edge for edge in self.inputs if not edge.told]

    def cancel(self) -> None:
        """Take back all timers and tasks, and give back what it holds."""
        for wait in tuple(self._waits):
            try:
                wait.cancel()
            except Exception as error:
                self.run.unheard(self, error)
        self._waits.clear()


class _Wait:
    """A timer or a task of a module, which forgets it when it is cancelled."""

    __slots__ = ("_among", "of")

    def __init__(self, among: set[Cancellable]) -> None:
        self._among = among
        self.of: Cancellable | None = None

    def cancel(self) -> None:
        self._among.discard(self)
        if self.of is not None:
            self.of.cancel()
