"""take: the first values."""

from __future__ import annotations

from penstock.pull.dataflow.edge import Edge, Requests
from penstock.pull.dataflow.messages import Answer, Ask, Value
from penstock.pull.dataflow.module import Module
from penstock.pull.dataflow.pieces import Transformer
from penstock.pull.dataflow.variable import Variable


def take(count: int) -> Transformer:
    """The first `count` values (0 or less: none). It asks upstream for no more than these.

    The ask after the last value aborts upstream, once; what closing fails with is its answer.

    >>> from penstock.pull.dataflow import collect, pull, values
    >>> pull(values([1, 2, 3]), take(2), collect()).run()
    [1, 2]
    """

    async def thread(module: Module, requests: Requests, upstream: Edge) -> None:
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
            elif not ends:  # the end answers all asks after this one
                ends = True
                module.thread(_stop_after(last, upstream, request))

    return Transformer.of("take", thread)


async def _stop_after(last: Variable[Answer], upstream: Edge, request: Ask) -> None:
    """An abort would drop the values that are still to come: it waits for the last of them."""
    if isinstance(await last, Value):
        request.answer.bind(await upstream.stop())
