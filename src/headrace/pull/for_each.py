"""`for_each`: call a function for each value, and await the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable, iscoroutine
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import SynchronousCheck, check_integer
from headrace.pull.edge import PullEdge
from headrace.pull.errors import CallCancelled
from headrace.pull.module_context import Module
from headrace.pull.modules import PullSink
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import End, attach_close_error
from headrace.pull.sinks import WorkerLoop

ASYNC_FOR = "a coroutine function, in which `async for` has the generator run"


def for_each(function: Callable[[Any], object], *, width: int = 1, cancel: bool = False) -> PullSink:
    """Call `function(value)` for each value, and await the result if it is awaitable.

    Calls start in the order of the values, up to `width` at once. The result is None, once all calls are
    done.

    An exception of a call fails upstream and the run. Then, or if the stream fails or is stopped, values
    waiting for their call are dropped, and the sink ends once no call is running any more.

    width:  limit on concurrent calls. The number of requested values is limited to that, or to the number
            that keeps all modules upstream busy.
    cancel: cancel running calls when the stream fails or is stopped; by default they are awaited.

    >>> import asyncio
    >>> from headrace.pull import pull, values
    >>> async def store(row):
    ...     await asyncio.sleep(0)
    ...     print("stored", row)
    >>> pull(values([1, 2]), for_each(store)).run()
    stored 1
    stored 2
    """
    check_integer("for_each", "width", width, least=1)
    check = SynchronousCheck("a function given to for_each()", ASYNC_FOR, SourceLocation.of_caller())

    def open(module: Module, edge: PullEdge) -> None:
        _Calling(module, edge, function, width, cancel, check).start()

    return PullSink.of("for_each", open)


class _Calling:
    """Running `for_each`."""

    def __init__(
        self,
        module: Module,
        edge: PullEdge,
        function: Callable[[Any], object],
        width: int,
        cancel: bool,
        check: SynchronousCheck,
    ) -> None:
        self._module = module
        self._check = check
        self._function = function
        self._working = WorkerLoop(edge, self._call, self._over, width=width)
        self._calls: set[WaitingTask] = set()
        self._cancel = cancel
        self._closed: Callable[..., object] | None = None
        self._failure: Exception | None = None

    def start(self) -> None:
        self._module.closing(self._close)
        self._working.start()

    def _call(self, value: Any, finished: Callable[[], None]) -> None:
        answer = self._function(value)
        if not isawaitable(answer):
            self._check(answer)
            finished()
            return

        def done(error: Exception | None) -> None:
            self._calls.discard(call)
            if error is not None:
                self._failed(error)
            elif self._closed is None:
                self._module.guard(finished)
            self._look()

        call = WaitingTask(self._module, answer, done)
        self._calls.add(call)

    def _failed(self, error: Exception) -> None:
        if self._closed is None and self._module.failure is None:
            self._stop()
            self._module.fail(error)
        else:
            self._failure = error if self._failure is None else attach_close_error(self._failure, error)

    def _over(self, end: End) -> None:
        if end is True:
            self._module.done()
        else:
            self._stop()
            self._module.fail(end)

    def _stop(self) -> None:
        self._working.stop()
        if self._cancel:
            for call in tuple(self._calls):
                call.cancel()

    def _close(self, _error: Exception | None, closed: Callable[..., object]) -> None:
        self._closed = closed
        self._stop()
        self._look()

    def _look(self) -> None:
        if self._closed is not None and not self._calls:
            closed, self._closed = self._closed, None
            closed(self._failure)


class WaitingTask:
    """Task that is awaited even after cancellation, and after the module has failed."""

    def __init__(
        self, module: Module, answer: Awaitable[Any], done: Callable[[Exception | None], object]
    ) -> None:
        self._module = module
        self._runtime = module.run.runtime
        self._done = done
        self._begun = False
        self._cancelled = False
        self._finished = False
        self._answer = answer
        self._task: Cancellable = self._runtime.spawn(self._run(), lambda error, _result: self._finish(error))

    async def _run(self) -> None:
        import asyncio

        self._begun = True
        failure: Exception | None = None
        try:
            await self._answer
        except asyncio.CancelledError:
            if not self._cancelled:
                failure = self._cancelled_elsewhere()
        except Exception as error:
            failure = error
        # Answered here, because a cancelled task gives no answer.
        self._runtime.enter(self._finish, failure)

    def _cancelled_elsewhere(self) -> CallCancelled:
        return CallCancelled(
            f"a call of {self._module.name!r} was cancelled",
            where=[self._module.location],
            why="The pipeline had not cancelled it: the function, or what it awaits, was elsewhere.",
            fix="catch asyncio.CancelledError in the function, or stop the pipeline instead",
        )

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._task.cancel()
            if not self._begun:  # such a task ends without an answer
                if iscoroutine(self._answer):
                    self._answer.close()
                self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        if not self._finished:
            self._finished = True
            self._done(error)
