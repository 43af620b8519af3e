"""Sinks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.pull.dataflow.edge import Edge
from penstock.pull.dataflow.messages import DONE, Ending, Failed, Value
from penstock.pull.dataflow.module import Module
from penstock.pull.dataflow.pieces import Sink


class Values:
    """`async for value in Values(edge)`: keeps as many requests in flight as are useful.

    end: how the stream ended; None before, and where the loop was left.
    """

    def __init__(self, upstream: Edge) -> None:
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


def drain(each: Callable[[Any], object] | None = None) -> Sink:
    """Reads to the end. each: called with each value; what it returns False for is the last that is read."""

    async def thread(module: Module, upstream: Edge) -> None:
        coming = Values(upstream)
        async for value in coming:
            if each is not None and each(value) is False:
                break
        _finish(module, coming.end, None)

    return Sink.of("drain", thread)


def for_each(function: Callable[[Any], object]) -> Sink:
    """`function(value)` for each value."""

    async def thread(module: Module, upstream: Edge) -> None:
        coming = Values(upstream)
        async for value in coming:
            function(value)
        _finish(module, coming.end, None)

    return Sink.of("for_each", thread)


def reduce(function: Callable[[Any, Any], Any], start: Any) -> Sink:
    """`function(so_far, value)` over all values, from `start`; that of a failed stream is `Run.partial`."""

    async def thread(module: Module, upstream: Edge) -> None:
        coming, so_far = Values(upstream), start
        async for value in coming:
            so_far = function(so_far, value)
        _finish(module, coming.end, so_far)

    return Sink.of("reduce", thread)


def collect() -> Sink:
    """All values, as a list. Where the stream fails, `Run.partial` holds those before.

    >>> from penstock.pull.dataflow import pull, values
    >>> pull(values("abc"), collect()).run()
    ['a', 'b', 'c']
    """

    async def thread(module: Module, upstream: Edge) -> None:
        coming = Values(upstream)
        found = [value async for value in coming]
        _finish(module, coming.end, found)

    return Sink.of("collect", thread)


def find(wanted: Callable[[Any], object], default: Any = None) -> Sink:
    """The first value for which `wanted(value)` is true; upstream is aborted then. Without one, `default`."""

    async def thread(module: Module, upstream: Edge) -> None:
        coming = Values(upstream)
        async for value in coming:
            if wanted(value):
                module.done(value)
                return
        _finish(module, coming.end, default)

    return Sink.of("find", thread)


def _finish(module: Module, end: Ending | None, result: Any) -> None:
    if isinstance(end, Failed):
        module.fail(end.error, result)
    else:
        assert end in (None, DONE)
        module.done(result)
