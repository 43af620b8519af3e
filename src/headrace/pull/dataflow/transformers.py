"""Transformers of dataflow threads: of single values, `take`, of streams of streams, and `async_map`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any

from headrace.pull import elementwise
from headrace.pull import modules as callback
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
    ending,
)
from headrace.pull.dataflow.module_threads import ModuleContext
from headrace.pull.dataflow.modules import DataflowSource, DataflowTransformer, Running
from headrace.pull.dataflow.variable import DataflowVariable
from headrace.pull.elementwise import unique as unique_values
from headrace.pull.fusion import Kernel
from headrace.pull.protocol import End, attach_close_error


def map(function: Callable[[Any], Any]) -> DataflowTransformer:
    """Apply `function(value)` to each value, in order. Its exceptions fail upstream, then downstream.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> pull(values([1, 2, 3]), map(lambda x: x * x), collect()).run()
    [1, 4, 9]
    """
    return _with_kernel_of(elementwise.map(function))


def filter(keep: Callable[[Any], object]) -> DataflowTransformer:
    """Keep the values for which `keep(value)` is true."""
    return _with_kernel_of(elementwise.filter(keep))


def skip(count: int) -> DataflowTransformer:
    """Drop the first `count` values."""
    return _with_kernel_of(elementwise.skip(count))


def unique(key: Callable[[Any], Hashable] | None = None) -> DataflowTransformer:
    """Keep the first of the values with equal keys. By default, a value is its own key."""
    return _with_kernel_of(unique_values(key))


def _with_kernel_of(transformer: callback.PullTransformer) -> DataflowTransformer:
    """Drive the kernel of a synchronous callback-form transformer with requests of this form."""
    (part,) = transformer.then
    assert isinstance(part, callback.KernelPart)

    async def thread(module: ModuleContext, requests: Requests, upstream: DataflowEdge) -> None:
        relay = _Relay(module, upstream, part.kernel())
        async for request in requests:
            if isinstance(request, Ask):
                relay.ask(request)
            else:
                relay.leave()
                module.when(upstream.stop(request.cause), request.answer.bind)
                return

    return DataflowTransformer.of(part.name, thread)


class _Relay:
    """Relay between pending asks from downstream and values ready for the next asks."""

    def __init__(self, module: ModuleContext, upstream: DataflowEdge, kernel: Kernel) -> None:
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


def take(count: int) -> DataflowTransformer:
    """Keep the first `count` values (0 or less: none), and ask upstream for no more.

    The ask after the last value aborts upstream, once; any error of closing is its answer.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> pull(values([1, 2, 3]), take(2), collect()).run()
    [1, 2]
    """

    async def thread(module: ModuleContext, requests: Requests, upstream: DataflowEdge) -> None:
        left, ends = count, False
        last: DataflowVariable[Answer] = DataflowVariable()
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

    return DataflowTransformer.of("take", thread)


async def _stop_after(last: DataflowVariable[Answer], upstream: DataflowEdge, request: Ask) -> None:
    """Stop upstream after its last value, since an abort would drop pending values."""
    if isinstance(await last, Value):
        request.answer.bind(await upstream.stop())


Asks = DataflowStream[Ask]


async def working(module: ModuleContext, requests: Requests, work: Callable[[Asks], Running]) -> None:
    """Run `work(asks)` to answer all asks, one after another, until the stream is stopped.

    Then the thread is abandoned, and the module's inputs are stopped, last opened first.
    """
    port: DataflowPort[Ask] = DataflowPort()
    worker = module.thread(work(DataflowStream(port.tail)))
    async for request in requests:
        if isinstance(request, Ask):
            port.send(request)
        else:
            worker.cancel()
            request.answer.bind(await stop_all(module, request.cause))


async def stop_all(module: ModuleContext, cause: Ending | End) -> Ending:
    """Stop all inputs one after another, last opened first. Returns the first error, or done."""
    first = ending(cause)
    for edge in reversed(module.reading):
        answer: Any = await edge.stop(cause)
        if isinstance(answer, Failed):
            first = (
                Failed(attach_close_error(first.error, answer.error)) if isinstance(first, Failed) else answer
            )
    return first


async def answer_asks(ask: Ask, asks: Asks, answered: Callable[[], Any]) -> tuple[Ask, Answer]:
    """Answer asks, from `ask` on, with the values of `await answered()`.

    Returns the ask left without an answer, and the message that was not a value.
    """
    while isinstance(answer := await answered(), Value):
        ask.answer.bind(answer)
        ask = await asks.next()
    return ask, answer


def flatten() -> DataflowTransformer:
    """Concatenate the contents of each value: a source of this form, or a collection. One level only.

    An error of an inner source aborts upstream. An abort stops the inner source first.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> pull(values([[1, 2], values([3]), []]), flatten(), collect()).run()
    [1, 2, 3]
    """

    def thread(module: ModuleContext, requests: Requests, upstream: DataflowEdge) -> Running:
        async def work(asks: Asks) -> None:
            ask = await asks.next()
            while isinstance(outer := await upstream.ask(), Value):
                if not isinstance(outer.value, DataflowSource):
                    for value in outer.value:
                        ask.answer.bind(Value(value))
                        ask = await asks.next()
                    continue
                ask, end = await answer_asks(ask, asks, module.read(outer.value).ask)
                if isinstance(end, Failed):
                    outer = _first(end, await upstream.stop())
                    break
            ask.answer.bind(outer)

        return working(module, requests, work)

    return DataflowTransformer.of("flatten", thread)


def cat(sources: Iterable[DataflowSource]) -> DataflowSource:
    """Concatenate the values of several sources. Each is opened when the one before is done.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> pull(cat([values([1, 2]), values([3])]), collect()).run()
    [1, 2, 3]
    """

    def thread(module: ModuleContext, requests: Requests) -> Running:
        async def work(asks: Asks) -> None:
            ask, end = await asks.next(), DONE
            for source in sources:
                ask, end = await answer_asks(ask, asks, module.read(source).ask)
                if isinstance(end, Failed):
                    break
            ask.answer.bind(end)

        return working(module, requests, work)

    return DataflowSource.of("cat", thread)


def merge(*sources: DataflowSource) -> DataflowSource:
    """Merge the values of all sources as they arrive: each has a reader, and all send to one port.

    From the first ask on, each source is asked ahead, for one value or for its window, and again each time
    one of its values is emitted. A failing source immediately fails the others with its error; values read
    ahead are lost. An abort is confirmed when all have confirmed.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> pull(merge(values("ace"), values("bd")), collect()).run()
    ['a', 'b', 'c', 'd', 'e']
    """

    async def thread(module: ModuleContext, requests: Requests) -> None:
        came: DataflowPort[_Came] = DataflowPort()
        asks: DataflowPort[Ask] = DataflowPort()
        readers = [_Reader(module.read(source), came) for source in sources]
        threads = [module.thread(_give(DataflowStream(asks.tail), DataflowStream(came.tail), readers))]
        threads += [module.thread(reader.read()) for reader in readers]
        async for request in requests:
            if isinstance(request, Ask):
                asks.send(request)
            else:
                for each in threads:
                    each.cancel()
                request.answer.bind(await module.stop_inputs(request.cause))

    return DataflowSource.of("merge", thread)


_Came = tuple["_Reader", Value | Done]


class _Reader:
    """Reader of one source: the consumer calls `ask`, and `read` sends values and the end to a port."""

    def __init__(self, edge: DataflowEdge, port: DataflowPort[_Came]) -> None:
        self._edge = edge
        self._port = port
        self._asked: DataflowPort[DataflowVariable[Answer]] = DataflowPort()
        self._answers = DataflowStream(self._asked.tail)

    def ask(self) -> None:
        self._asked.send(self._edge.ask())

    def ask_ahead(self) -> None:
        for _ in range(self._edge.window):
            self.ask()

    async def read(self) -> None:
        async for asked in self._answers:
            answer = await asked
            if isinstance(answer, Failed):
                raise answer.error
            self._port.send((self, answer))
            if not isinstance(answer, Value):
                return


async def _give(asks: Asks, came: DataflowStream[_Came], readers: list[_Reader]) -> None:
    """Answer asks with arrivals in order, and with done once all readers have ended."""
    ask, left = await asks.next(), len(readers)
    for reader in readers:
        reader.ask_ahead()
    while left:
        reader, answer = await came.next()
        if isinstance(answer, Value):
            reader.ask()
            ask.answer.bind(answer)
            ask = await asks.next()
        else:
            left -= 1
    ask.answer.bind(DONE)


def _first(failed: Failed, then: Answer) -> Failed:
    return Failed(attach_close_error(failed.error, then.error)) if isinstance(then, Failed) else failed


def async_map(function: Callable[[Any], Coroutine[Any, Any, Any]], width: int = 1) -> DataflowTransformer:
    """Apply `await function(value)` to each value, `width` at once; results in the order of the values.

    Values and permits are streams: a thread takes one of each and starts the call, which returns the permit
    when it is over. An abort is confirmed once no call is running any more.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> async def double(x):
    ...     return 2 * x
    >>> pull(values([1, 2, 3]), async_map(double, width=2), collect()).run()
    [2, 4, 6]
    """

    async def thread(module: ModuleContext, requests: Requests, upstream: DataflowEdge) -> None:
        calls = _Calls(module, upstream, function, width)
        async for request in requests:
            if isinstance(request, Ask):
                calls.ask(request)
            else:
                calls.stop(request.cause)
                request.answer.bind(await calls.closed)

    return DataflowTransformer.of("async_map", thread, width=width)


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
        upstream: DataflowEdge,
        function: Callable[[Any], Coroutine[Any, Any, Any]],
        width: int,
    ) -> None:
        self._module = module
        self._upstream = upstream
        self._function = function
        self._waiting: deque[Ask] = deque()
        self._asked: DataflowPort[tuple[Ask, DataflowVariable[Answer]]] = DataflowPort()
        self._permits: DataflowPort[None] = DataflowPort()
        self._running: deque[DataflowVariable[None]] = deque()
        self._ended: Ending | None = None
        self._failed = False
        self._closing: Ending | None = None
        self.closed: DataflowVariable[Ending] = DataflowVariable()
        module.thread(self._start(DataflowStream(self._asked.tail), DataflowStream(self._permits.tail)))
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

    async def _start(
        self, asked: DataflowStream[tuple[Ask, DataflowVariable[Answer]]], permits: DataflowStream[None]
    ) -> None:
        before: DataflowVariable[None] = DataflowVariable()
        before.bind(None)
        async for request, reply in asked:
            answer = await reply
            answered: DataflowVariable[None] = DataflowVariable()
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
        self,
        request: Ask,
        result: DataflowVariable[Any],
        before: DataflowVariable[None],
        answered: DataflowVariable[None],
    ) -> None:
        """Answer with the result once all earlier asks are answered."""
        over: DataflowVariable[None] = DataflowVariable()
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

    async def _end(self, request: Ask, answer: Answer, before: DataflowVariable[None]) -> None:
        await before
        if self._closing is None:
            request.answer.bind(answer)

    def _note(self, error: Exception) -> None:
        """Attach the error of a discarded value, if any, to the stream's error."""
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
