"""Sources of Python values: collections, iterators, functions, single values."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, cast

from headrace.pull.argument_checks import IN_A_TASK, refuse_async, synchronous_check
from headrace.pull.module_context import Module
from headrace.pull.modules import Source
from headrace.pull.protocol import AnswerTo, End, Read
from headrace.pull.sources.iterator_reads import async_iterator_source, iteration_starter, iterator_source


def values(
    items: Iterable[Any] | None = None, *, on_stop: Callable[[Exception | None], object] | None = None
) -> Source:
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


def keys(mapping: Mapping[Any, Any]) -> Source:
    """Emit a mapping's keys in order. In other respects like `values`.

    >>> from headrace.pull import collect, pull
    >>> pull(keys({"a": 1, "b": 2}), collect()).run()
    ['a', 'b']
    """
    return iterator_source("keys", lambda: iter(mapping.keys()))


def once(value: Any) -> Source:
    """Emit one value, then done. A stop is confirmed immediately.

    None is a value like any other; in the original, `once(null)` is an empty stream, here `empty()`.

    >>> from headrace.pull import collect, pull
    >>> pull(once(None), collect()).run()
    [None]
    """
    return iterator_source("once", lambda: iter((value,)))


def empty() -> Source:
    """Answer every ask with done; a stop is confirmed immediately.

    >>> from headrace.pull import collect, pull
    >>> pull(empty(), collect()).run()
    []
    """
    return iterator_source("empty", lambda: iter(()))


def error(cause: Exception) -> Source:
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

    return Source.of("error", open)


def count(last: int | None = None, start: int = 0) -> Source:
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


def infinite(make: Callable[[], Any]) -> Source:
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


def iterate(items: Iterable[Any] | AsyncIterable[Any]) -> Source:
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
