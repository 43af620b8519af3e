"""Sources of Python values: collections, iterators, functions, single values."""

from __future__ import annotations

import itertools
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import IN_A_TASK, refuse_async, synchronous_check
from headrace.pull.errors import AlreadyUsed
from headrace.pull.module_context import Module
from headrace.pull.modules import PullSource
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
) -> PullSource:
    """Create a source of an iterator, which `begin` makes at a run's first ask.

    on_stop: called once the stop is confirmed, with the error or None.

    An exception of the iterator is answered after the values before it. A generator is closed before a stop
    is confirmed.
    """

    def open(_module: Module) -> BatchRead:
        return _Drawn(begin, on_stop).read

    return PullSource.of(name, open, batches=True)


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


def async_iterator_source(items: AsyncIterable[Any]) -> PullSource:
    """Create a source of an asynchronous iterator; see `iterate`."""
    if isinstance(items, AsyncIterator):
        begin = once_only(items, "iterate")
    else:
        begin = items.__aiter__

    def open(module: Module) -> Read:
        return _Awaited(module, begin).read

    return PullSource.of("iterate", open, linear=True, width=1)


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


def values(
    items: Iterable[Any] | None = None, *, on_stop: Callable[[Exception | None], object] | None = None
) -> PullSource:
    """Emit the items of a collection in order, or the values of a mapping (`keys` emits its keys).

    None counts as an empty collection.

    on_stop: called once when the stream is aborted (with None) or failed (with the error), right after the
             stop is confirmed; not called if the stream ends by itself.

    Done follows the last value; a stop is confirmed immediately. The collection is not copied, and is
    iterated anew in every run. An iterator is treated as by `iterate`.

    >>> from headrace.pull import collect, pull
    >>> pull(values([1, 2, 3]), collect()).run()
    [1, 2, 3]
    >>> pull(values({"a": 1, "b": 2}), collect()).run()
    [1, 2]
    """
    if on_stop is not None:
        on_stop = synchronous_check("values", on_stop, fix=IN_A_TASK).calling(on_stop)
    found: Iterable[Any] = () if items is None else items
    if isinstance(items, Mapping):
        found = cast("Mapping[Any, Any]", items).values()
    return iterator_source("values", iteration_starter(found, "values"), on_stop=on_stop)


def keys(mapping: Mapping[Any, Any]) -> PullSource:
    """Emit a mapping's keys in order. Otherwise like `values`.

    >>> from headrace.pull import collect, pull
    >>> pull(keys({"a": 1, "b": 2}), collect()).run()
    ['a', 'b']
    """
    return iterator_source("keys", lambda: iter(mapping.keys()))


def once(value: Any) -> PullSource:
    """Emit one value, then done. A stop is confirmed immediately.

    None is a value like any other; in the original, `once(null)` is an empty stream, here `empty()`.

    >>> from headrace.pull import collect, pull
    >>> pull(once(None), collect()).run()
    [None]
    """
    return iterator_source("once", lambda: iter((value,)))


def empty() -> PullSource:
    """Answer every ask with done; a stop is confirmed immediately.

    >>> from headrace.pull import collect, pull
    >>> pull(empty(), collect()).run()
    []
    """
    return iterator_source("empty", lambda: iter(()))


def error(cause: Exception) -> PullSource:
    """Answer every request, asks and aborts alike, with `cause`.

    If downstream fails the stream with its own error, it receives that one, with `cause` attached.

    >>> from headrace.pull import collect, pull
    >>> pull(error(OSError("the line is dead")), collect()).run()
    Traceback (most recent call last):
    OSError: the line is dead
    """

    def open(_module: Module) -> Read:
        def read(_abort: End | None, answer: AnswerTo) -> None:
            answer(cause)

        return read

    return PullSource.of("error", open)


def count(last: int | None = None, start: int = 0) -> PullSource:
    """Emit `start`, `start + 1`, ... up to and including `last`, or forever without `last`.

    Done follows `last`, or comes immediately if that is less than `start`; a stop is confirmed immediately.
    `count(0)` emits only 0; the original ignores a last of 0, and counts forever.

    >>> from headrace.pull import collect, pull
    >>> pull(count(3), collect()).run()
    [0, 1, 2, 3]
    """
    if last is None:
        return iterator_source("count", lambda: itertools.count(start))
    return iterator_source("count", lambda: iter(range(start, last + 1)))


def infinite(make: Callable[[], Any]) -> PullSource:
    """Emit `make()`, called once per requested value, until stopped or until `make` raises.

    >>> import itertools
    >>> from headrace.pull import collect, pull, take
    >>> pull(infinite(itertools.count(5).__next__), take(3), collect()).run()
    [5, 6, 7]
    """

    refuse_async("infinite", make, fix="iterate() of an asynchronous generator", passes_on=True)

    # Not map(make, repeat(None)): a StopIteration raised by `make` would end the stream as done.
    def made() -> Iterator[Any]:
        return (make() for _ in repeat(None))

    return iterator_source("infinite", made)


def iterate(items: Iterable[Any] | AsyncIterable[Any]) -> PullSource:
    """Emit the items of an iterable or asynchronous iterable, drawn one by one on request.

    Iteration starts anew in each run, at the first ask. An iterator gives its values only once: a second run
    fails with `AlreadyUsed`. An exception of the iterator is answered after the values before it.

    A stop closes a generator, so its `finally` has run before the stop is confirmed; a pending `anext` is
    cancelled first. Other iterators (an open file) are left alone. Asynchronous ones work on one value at a
    time, and need an event loop. An iterable of both kinds is iterated synchronously.

    >>> from headrace.pull import collect, pull, take
    >>> pull(iterate(line.upper() for line in ["a", "b"]), collect()).run()
    ['A', 'B']
    >>> async def ticks():
    ...     for tick in range(3):
    ...         yield tick
    >>> pull(iterate(ticks()), take(2), collect()).run()
    [0, 1]
    """
    if isinstance(items, Iterable):
        return iterator_source("iterate", iteration_starter(items, "iterate"))
    return async_iterator_source(items)
