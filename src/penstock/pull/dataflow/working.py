"""Working: modules that are one thread, which answers ask after ask and can be stopped at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.dataflow.edge import Requests
from penstock.pull.dataflow.messages import Answer, Ask, Ending, Failed, Value, ending
from penstock.pull.dataflow.module import Module
from penstock.pull.dataflow.pieces import Running
from penstock.pull.dataflow.stream import Port, Stream
from penstock.pull.protocol import End, attach_close_error

Asks = Stream[Ask]


async def working(module: Module, requests: Requests, work: Callable[[Asks], Running]) -> None:
    """Have `work(asks)` answer all asks, one after the other, until the stream is stopped.

    Then that thread goes on no more; what the module reads from is stopped, last opened first.
    """
    port: Port[Ask] = Port()
    worker = module.thread(work(Stream(port.tail)))
    async for request in requests:
        if isinstance(request, Ask):
            port.send(request)
        else:
            worker.cancel()
            request.answer.bind(await stop_all(module, request.cause))


async def stop_all(module: Module, cause: Ending | End) -> Ending:
    """Stop all inputs one after the other, last opened first. How they ended: by the first error, if any."""
    first = ending(cause)
    for edge in reversed(module.reading):
        answer: Any = await edge.stop(cause)
        if isinstance(answer, Failed):
            first = (
                Failed(attach_close_error(first.error, answer.error)) if isinstance(first, Failed) else answer
            )
    return first


async def pass_on(ask: Ask, asks: Asks, answered: Callable[[], Any]) -> tuple[Ask, Answer]:
    """Answer asks, from `ask` on, by what `await answered()` gives, as long as it is values.

    The ask that has no answer yet, and what came instead of a value.
    """
    while isinstance(answer := await answered(), Value):
        ask.answer.bind(answer)
        ask = await asks.next()
    return ask, answer
