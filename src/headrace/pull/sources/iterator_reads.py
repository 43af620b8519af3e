"""Read functions over Python iterators, synchronous and asynchronous."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.errors import SourceLocation
from headrace.pull.errors import AlreadyUsed
from headrace.pull.module_context import Module
from headrace.pull.modules import Source
from headrace.pull.protocol import AnswerTo, BatchRead, End, Read

if TYPE_CHECKING:
    import asyncio

    from headrace.pull.pipeline_runtime import Cancellable


I = TypeVar("I")


def iterator_source(
    name: str,
    begin: Callable[[], Iterator[Any]],
    *,
    on_stop: Callable[[Exception | None], object] | None = None,
) -> Source:
    """Create a source of an iterator, which `begin` makes at a run's first ask.

    on_stop: called once the stop is confirmed, with the error or None.

    An exception of the iterator is answered after the values before it. A generator is closed before a stop
    is confirmed.
    """

    def open(_module: Module) -> BatchRead:
        return _Drawn(begin, on_stop).read

    return Source.of(name, open, batches=True)


class _Drawn:
    def __init__(
        self, begin: Callable[[], Iterator[Any]], on_stop: Callable[[Exception | None], object] | None
    ) -> None:
        self._begin = begin
        self._on_stop = on_stop
        self._items: Iterator[Any] | None = None
        self._failure: Exception | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._stop(abort, answer)
        elif batch := self._draw(most):
            answer(None, batch)
        else:
            answer(True)

    def _draw(self, most: int) -> list[Any]:
        if self._failure is not None:
            raise self._failure
        if self._items is None:
            self._items = self._begin()
        batch: list[Any] = []
        try:
            batch.extend(islice(self._items, most))  # keeps the values before an exception
        except Exception as error:
            if not batch:
                raise
            self._failure = error
        return batch

    def _stop(self, cause: End, answer: AnswerTo) -> None:
        # A held-back failure belongs to an ask that was never made, so it is dropped.
        close_generator(self._items)
        answer(cause)
        if self._on_stop is not None:
            self._on_stop(cause if isinstance(cause, Exception) else None)


def close_generator(items: Iterator[Any] | None) -> None:
    """Close a generator, running its `finally`. Other iterators belong to their creator."""
    if isinstance(items, Generator):
        cast("Generator[Any]", items).close()


def iteration_starter(items: Iterable[Any], name: str) -> Callable[[], Iterator[Any]]:
    """Return a function that starts iterating: anew in every run, or only once if `items` is an iterator.

    name: of the function that the user called, for the error.
    """
    if isinstance(items, Iterator):
        return once_only(items, name)
    return lambda: iter(items)


def once_only(items: I, name: str) -> Callable[[], I]:
    """Return a function that returns `items` the first time, and then raises `AlreadyUsed`."""
    location = SourceLocation.of_caller()
    left = [items]

    def begin() -> I:
        if not left:
            kind = type(items).__name__
            raise AlreadyUsed(
                f"{name}() of {kind!r} is read a second time",
                where=[location],
                why="An iterator gives its values once, and another run has begun to draw them.",
                fix="give what begins anew each time: a list, or an object whose __iter__ is a generator",
            )
        return left.pop()

    return begin


_OVER = object()


def async_iterator_source(items: AsyncIterable[Any]) -> Source:
    """Create a source of an asynchronous iterator; see `iterate`."""
    if isinstance(items, AsyncIterator):
        begin = once_only(items, "iterate")
    else:
        begin = items.__aiter__

    def open(module: Module) -> Read:
        return _Awaited(module, begin).read

    return Source.of("iterate", open, linear=True, width=1)


class _Awaited:
    """Running source with a task per value, and one that closes the iterator after a cancelled value task."""

    def __init__(self, module: Module, begin: Callable[[], AsyncIterator[Any]]) -> None:
        self._module = module
        self._begin = begin
        self._items: AsyncIterator[Any] | None = None
        self._step: Cancellable | None = None
        self._works = False
        self._left: asyncio.Event | None = None
        """Event set once a cancelled step has left the iterator."""
        self._failure: Exception | None = None

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._ask(answer)
        elif self._items is None:
            answer(abort)
        else:
            self._stop(self._items, abort, answer)

    def _ask(self, answer: AnswerTo) -> None:
        if self._items is None:
            self._items = self._begin()

        def arrived(error: Exception | None, value: Any) -> None:
            self._step = None
            if error is not None:
                raise error
            if value is _OVER:
                answer(True)
            else:
                answer(None, value)

        self._step = self._module.spawn(self._next(self._items), arrived)

    async def _next(self, items: AsyncIterator[Any]) -> Any:
        self._works = True
        try:
            return await anext(items, _OVER)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._works = False
            if self._left is not None:
                self._left.set()

    def _stop(self, items: AsyncIterator[Any], cause: End, answer: AnswerTo) -> None:
        def closed(error: Exception | None, _result: None) -> None:
            answer(error or cause)

        if self._step is not None:
            self._step.cancel()
        self._module.spawn(self._close(items), closed)

    async def _close(self, items: AsyncIterator[Any]) -> None:
        import asyncio

        if self._works:  # a running generator cannot be closed
            self._left = asyncio.Event()
            await self._left.wait()
        if self._failure is not None:
            raise self._failure  # error of the cancelled step, which would be lost otherwise
        if isinstance(items, AsyncGenerator):
            await items.aclose()
