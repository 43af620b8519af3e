"""Sources whose values are known or computed: they answer at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count as _integers
from typing import Any

from penstock.pull.dataflow.edge import Requests
from penstock.pull.dataflow.messages import DONE, Ask, Failed, Value
from penstock.pull.dataflow.module import Module
from penstock.pull.dataflow.pieces import Source
from penstock.pull.sources.iterators import begin_of, close_generator
from penstock.pull.synchronous import refuse_async


def values(items: Iterable[Any] = ()) -> Source:
    """The items of a collection, in order.

    >>> from penstock.pull.dataflow import collect, pull
    >>> pull(values([1, 2, 3]), collect()).run()
    [1, 2, 3]
    """
    return _iterating("values", begin_of(items, "values"))


def count(last: int | None = None) -> Source:
    """0, 1, 2, ... to `last`, which is the last value; without it there is no end."""
    return _iterating("count", lambda: _integers() if last is None else iter(range(last + 1)))


def infinite(make: Callable[[], Any]) -> Source:
    """`make()` for each ask, without end."""
    refuse_async("infinite", make, fix="as_dataflow(iterate(asynchronous_generator()))", passes_on=True)
    return _iterating("infinite", lambda: (make() for _ in _integers()))


def once(value: Any) -> Source:
    """One value."""
    return _iterating("once", lambda: iter((value,)))


def empty() -> Source:
    """No value: done at the first ask."""
    return _iterating("empty", lambda: iter(()))


def error(cause: Exception) -> Source:
    """No value: every request is answered by this error, an abort too."""
    failed = Failed(cause)

    async def thread(_module: Module, requests: Requests) -> None:
        async for request in requests:
            request.answer.bind(failed)

    return Source.of("error", thread)


_END: Any = object()


def _iterating(name: str, begin: Callable[[], Iterator[Any]]) -> Source:
    async def thread(_module: Module, requests: Requests) -> None:
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
