"""Sources whose values are known or computed, answering immediately."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count as _integers
from typing import Any

from headrace.pull.argument_checks import refuse_async
from headrace.pull.dataflow.edge import Requests
from headrace.pull.dataflow.messages import DONE, Ask, Failed, Value
from headrace.pull.dataflow.module_threads import ModuleContext
from headrace.pull.dataflow.modules import Source
from headrace.pull.sources.iterator_reads import close_generator, iteration_starter


def values(items: Iterable[Any] = ()) -> Source:
    """Emit the items of a collection, in order.

    >>> from headrace.pull.dataflow import collect, pull
    >>> pull(values([1, 2, 3]), collect()).run()
    [1, 2, 3]
    """
    return _iterating("values", iteration_starter(items, "values"))


def count(last: int | None = None) -> Source:
    """Emit 0, 1, 2, ... up to and including `last`, or forever without it."""
    return _iterating("count", lambda: _integers() if last is None else iter(range(last + 1)))


def infinite(make: Callable[[], Any]) -> Source:
    """Emit `make()` for each ask, without end."""
    refuse_async("infinite", make, fix="as_dataflow(iterate(asynchronous_generator()))", passes_on=True)
    return _iterating("infinite", lambda: (make() for _ in _integers()))


def once(value: Any) -> Source:
    """Emit one value."""
    return _iterating("once", lambda: iter((value,)))


def empty() -> Source:
    """Emit no values, and end at the first ask."""
    return _iterating("empty", lambda: iter(()))


def error(cause: Exception) -> Source:
    """Answer every request, even an abort, with this error."""
    failed = Failed(cause)

    async def thread(_module: ModuleContext, requests: Requests) -> None:
        async for request in requests:
            request.answer.bind(failed)

    return Source.of("error", thread)


_END: Any = object()


def _iterating(name: str, begin: Callable[[], Iterator[Any]]) -> Source:
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

    return Source.of(name, thread)
