"""Streams of streams: flatten, cat, merge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.pull.dataflow.edge import Edge, Requests
from penstock.pull.dataflow.messages import DONE, Answer, Failed, Value
from penstock.pull.dataflow.module import Module
from penstock.pull.dataflow.pieces import Running, Source, Transformer
from penstock.pull.dataflow.stream import Port, Stream
from penstock.pull.dataflow.variable import Variable
from penstock.pull.dataflow.working import Asks, pass_on, stop_all, working
from penstock.pull.protocol import attach


def flatten() -> Transformer:
    """What each value contains, in order: a source of this form, or a collection. One level only.

    An error of an inner source aborts upstream. An abort stops the inner source first.

    >>> from penstock.pull.dataflow import collect, pull, values
    >>> pull(values([[1, 2], values([3]), []]), flatten(), collect()).run()
    [1, 2, 3]
    """

    def thread(module: Module, requests: Requests, upstream: Edge) -> Running:
        async def work(asks: Asks) -> None:
            ask = await asks.next()
            while isinstance(outer := await upstream.ask(), Value):
                if not isinstance(outer.value, Source):
                    for value in outer.value:
                        ask.answer.bind(Value(value))
                        ask = await asks.next()
                    continue
                ask, end = await pass_on(ask, asks, module.read(outer.value).ask)
                if isinstance(end, Failed):
                    outer = _first(end, await upstream.stop())
                    break
            ask.answer.bind(outer)

        return working(module, requests, work)

    return Transformer.of("flatten", thread)


def cat(sources: Iterable[Source]) -> Source:
    """The values of one source after the other. Each is opened when the one before is done.

    >>> from penstock.pull.dataflow import collect, pull, values
    >>> pull(cat([values([1, 2]), values([3])]), collect()).run()
    [1, 2, 3]
    """

    def thread(module: Module, requests: Requests) -> Running:
        async def work(asks: Asks) -> None:
            ask, end = await asks.next(), DONE
            for source in sources:
                ask, end = await pass_on(ask, asks, module.read(source).ask)
                if isinstance(end, Failed):
                    break
            ask.answer.bind(end)

        return working(module, requests, work)

    return Source.of("cat", thread)


def merge(*sources: Source) -> Source:
    """The values of all sources in the order in which they come: each has a reader, and all send to one port.

    From the first ask on, one value of each source is read ahead. The first error fails the other sources.

    >>> from penstock.pull.dataflow import collect, pull, values
    >>> pull(merge(values("ace"), values("bd")), collect()).run()
    ['a', 'b', 'c', 'd', 'e']
    """

    def thread(module: Module, requests: Requests) -> Running:
        async def work(asks: Asks) -> None:
            ask = await asks.next()
            port: Port[tuple[Answer, Variable[None]]] = Port()
            came = Stream(port.tail)
            for edge in [module.read(source) for source in sources]:
                module.thread(_read_into(port, edge))
            left = len(sources)
            while left:
                answer, taken = await came.next()
                if isinstance(answer, Failed):
                    ask.answer.bind(await stop_all(module, answer))
                    return
                if isinstance(answer, Value):
                    ask.answer.bind(answer)
                    ask = await asks.next()
                    taken.bind(None)
                else:
                    left -= 1
            ask.answer.bind(DONE)

        return working(module, requests, work)

    return Source.of("merge", thread)


async def _read_into(port: Port[tuple[Answer, Variable[None]]], edge: Edge) -> None:
    answer: Any = None
    while answer is None or isinstance(answer, Value):
        answer = await edge.ask()
        taken: Variable[None] = Variable()
        port.send((answer, taken))
        await taken


def _first(failed: Failed, then: Answer) -> Failed:
    return Failed(attach(failed.error, then.error)) if isinstance(then, Failed) else failed
