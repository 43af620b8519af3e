"""Dataflow-thread module in a running pipeline: its threads, inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.pull import module_context
from headrace.pull.dataflow.edge import Edge
from headrace.pull.dataflow.messages import Answer, Ending, Failed, ending, to_callback_end
from headrace.pull.dataflow.stream import Port, Stream
from headrace.pull.dataflow.thread import Thread
from headrace.pull.dataflow.variable import Variable
from headrace.pull.errors import NotAModule
from headrace.pull.protocol import End, attach_close_error

if TYPE_CHECKING:
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
        return [edge for edge in self.inputs if isinstance(edge, Edge) and not edge.end_delivered]

    # -- the end --------------------------------------------------------------------------------

    def fail(self, error: Exception | Failed, partial: Any = None) -> None:
        """For sinks: report that the stream failed; see `Module.fail`."""
        super().fail(error.error if isinstance(error, Failed) else error, partial)

    def _settled(self, error: Exception | None, result: Any) -> None:
        super()._settled(error, result)
        if self.on_result is not None:
            on_result, self.on_result = self.on_result, None
            on_result(error, result)

    def _stop_inputs(self, cause: End, then: Callable[[End], object]) -> None:
        async def stopping() -> None:
            then(to_callback_end(await self.stop_inputs(cause)))

        Thread(stopping(), self.run.record_failure).start()  # also runs in a failed module
