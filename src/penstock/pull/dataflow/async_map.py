"""async_map: a coroutine function of each value."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.pull.dataflow.edge import Edge, Requests
from penstock.pull.dataflow.messages import Answer, Ask, Ending, Failed, Value
from penstock.pull.dataflow.module import Module
from penstock.pull.dataflow.pieces import Transformer
from penstock.pull.dataflow.variable import Variable
from penstock.pull.protocol import attach


def async_map(function: Callable[[Any], Coroutine[Any, Any, Any]], width: int = 1) -> Transformer:
    """`await function(value)` for each value, `width` of them at once; results in the order of the values.

    Each ask has a thread. It waits for its value, for the call that is `width` before its own, and for the
    answer before its own; three variables say when. An abort is confirmed when no call runs any more.

    >>> from penstock.pull.dataflow import collect, pull, values
    >>> async def double(x):
    ...     return 2 * x
    >>> pull(values([1, 2, 3]), async_map(double, width=2), collect()).run()
    [2, 4, 6]
    """

    async def thread(module: Module, requests: Requests, upstream: Edge) -> None:
        calls = _Calls(module, upstream, function, width)
        async for request in requests:
            if isinstance(request, Ask):
                calls.ask(request)
            else:
                calls.close(request.cause)
                request.answer.bind(await calls.closed)

    return Transformer.of("async_map", thread, width=width)


class _Calls:
    """called: of the asks whose calls may be under way, what is bound when they are not.

    failed:  the first error of a call; no further one is made.
    closing: why it ends, from when that is certain. closed: how it ended.
    """

    def __init__(
        self,
        module: Module,
        upstream: Edge,
        function: Callable[[Any], Coroutine[Any, Any, Any]],
        width: int,
    ) -> None:
        self._module = module
        self._upstream = upstream
        self._function = function
        self._called: deque[Variable[None]] = deque()
        self._free: deque[Variable[None]] = deque((_bound() for _ in range(width)), maxlen=width)
        self._before = _bound()
        self._failed = False
        self._closing: Ending | None = None
        self.closed: Variable[Ending] = Variable()

    def ask(self, request: Ask) -> None:
        if self._closing is not None:
            return
        called: Variable[None] = Variable()
        answered: Variable[None] = Variable()
        free, before = self._free[0], self._before
        self._free.append(called)
        self._before = answered
        self._called.append(called)
        while self._called[0].is_bound:
            self._called.popleft()
        self._module.thread(self._call(request, self._upstream.ask(), free, called, before, answered))

    async def _call(
        self,
        request: Ask,
        reply: Variable[Answer],
        free: Variable[None],
        called: Variable[None],
        before: Variable[None],
        answered: Variable[None],
    ) -> None:
        answer = await reply
        await free
        mine: Exception | None = None
        if isinstance(answer, Value) and not self._failed and self._closing is None:
            try:
                answer = Value(await self._module.task(self._function(answer.value)))
            except Exception as error:
                mine = error
                self._failed = True
                self._note(error)
        called.bind(None)
        await before
        if self._closing is None:
            if mine is None:
                request.answer.bind(answer)
            else:
                self.close(Failed(mine))
                request.answer.bind(await self.closed)
        answered.bind(None)

    def close(self, cause: Ending) -> None:
        """Stop upstream, and wait for the calls that are under way. Later causes change nothing."""
        if self._closing is None:
            self._closing = cause
            self._module.thread(self._close(cause))

    def _note(self, error: Exception) -> None:
        """An error of a value that nobody wants any more is told with that of the stream, if it has one."""
        if isinstance(self._closing, Failed):
            attach(self._closing.error, error)

    async def _close(self, cause: Ending) -> None:
        end: Any = cause if self._upstream.ended is not None else await self._upstream.stop(cause)
        for called in tuple(self._called):
            await called
        if isinstance(cause, Failed):
            end = Failed(attach(cause.error, end.error)) if isinstance(end, Failed) else cause
        self.closed.bind(end)


def _bound() -> Variable[None]:
    variable: Variable[None] = Variable()
    variable.bind(None)
    return variable
