"""`async_map`, `paramap`: several calls at once, one per value."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.pull.argument_checks import check_integer, refuse_async
from headrace.pull.edge import PullEdge
from headrace.pull.errors import CallCancelled
from headrace.pull.module_context import Module
from headrace.pull.modules import PullTransformer
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, End, Read, attach_close_error, failure

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future


Done = Callable[[Exception | None, Any], object]
"""`done(error, result)`: reports the outcome of a call."""

Start = Callable[[Any, Done], Cancellable]
"""`start(value, done)` begins a call; `done(error, result)` is called once, later, also after `cancel`."""


@dataclass(eq=False, slots=True)
class _Call:
    """Value with the result of its call, once done."""

    value: Any
    done: bool = False
    error: Exception | None = None
    result: Any = None


class ConcurrentCalls:
    """Running transformer. Each ask is passed upstream at once; values wait while `width` calls are running.

    ordered: emit results in the order of the values; otherwise in order of completion.
    cancel:  cancel running calls when the stream stops; otherwise they are awaited. The module confirms only
             once all are over.

    A failed call has its place among the results: the results before it are answered, then upstream is failed
    with the error, and once the other calls are over, downstream gets it.
    """

    def __init__(
        self, edge: PullEdge, start: Start, width: int, *, ordered: bool, cancel: bool = False
    ) -> None:
        self._edge = edge
        self._start = start
        self._width = width
        self._ordered = ordered
        self._cancel = cancel
        self._asks: deque[AnswerTo] = deque()
        self._waiting: deque[_Call] = deque()
        self._running: dict[_Call, Cancellable | None] = {}
        self._line: deque[_Call] = deque()  # the next answers: all calls, or if unordered, those done
        self._failing = False
        self._end: End | None = None  # end of upstream by itself
        self._cause: End | None = None  # reason for closing
        self._closed: End | None = None  # end confirmed by upstream

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is not None:
            if self._cause is None:  # otherwise a call has failed, and waiting asks get the failure first
                if isinstance(self._end, Exception):
                    self._asks[0](self._end)  # distinguishes it from a failure of closing
                self._asks.clear()
            self._asks.append(answer)
            self._close(abort)
        else:
            self._asks.append(answer)
            if self._cause is None and not self._failing:
                self._edge(None, self._got)

    def _got(self, end: End | None, value: Any = None, /) -> None:
        if self._cause is not None:
            return
        if end is not None:
            self._end = end
            self._answer()
            return
        call = _Call(value)
        self._waiting.append(call)
        if self._ordered:
            self._line.append(call)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._width and not self._failing:
            call = self._waiting.popleft()
            self._running[call] = None
            self._running[call] = self._start(call.value, partial(self._done, call))

    def _done(self, call: _Call, error: Exception | None, result: Any) -> None:
        del self._running[call]
        if self._cause is not None:
            self._note(error)
            self._confirm()
            return
        call.done, call.error, call.result = True, error, result
        self._failing = self._failing or error is not None
        if not self._ordered:
            self._line.append(call)
        self._begin()
        self._answer()

    def _answer(self) -> None:
        asks, line = self._asks, self._line
        while line and line[0].done:
            call = line.popleft()
            if call.error is not None:
                self._close(call.error)
                return
            asks.popleft()(None, call.result)
        if self._end is not None and not self._running:
            asks.popleft()(self._end)

    def _note(self, error: Exception | None) -> None:
        """Attach the error of a discarded value, if any, to the stream's error."""
        if error is not None and isinstance(self._cause, Exception):
            attach_close_error(self._cause, error)

    def _close(self, cause: End) -> None:
        if self._cause is not None:
            return
        self._cause = cause
        self._waiting.clear()
        for call in self._line:
            self._note(call.error)
        if self._cancel:
            for running in tuple(self._running.values()):
                if running is not None:
                    running.cancel()
        if self._end is not None:
            self._stopped(self._end)
        else:
            self._edge(cause, self._stopped)

    def _stopped(self, end: End | None, _value: Any = None, /) -> None:
        self._closed = end
        self._confirm()

    def _confirm(self) -> None:
        if self._closed is None or self._running:
            return
        end: End = self._closed
        if isinstance(self._cause, Exception):
            end = failure(self._cause, end)
        asks, self._asks = self._asks, deque()
        for answer in asks:
            answer(end)


