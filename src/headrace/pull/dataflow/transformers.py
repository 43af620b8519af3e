"""Transformers of single values: `map`, `filter`, `skip`, `unique`, `take`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from headrace.pull import modules as callback
from headrace.pull.dataflow.edge import Edge, Requests
from headrace.pull.dataflow.messages import Answer, Ask, Ending, Value
from headrace.pull.dataflow.module_threads import ModuleContext
from headrace.pull.dataflow.modules import Transformer
from headrace.pull.dataflow.variable import Variable
from headrace.pull.fusion import Kernel
from headrace.pull.transformers import elementwise
from headrace.pull.transformers.unique import unique as unique_values


def map(function: Callable[[Any], Any]) -> Transformer:
    """Apply `function(value)` to each value, in order. Its exceptions fail upstream, then downstream.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> pull(values([1, 2, 3]), map(lambda x: x * x), collect()).run()
    [1, 4, 9]
    """
    return _with_kernel_of(elementwise.map(function))


def filter(keep: Callable[[Any], object]) -> Transformer:
    """Keep the values for which `keep(value)` is true."""
    return _with_kernel_of(elementwise.filter(keep))


def skip(count: int) -> Transformer:
    """Drop the first `count` values."""
    return _with_kernel_of(elementwise.skip(count))


def unique(key: Callable[[Any], Hashable] | None = None) -> Transformer:
    """Keep the first of the values with equal keys. By default, a value is its own key."""
    return _with_kernel_of(unique_values(key))


def _with_kernel_of(transformer: callback.Transformer) -> Transformer:
    """Drive the kernel of a synchronous callback-form transformer by requests of this form."""
    (part,) = transformer.then
    assert isinstance(part, callback.KernelPart)

    async def thread(module: ModuleContext, requests: Requests, upstream: Edge) -> None:
        relay = _Relay(module, upstream, part.kernel())
        async for request in requests:
            if isinstance(request, Ask):
                relay.ask(request)
            else:
                relay.leave()
                module.when(upstream.stop(request.cause), request.answer.bind)
                return

    return Transformer.of(part.name, thread)


class _Relay:
    """Relay between pending asks from downstream and values ready for the next asks."""

    def __init__(self, module: ModuleContext, upstream: Edge, kernel: Kernel) -> None:
        self._module = module
        self._upstream = upstream
        self._kernel = kernel
        self._asks: deque[Ask] = deque()
        self._ready: deque[Any] = deque()
        self._asked = 0
        self._end: Ending | None = None
        self._failure: Exception | None = None

    def ask(self, request: Ask) -> None:
        self._asks.append(request)
        self._serve()

    def leave(self) -> None:
        """Stop answering: the edge answers with the end."""
        self._asks.clear()
        self._ready.clear()

    def _got(self, answer: Answer) -> None:
        self._asked -= 1
        if not isinstance(answer, Value):
            self._end = answer
        elif self._failure is None:
            try:
                self._ready.extend(self._kernel((answer.value,)))
            except Exception as error:
                self._failure = error
        self._serve()

    def _serve(self) -> None:
        while self._asks and self._ready:
            self._asks.popleft().answer.bind(Value(self._ready.popleft()))
        if not self._asks:
            return
        if self._failure is not None:
            raise self._failure
        if self._end is not None:
            self._asks.popleft().answer.bind(self._end)
            return
        while self._asked < len(self._asks):
            self._asked += 1
            self._module.when(self._upstream.ask(), self._got)


def take(count: int) -> Transformer:
    """Keep the first `count` values (0 or less: none), and ask upstream for no more.

    The ask after the last value aborts upstream, once; any error of closing is its answer.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> pull(values([1, 2, 3]), take(2), collect()).run()
    [1, 2]
    """

    async def thread(module: ModuleContext, requests: Requests, upstream: Edge) -> None:
        left, ends = count, False
        last: Variable[Answer] = Variable()
        last.bind(Value(None))
        async for request in requests:
            if not isinstance(request, Ask):
                module.when(upstream.stop(request.cause), request.answer.bind)
                return
            if left > 0:
                left -= 1
                last = upstream.ask()
                module.when(last, request.answer.bind)
            elif not ends:  # The end answers all later asks.
                ends = True
                module.thread(_stop_after(last, upstream, request))

    return Transformer.of("take", thread)


async def _stop_after(last: Variable[Answer], upstream: Edge, request: Ask) -> None:
    """Stop upstream after its last value, since an abort would drop pending values."""
    if isinstance(await last, Value):
        request.answer.bind(await upstream.stop())
