"""`async_map`: apply a coroutine function to each value."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.pull.dataflow.edge import Edge, Requests
from headrace.pull.dataflow.messages import Answer, Ask, Ending, Failed, Port, Stream, Value
from headrace.pull.dataflow.module_threads import ModuleContext
from headrace.pull.dataflow.modules import Transformer
from headrace.pull.dataflow.variable import Variable
from headrace.pull.protocol import attach_close_error


def async_map(function: Callable[[Any], Coroutine[Any, Any, Any]], width: int = 1) -> Transformer:
    """Apply `await function(value)` to each value, `width` at once; results in the order of the values.

    Values and permits are streams: a thread takes one of each and starts the call, which returns the permit
    when it is over. An abort is confirmed once no call is running any more.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> async def double(x):
    ...     return 2 * x
    >>> pull(values([1, 2, 3]), async_map(double, width=2), collect()).run()
    [2, 4, 6]
    """

    async def thread(module: ModuleContext, requests: Requests, upstream: Edge) -> None:
        calls = _Calls(module, upstream, function, width)
        async for request in requests:
            if isinstance(request, Ask):
                calls.ask(request)
            else:
                calls.stop(request.cause)
                request.answer.bind(await calls.closed)

    return Transformer.of("async_map", thread, width=width)


class _Calls:
    """State of the running calls.

    waiting: unanswered asks of downstream. asked: the corresponding asks of upstream.
    permits: one for each call that may still start.
    running: variables bound at the end of each running call.
    ended:   end of upstream by itself.
    closing: reason for the end of the stream, once certain. closed: its final end.
    """

    def __init__(
        self,
        module: ModuleContext,
        upstream: Edge,
        function: Callable[[Any], Coroutine[Any, Any, Any]],
        width: int,
    ) -> None:
        self._module = module
        self._upstream = upstream
        self._function = function
        self._waiting: deque[Ask] = deque()
        self._asked: Port[tuple[Ask, Variable[Answer]]] = Port()
        self._permits: Port[None] = Port()
        self._running: deque[Variable[None]] = deque()
        self._ended: Ending | None = None
        self._failed = False
        self._closing: Ending | None = None
        self.closed: Variable[Ending] = Variable()
        module.thread(self._start(Stream(self._asked.tail), Stream(self._permits.tail)))
        for _ in range(width):
            self._permits.send(None)

    def ask(self, request: Ask) -> None:
        self._waiting.append(request)
        if self._closing is None and not self._failed:  # otherwise the end is certain, and answers it
            reply = self._upstream.ask()
            reply.when_bound(self._hear)
            self._asked.send((request, reply))

    def _hear(self, answer: Answer) -> None:
        if not isinstance(answer, Value) and self._closing is None:
            self._ended = self._ended or answer

    async def _start(self, asked: Stream[tuple[Ask, Variable[Answer]]], permits: Stream[None]) -> None:
        before: Variable[None] = Variable()
        before.bind(None)
        async for request, reply in asked:
            answer = await reply
            answered: Variable[None] = Variable()
            if isinstance(answer, Value):
                await permits.next()
                if self._failed or self._closing is not None:
                    return
                over = self._module.task(self._function(answer.value))
                self._module.thread(self._call(request, over, before, answered))
            else:
                self._module.thread(self._end(request, answer, before))
            before = answered

    async def _call(
        self, request: Ask, result: Variable[Any], before: Variable[None], answered: Variable[None]
    ) -> None:
        """Answer with the result once all earlier asks are answered."""
        over: Variable[None] = Variable()
        self._running.append(over)
        failure: Exception | None = None
        try:
            await result
        except Exception as error:
            failure = error
            self._failed = True
            self._note(error)
        while self._running and self._running[0].is_bound:
            self._running.popleft()
        over.bind(None)
        self._permits.send(None)
        await before
        if self._closing is not None:
            return
        if failure is None:
            self._waiting.popleft()
            request.answer.bind(Value(result.value))
            answered.bind(None)
        else:
            self.close(Failed(failure))
            request.answer.bind(await self.closed)

    async def _end(self, request: Ask, answer: Answer, before: Variable[None]) -> None:
        await before
        if self._closing is None:
            request.answer.bind(answer)

    def _note(self, error: Exception) -> None:
        """Attach an unwanted value's error, if any, to the stream's error."""
        if isinstance(self._closing, Failed):
            attach_close_error(self._closing.error, error)

    def stop(self, cause: Ending) -> None:
        """Stop the stream for downstream. A waiting ask is answered with an earlier failure of upstream."""
        if isinstance(self._ended, Failed) and self._closing is None:
            self._waiting[0].answer.bind(self._ended)
        self.close(cause)

    def close(self, cause: Ending) -> None:
        """Stop upstream, and wait for the running calls. Later causes have no effect."""
        if self._closing is None:
            self._closing = cause
            self._module.thread(self._close(cause))

    async def _close(self, cause: Ending) -> None:
        end: Any = self._ended or await self._upstream.stop(cause)
        for over in tuple(self._running):
            await over
        if isinstance(cause, Failed):
            end = Failed(attach_close_error(cause.error, end.error)) if isinstance(end, Failed) else cause
        self.closed.bind(end)
