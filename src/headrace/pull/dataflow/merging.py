"""Streams of streams: `flatten`, `cat`, `merge`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.pull.dataflow.edge import Edge, Requests
from headrace.pull.dataflow.messages import (
    DONE,
    Answer,
    Ask,
    Done,
    Ending,
    Failed,
    Port,
    Stream,
    Value,
    ending,
)
from headrace.pull.dataflow.module_threads import ModuleContext
from headrace.pull.dataflow.modules import Running, Source, Transformer
from headrace.pull.dataflow.variable import Variable
from headrace.pull.protocol import End, attach_close_error

Asks = Stream[Ask]


async def working(module: ModuleContext, requests: Requests, work: Callable[[Asks], Running]) -> None:
    """Run `work(asks)` to answer all asks, one after another, until the stream is stopped.

    Then the thread is abandoned, and the module's inputs are stopped, last opened first.
    """
    port: Port[Ask] = Port()
    worker = module.thread(work(Stream(port.tail)))
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


def flatten() -> Transformer:
    """Concatenate the contents of each value: a source of this form, or a collection. One level only.

    An error of an inner source aborts upstream. An abort stops the inner source first.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> pull(values([[1, 2], values([3]), []]), flatten(), collect()).run()
    [1, 2, 3]
    """

    def thread(module: ModuleContext, requests: Requests, upstream: Edge) -> Running:
        async def work(asks: Asks) -> None:
            ask = await asks.next()
            while isinstance(outer := await upstream.ask(), Value):
                if not isinstance(outer.value, Source):
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

    return Transformer.of("flatten", thread)


def cat(sources: Iterable[Source]) -> Source:
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

    return Source.of("cat", thread)


def merge(*sources: Source) -> Source:
    """Merge the values of all sources as they arrive: each has a reader, and all send to one port.

    From the first ask on, each source is asked ahead, for one value or for its window, and again each time
    one of its values is emitted. A failing source immediately fails the others with its error; values read
    ahead are lost. An abort is confirmed when all have confirmed.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> pull(merge(values("ace"), values("bd")), collect()).run()
    ['a', 'b', 'c', 'd', 'e']
    """

    async def thread(module: ModuleContext, requests: Requests) -> None:
        came: Port[_Came] = Port()
        asks: Port[Ask] = Port()
        readers = [_Reader(module.read(source), came) for source in sources]
        threads = [module.thread(_give(Stream(asks.tail), Stream(came.tail), readers))]
        threads += [module.thread(reader.read()) for reader in readers]
        async for request in requests:
            if isinstance(request, Ask):
                asks.send(request)
            else:
                for each in threads:
                    each.cancel()
                request.answer.bind(await module.stop_inputs(request.cause))

    return Source.of("merge", thread)


_Came = tuple["_Reader", Value | Done]


class _Reader:
    """Reader of one source: the consumer calls `ask`, and `read` sends values and the end to a port."""

    def __init__(self, edge: Edge, port: Port[_Came]) -> None:
        self._edge = edge
        self._port = port
        self._asked: Port[Variable[Answer]] = Port()
        self._answers = Stream(self._asked.tail)

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


async def _give(asks: Asks, came: Stream[_Came], readers: list[_Reader]) -> None:
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