def async_map(
    function: Callable[[Any], Awaitable[Any]], width: int = 1, *, ordered: bool = True, cancel: bool = False
) -> PullTransformer:
    """Apply `await function(value)` to each value, `width` at once.

    ordered: emit results in the order of the values; otherwise in order of completion.
    cancel:  cancel running calls when the stream stops; by default they are awaited, and their results
             dropped. Either way, an abort is confirmed once no call is running any more.

    Each ask immediately asks upstream once. Sinks keep as many asks in flight as the pipeline can work on: a
    chain of `k` works on `k` values at the same time. Done and errors of upstream follow the results of all
    values before them. An exception of the function fails upstream once the results before it are answered,
    and is answered when upstream has confirmed and the running calls are over, with their exceptions
    attached. An exception of a call that an abort waits for is dropped like a result, since downstream no
    longer wants that value.

    >>> from headrace.pull import collect, pull, values
    >>> async def double(x):
    ...     return 2 * x
    >>> pull(values([1, 2, 3]), async_map(double, width=2), collect()).run()
    [2, 4, 6]
    """
    check_integer("async_map", "width", width, least=1)

    def open(module: Module, edge: PullEdge) -> Read:
        start = partial(_AsyncCall, module, function)
        return ConcurrentCalls(edge, start, width, ordered=ordered, cancel=cancel).read

    return PullTransformer.of("async_map", open, width=width)


class _AsyncCall:
    """Task that reports its end even after cancellation, once its cleanup is done."""

    def __init__(
        self, module: Module, function: Callable[[Any], Awaitable[Any]], value: Any, done: Done
    ) -> None:
        self._module = module
        self._function = function
        self._value = value
        self._cancelled = False
        self._task: Cancellable | None = None
        module.spawn(self._run(), done)

    async def _run(self) -> Any:
        import asyncio

        if self._cancelled:
            return None
        self._task = asyncio.current_task()
        try:
            return await self._function(self._value)
        except asyncio.CancelledError:
            if self._cancelled:
                return None
            raise CallCancelled(
                f"a call of {self._module.name!r} was cancelled",
                where=[self._module.location],
                why="The function, or something it awaits, was cancelled; the pipeline did not cancel it.",
                fix="catch asyncio.CancelledError in the function; to stop the pipeline, abort it",
            ) from None

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


def paramap(
    function: Callable[[Any], Any],
    width: int,
    *,
    ordered: bool = True,
    executor: Executor | None = None,
) -> PullTransformer:
    """Apply a blocking `function(value)` to each value in a worker thread, `width` at once.

    executor: pool of the caller, for example of processes (the function and the values are then pickled),
              which is not shut down. By default, `width` threads are started at the first value.

    Asks, ends and errors are handled as by `async_map`. A running function cannot be cancelled: an abort is
    confirmed once it has returned; calls not yet started by the pool are cancelled. `width` has no default;
    without one, the original reads all of upstream at the first ask.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values(["b", "a"]), paramap(str.upper, width=2), collect()).run()
    ['B', 'A']
    """
    check_integer("paramap", "width", width, least=1)
    refuse_async("paramap", function, fix="async_map(function, width) awaits it", passes_on=True)

    def open(module: Module, edge: PullEdge) -> Read:
        from concurrent.futures import ThreadPoolExecutor

        pool = executor or ThreadPoolExecutor(width, thread_name_prefix="paramap")
        if executor is None:
            module.cancel_at_end(_Shutdown(pool))

        def start(value: Any, done: Done) -> Cancellable:
            future = pool.submit(function, value)
            resume = module.from_thread()
            future.add_done_callback(lambda future: resume(_finish, future, done))
            return future

        return ConcurrentCalls(edge, start, width, ordered=ordered, cancel=True).read

    return PullTransformer.of("paramap", open, width=width)


@dataclass(frozen=True)
class _Shutdown:
    pool: Executor

    def cancel(self) -> None:
        self.pool.shutdown(wait=False)


def _finish(future: Future[Any], done: Done) -> None:
    if future.cancelled():
        done(None, None)
        return
    error = future.exception()
    if error is None:
        done(None, future.result())
    elif isinstance(error, Exception):
        done(error, None)
    else:
        raise error
