"""Sources of given or computed values, and sinks: `drain`, `for_each`, `reduce`, `collect`, `find`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from inspect import isawaitable
from itertools import count as _integers
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import AWAIT_BEFORE, SynchronousCheck, refuse_async, synchronous_check
from headrace.pull.dataflow.edge import (
    DONE,
    Answer,
    Ask,
    DataflowEdge,
    DataflowPort,
    DataflowStream,
    Done,
    Ending,
    Failed,
    Requests,
    Value,
)
from headrace.pull.dataflow.module_threads import ModuleContext
from headrace.pull.dataflow.modules import DataflowSink, DataflowSource
from headrace.pull.dataflow.variable import DataflowVariable
from headrace.pull.for_each import ASYNC_FOR, WaitingTask
from headrace.pull.sources import close_generator, iteration_starter


def values(items: Iterable[Any] = ()) -> DataflowSource:
    """Emit the items of a collection, in order.

    >>> from headrace.pull.dataflow import collect, pull
    >>> pull(values([1, 2, 3]), collect()).run()
    [1, 2, 3]
    """
    return _iterating("values", iteration_starter(items, "values"))


def count(last: int | None = None) -> DataflowSource:
    """Emit 0, 1, 2, ... up to and including `last`, or forever without it."""
    return _iterating("count", lambda: _integers() if last is None else iter(range(last + 1)))


def infinite(make: Callable[[], Any]) -> DataflowSource:
    """Emit `make()` for each ask, without end."""
    refuse_async("infinite", make, fix="as_dataflow(iterate(asynchronous_generator()))", passes_on=True)
    return _iterating("infinite", lambda: (make() for _ in _integers()))


def once(value: Any) -> DataflowSource:
    """Emit one value."""
    return _iterating("once", lambda: iter((value,)))


def empty() -> DataflowSource:
    """Emit no values, and end at the first ask."""
    return _iterating("empty", lambda: iter(()))


def error(cause: Exception) -> DataflowSource:
    """Answer every request, even an abort, with this error."""
    failed = Failed(cause)

    async def thread(_module: ModuleContext, requests: Requests) -> None:
        async for request in requests:
            request.answer.bind(failed)

    return DataflowSource.of("error", thread)


_END: Any = object()


def _iterating(name: str, begin: Callable[[], Iterator[Any]]) -> DataflowSource:
    async def thread(_module: ModuleContext, requests: Requests) -> None:
        items: Iterator[Any] | None = None
        async for request in requests:
            if not isinstance(request, Ask):
                close_generator(items)
                request.answer.bind(request.cause)
                continue
            items = items or begin()
            value = next(items, _END)
            request.answer.bind(DONE if value is _END else Value(value))

    return DataflowSource.of(name, thread)


class Values:
    """Iterate over an edge with `async for`, keeping as many requests in flight as are useful.

    end: how the stream ended; None before that, and if the loop is left early.
    """

    def __init__(self, upstream: DataflowEdge) -> None:
        self._upstream = upstream
        self._asked = deque(upstream.ask() for _ in range(upstream.window - 1))
        self.end: Ending | None = None

    def __aiter__(self) -> Values:
        return self

    async def __anext__(self) -> Any:
        self._asked.append(self._upstream.ask())
        answer = await self._asked.popleft()
        if isinstance(answer, Value):
            return answer.value
        self.end = answer
        raise StopAsyncIteration


def drain(each: Callable[[Any], object] | None = None) -> DataflowSink:
    """Read to the end. each: called with each value; returning False makes it the last value read."""
    if each is not None:
        each = synchronous_check("drain", each, fix="for_each(function) awaits it").calling(each)

    async def thread(module: ModuleContext, upstream: DataflowEdge) -> None:
        coming = Values(upstream)
        async for value in coming:
            if each is not None and each(value) is False:
                break
        _finish(module, coming.end, None)

    return DataflowSink.of("drain", thread)


def for_each(function: Callable[[Any], object]) -> DataflowSink:
    """Call `function(value)` for each value in turn, awaiting the result if it is awaitable.

    An exception of a call fails upstream and the run. If the stream fails or is stopped during a call, the
    call continues, and the sink ends when it is over.

    >>> from headrace.pull.dataflow import pull, values
    >>> async def store(row):
    ...     print("stored", row)
    >>> pull(values([1, 2]), for_each(store)).run()
    stored 1
    stored 2
    """
    check = SynchronousCheck("a function given to for_each()", ASYNC_FOR, SourceLocation.of_caller())

    async def thread(module: ModuleContext, upstream: DataflowEdge) -> None:
        await _ForEach(module, upstream, function, check).work()

    return DataflowSink.of("for_each", thread)


class _ForEach:
    """State of a reading and a working thread, separate so that an end is noticed during a call.

    over: bound when no call is running, to the error of the last call.
    """

    def __init__(
        self,
        module: ModuleContext,
        upstream: DataflowEdge,
        function: Callable[[Any], object],
        check: SynchronousCheck,
    ) -> None:
        self._module = module
        self._upstream = upstream
        self._function = function
        self._check = check
        self._asked: DataflowPort[DataflowVariable[Answer]] = DataflowPort()
        self._came: DataflowPort[Value | Done] = DataflowPort()
        self._ended = False
        self._over: DataflowVariable[Exception | None] = DataflowVariable()
        self._over.bind(None)
        module.closing(lambda _error, closed: self._over.when_bound(closed))

    def _ask(self) -> None:
        self._asked.send(self._upstream.ask())

    async def _read(self, asked: DataflowStream[DataflowVariable[Answer]]) -> None:
        async for reply in asked:
            answer = await reply
            if isinstance(answer, Failed):
                self._module.fail(answer.error)
                return
            self._ended = not isinstance(answer, Value)
            self._came.send(answer)
            if self._ended:
                return

    async def work(self) -> None:
        came = DataflowStream(self._came.tail)
        self._module.thread(self._read(DataflowStream(self._asked.tail)))
        for _ in range(self._upstream.window):
            self._ask()
        while isinstance(answer := await came.next(), Value):
            await self._call(self._function(answer.value))
            if not self._ended:
                self._ask()
        self._module.done()

    async def _call(self, returned: object) -> None:
        if isawaitable(returned):
            self._over = DataflowVariable()
            WaitingTask(self._module, returned, self._over.bind)
            failure = await self._over
            if failure is not None:
                raise failure
        elif returned is not None:
            self._check(returned)


def reduce(function: Callable[[Any, Any], Any], start: Any) -> DataflowSink:
    """Fold all values by `function(so_far, value)`, from `start`; the partial result is `Run.partial`."""
    function = synchronous_check("reduce", function, fix=AWAIT_BEFORE).calling(function)

    async def thread(module: ModuleContext, upstream: DataflowEdge) -> None:
        coming, so_far = Values(upstream), start
        async for value in coming:
            so_far = function(so_far, value)
        _finish(module, coming.end, so_far)

    return DataflowSink.of("reduce", thread)


def collect() -> DataflowSink:
    """Collect all values in a list. If the stream fails, `Run.partial` holds the values before the error.

    >>> from headrace.pull.dataflow import pull, values
    >>> pull(values("abc"), collect()).run()
    ['a', 'b', 'c']
    """

    async def thread(module: ModuleContext, upstream: DataflowEdge) -> None:
        coming = Values(upstream)
        found = [value async for value in coming]
        _finish(module, coming.end, found)

    return DataflowSink.of("collect", thread)


def find(wanted: Callable[[Any], object], default: Any = None) -> DataflowSink:
    """Find the first value for which `wanted(value)` is true, then abort upstream; `default` without one."""
    wanted = synchronous_check("find", wanted, fix=AWAIT_BEFORE).calling(wanted)

    async def thread(module: ModuleContext, upstream: DataflowEdge) -> None:
        coming = Values(upstream)
        async for value in coming:
            if wanted(value):
                module.done(value)
                return
        _finish(module, coming.end, default)

    return DataflowSink.of("find", thread)


def _finish(module: ModuleContext, end: Ending | None, result: Any) -> None:
    if isinstance(end, Failed):
        module.fail(end.error, result)
    else:
        assert end in (None, DONE)
        module.done(result)
