"""Dataflow-thread module in a running pipeline: its threads, inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from headrace.pull import module_context
from headrace.pull.dataflow.edge import Edge
from headrace.pull.dataflow.messages import DONE, Answer, Ending, Failed, ending
from headrace.pull.dataflow.stream import Port, Stream
from headrace.pull.dataflow.thread import Thread
from headrace.pull.dataflow.variable import Variable
from headrace.pull.errors import NotAModule
from headrace.pull.protocol import End, attach_close_error

if TYPE_CHECKING:
    from headrace.pull.edge import Edge as CallbackEdge
    from headrace.pull.pipeline_run import Run

T = TypeVar("T")

ResultListener = Callable[[Exception | None, Any], object]
"""Callback for a sink's result: `on_result(None, result)`, or `on_result(error, partial)`."""


class Opens(Protocol):
    """Interface of a source to open; see `headrace.pull.dataflow.modules.Source`."""

    def open_in(self, run: Run) -> Edge: ...


class ModuleContext(module_context.Module):
    """Context that the threads of a module use.

    An exception in any of its threads fails the module: its other threads are stopped and its
    inputs failed. Once these have confirmed, its outputs end with the exception.
    """

    on_result: ResultListener | None = None
    """Receiver of the result of a sink within a callback-form module, in place of the run."""

    # -- threads --------------------------------------------------------------------------------

    def begin(self, thread: Callable[..., Coroutine[Variable[Any], Any, Any]], *of: Any) -> None:
        """Start the module's first thread, `thread(*of)`. Exceptions, even in the call, fail the module."""
        self.guard(lambda: self.thread(thread(*of)))

    def thread(self, coroutine: Coroutine[Variable[Any], Any, Any]) -> Thread:
        """Start a dataflow thread. Raises `NotAModule` for anything but a coroutine."""
        if not isinstance(coroutine, Coroutine):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NotAModule(
                f"{self.name!r} was given {type(coroutine).__name__} for a dataflow thread",
                where=[self.location],
                why="A dataflow thread is a coroutine: what a coroutine function returns.",
                fix="async def; or return what one returns, such as working(module, requests, work)",
            )
        thread = Thread(coroutine, self.crash, self._waits.discard)
        self.cancel_at_end(thread)
        thread.start()
        return thread

    def when(self, variable: Variable[T], then: Callable[[T], object]) -> None:
        """Start a thread that calls `then(value)` when the variable is bound."""
        variable.when_bound(lambda value: self.guard(then, value), self.crash)

    def task(self, coroutine: Coroutine[Any, Any, T]) -> Variable[T]:
        """Run a coroutine in the event loop, and return the variable of its result."""
        result: Variable[T] = Variable()

        def done(error: Exception | None, value: Any) -> None:
            if error is None:
                result.bind(value)
            else:
                result.fail(error)

        self.spawn(coroutine, done)
        return result

    def after(self, seconds: float) -> Variable[None]:
        """Return a variable that is bound to None after the given seconds."""
        passed: Variable[None] = Variable()
        self.later(seconds, passed.bind, None)
        return passed

    # -- edges ----------------------------------------------------------------------------------

    def connect(self, edge: Edge | CallbackEdge) -> None:
        super().connect(cast("CallbackEdge", edge))

    def read(self, source: Opens) -> Edge:
        """Open a source of this form as a further input."""
        edge = source.open_in(self.run)
        self.connect(edge)
        return edge

    async def stop_inputs(self, cause: Ending | End) -> Ending:
        """Stop all inputs at once, wait for them, and return the first error or done."""
        first = ending(cause)
        port: Port[Answer] = Port()
        answers = Stream(port.tail)
        stopped = [edge.stop(cause) for edge in self.reading]
        for confirmed in stopped:
            confirmed.when_bound(port.send)
        for _ in stopped:
            answer = await answers.next()
            if isinstance(answer, Failed):
                first = (
                    Failed(attach_close_error(first.error, answer.error))
                    if isinstance(first, Failed)
                    else answer
                )
        return first

    @property
    def reading(self) -> list[Edge]:
        """Open inputs of this form, whose end has not been delivered yet, in the order of opening."""
        inputs: Any = self.inputs
        return [edge for edge in inputs if isinstance(edge, Edge) and not edge.end_delivered]

    # -- the end --------------------------------------------------------------------------------

    def done(self, result: Any = None) -> None:
        """For sinks: set the result, after aborting inputs that have not ended."""

        def confirmed(end: Ending) -> None:
            if isinstance(end, Failed):
                self.fail(end.error)
            elif self.failure is None:
                self._settle(None, result)

        if self.failure is None:
            self._stop_inputs(DONE, confirmed)

    def fail(self, error: Exception | Failed, partial: Any = None) -> None:
        """For sinks: report that the stream failed, with the partial result. Inputs that have not ended are
        failed first.
        """
        error = error.error if isinstance(error, Failed) else error
        if self.failure is not None:
            attach_close_error(self.failure, error)
            return
        self.failure = error
        self.cancel()
        self._stop_inputs(Failed(error), lambda _end: self._settle(error, partial))

    def crash(self, error: Exception) -> None:
        """Fail the module: fail its inputs, then end its outputs, both with the error."""
        if self.failure is not None:
            attach_close_error(self.failure, error)
            return
        self.failure = error
        self.cancel()
        self._stop_inputs(Failed(error), lambda _end: self._give_up(error))

    def _settled(self, error: Exception | None, result: Any) -> None:
        super()._settled(error, result)
        if self.on_result is not None:
            on_result, self.on_result = self.on_result, None
            on_result(error, result)

    def _stop_inputs(self, cause: Ending, then: Callable[[Ending], object]) -> None:
        """Stop all inputs, and call `then(end)` once all have confirmed. Also runs in a failed module."""

        async def stopping() -> None:
            then(await self.stop_inputs(cause))

        Thread(stopping(), self.run.record_failure).start()
