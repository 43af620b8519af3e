"""Dataflow threads, and the module in a running pipeline that owns them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from headrace.errors import SourceLocation
from headrace.pull import module_context
from headrace.pull.dataflow.edge import (
    Answer,
    DataflowEdge,
    DataflowPort,
    DataflowStream,
    Ending,
    Failed,
    ending,
    to_callback_end,
)
from headrace.pull.dataflow.variable import DataflowVariable
from headrace.pull.errors import ForeignAwait, NotAModule
from headrace.pull.protocol import End, attach_close_error

if TYPE_CHECKING:
    from headrace.pull.pipeline_run import Run


class Thread:
    """Coroutine that is suspended when it awaits an unbound variable, and resumed once it is bound.

    failed: called with an exception of the coroutine. over: called with the thread when it has returned.
    """

    __slots__ = ("_coroutine", "_failed", "_over", "_runs", "_stopped", "_wakes")

    def __init__(
        self,
        coroutine: Coroutine[DataflowVariable[Any], Any, Any],
        failed: Callable[[Exception], object],
        over: Callable[[Thread], object] | None = None,
    ) -> None:
        self._coroutine = coroutine
        self._failed = failed
        self._over = over
        self._runs = False
        self._stopped = False
        self._wakes = self._wake  # one bound method instead of one per value

    def start(self) -> None:
        """Run the thread for the first time."""
        self._wake(None)

    def cancel(self) -> None:
        """End the thread without resuming it; the `finally` blocks still run."""
        self._stopped = True
        if not self._runs:
            self._coroutine.close()

    def _wake(self, _value: object) -> None:
        if self._stopped:
            return
        self._runs = True
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration:
            self._stopped = True
            if self._over is not None:
                self._over(self)
            return
        except Exception as error:
            self._stopped = True
            self._failed(error)
            return
        finally:
            self._runs = False
        if self._stopped:
            self._coroutine.close()
        elif isinstance(waits_for, DataflowVariable):  # pyright: ignore[reportUnnecessaryIsInstance]
            waits_for.when_bound(self._wakes, self._wakes)
        else:
            self._await_nothing_else()

    def _await_nothing_else(self) -> None:
        running = cast("CoroutineType[Any, Any, Any]", self._coroutine)
        name, frame = running.cr_code.co_name, running.cr_frame
        assert frame is not None, "it is suspended"
        location = SourceLocation(frame.f_code.co_filename, frame.f_lineno, name)
        self._stopped = True
        self._coroutine.close()
        self._failed(
            ForeignAwait(
                f"the dataflow thread {name!r} awaits something other than a variable",
                where=[location],
                why="A dataflow thread resumes when a variable is bound; no event loop runs it.",
                fix="await module.task(coroutine), which is a variable of the coroutine's result",
            )
        )


T = TypeVar("T")

ResultListener = Callable[[Exception | None, Any], object]
"""Callback for a sink's result: `on_result(None, result)`, or `on_result(error, partial)`."""


class DataflowOpenable(Protocol):
    """Interface of a source to open; see `headrace.pull.dataflow.modules.Source`."""

    def open_in(self, run: Run) -> DataflowEdge: ...


class ModuleContext(module_context.Module):
    """Context that the threads of a module use.

    An exception in any of its threads fails the module: its other threads are stopped and its
    inputs failed. Once these have confirmed, its outputs end with the exception.
    """

    on_result: ResultListener | None = None
    """Receiver of the result of a sink within a callback-form module, in place of the run."""

    def begin(self, thread: Callable[..., Coroutine[DataflowVariable[Any], Any, Any]], *of: Any) -> None:
        """Start the module's first thread, `thread(*of)`. Exceptions, even in the call, fail the module."""
        self.guard(lambda: self.thread(thread(*of)))

    def thread(self, coroutine: Coroutine[DataflowVariable[Any], Any, Any]) -> Thread:
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

    def when(self, variable: DataflowVariable[T], then: Callable[[T], object]) -> None:
        """Start a thread that calls `then(value)` when the variable is bound."""
        variable.when_bound(lambda value: self.guard(then, value), self.crash)

    def task(self, coroutine: Coroutine[Any, Any, T]) -> DataflowVariable[T]:
        """Run a coroutine in the event loop, and return the variable of its result."""
        result: DataflowVariable[T] = DataflowVariable()

        def done(error: Exception | None, value: Any) -> None:
            if error is None:
                result.bind(value)
            else:
                result.fail(error)

        self.spawn(coroutine, done)
        return result

    def after(self, seconds: float) -> DataflowVariable[None]:
        """Return a variable that is bound to None after the given seconds."""
        passed: DataflowVariable[None] = DataflowVariable()
        self.later(seconds, passed.bind, None)
        return passed

    def read(self, source: DataflowOpenable) -> DataflowEdge:
        """Open `source` as a further input of this module."""
        edge = source.open_in(self.run)
        self.connect(edge)
        return edge

    async def stop_inputs(self, cause: Ending | End) -> Ending:
        """Stop all inputs at once, wait for them, and return the first error or done."""
        first = ending(cause)
        port: DataflowPort[Answer] = DataflowPort()
        answers = DataflowStream(port.tail)
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
    def reading(self) -> list[DataflowEdge]:
        """Open inputs of this form, whose end has not been delivered yet, in the order of opening."""
        return [edge for edge in self.inputs if isinstance(edge, DataflowEdge) and not edge.end_delivered]

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
