"""Synchronous transformers of single values, fused with their neighbours."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from headrace.pull.argument_checks import AWAIT_BEFORE, check_integer, refuse_async, synchronous_check
from headrace.pull.fusion import Kernel
from headrace.pull.modules import Transformer

AWAIT_AND_RETURN = "async_map() of a function that awaits it and returns the value"


def map(function: Callable[[Any], Any]) -> Transformer:
    """Apply `function(value)` to each value, in order. Fused with its neighbours.

    An exception of the function fails upstream; once that has confirmed, downstream gets it.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 3]), map(lambda x: x * x), collect()).run()
    [1, 4, 9]
    """
    refuse_async("map", function, fix="async_map(function) awaits it", passes_on=True)
    # Not the builtin: a StopIteration raised by the function would end the batch.
    return Transformer.of_kernel("map", lambda: lambda items: (function(item) for item in items))


def filter(test: Callable[[Any], Any] | None = None) -> Transformer:
    """Keep the values for which `test(value)` is true, in order; without a test, the truthy ones.

    For each ask, it asks upstream until a value passes. Done and errors are passed on; an abort goes
    upstream, and its confirmation comes back. An exception of the test fails upstream; once that has
    confirmed, downstream gets it (in the original, the exception escapes).

    >>> from headrace.pull import collect, pull, values
    >>> pull(values(range(6)), filter(lambda x: x % 2), collect()).run()
    [1, 3, 5]
    """
    keep = bool if test is None else test
    checked = synchronous_check("filter", keep, fix=AWAIT_BEFORE)
    # Not the builtin: a StopIteration raised by the test would end the batch.
    return Transformer.of_kernel(
        "filter",
        lambda: lambda items: (i for i in items if (kept := keep(i)) is True or (kept and checked(kept))),
    )


def filter_not(test: Callable[[Any], Any] | None = None) -> Transformer:
    """Keep the values for which `test(value)` is false, in order. In other respects like `filter`.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values(range(6)), filter_not(lambda x: x % 2), collect()).run()
    [0, 2, 4]
    """
    drop = bool if test is None else test
    checked = synchronous_check("filter_not", drop, fix=AWAIT_BEFORE)
    return Transformer.of_kernel(
        "filter_not",
        lambda: (
            lambda items: (
                i for i in items if (dropped := drop(i)) is not True and not (dropped and checked(dropped))
            )
        ),
    )


def skip(count: int) -> Transformer:
    """Drop the first `count` values (0 or less: none), and keep the rest in order.

    The first ask asks upstream `count + 1` times, every later one once. A stream that ends earlier is empty.
    Done, errors and aborts are passed on.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("abcd"), skip(2), collect()).run()
    ['c', 'd']
    """

    check_integer("skip", "count", count)

    def make() -> Kernel:
        left = count

        def dropping(items: Iterable[Any]) -> Iterator[Any]:
            nonlocal left
            for item in items:
                if left > 0:
                    left -= 1
                else:
                    yield item

        return lambda items: dropping(items) if left > 0 else items

    return Transformer.of_kernel("skip", make)


def skip_while(test: Callable[[Any], Any]) -> Transformer:
    """Drop the leading values for which `test(value)` is true; later ones are not tested.

    The first ask asks upstream until a value is kept, every later one once. Done, errors and aborts are
    passed on; an exception of the test fails the stream on both sides.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 9, 1]), skip_while(lambda x: x < 5), collect()).run()
    [9, 1]
    """
    checked = synchronous_check("skip_while", test, fix=AWAIT_BEFORE)

    def make() -> Kernel:
        begun = False

        def dropping(items: Iterable[Any]) -> Iterator[Any]:
            nonlocal begun
            for item in items:
                begun = begun or not checked(test(item))
                if begun:
                    yield item

        return lambda items: items if begun else dropping(items)

    return Transformer.of_kernel("skip_while", make)


def sliding(size: int, reduce: Callable[[list[Any]], Any] | None = None) -> Transformer:
    """Emit a sliding window: for each value from the `size`-th on, the list of the last `size` values.

    With `reduce`, emit its result for each list instead. Fewer than `size` values make an empty stream. The
    first ask asks upstream `size` times, every later one once. Done, errors and aborts are passed on; an
    exception of `reduce` fails the stream on both sides.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 3, 4]), sliding(3), collect()).run()
    [[1, 2, 3], [2, 3, 4]]
    >>> pull(values([1, 2, 3, 4]), sliding(3, sum), collect()).run()
    [6, 9]
    """
    check_integer("sliding", "size", size, least=1)
    refuse_async("sliding", reduce, fix="sliding(size), async_map(function)", passes_on=True)

    def make() -> Kernel:
        held: deque[Any] = deque(maxlen=size)

        def windows(items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                held.append(item)
                if len(held) == size:
                    yield list(held) if reduce is None else reduce(list(held))

        return windows

    return Transformer.of_kernel("sliding", make)


def tap(on_value: Callable[[Any], object]) -> Transformer:
    """Call `on_value(value)` for each value before passing it on; the return value is ignored.

    Each ask asks upstream once. An exception of the function fails the stream on both sides.

    >>> from headrace.pull import collect, pull, values
    >>> seen = []
    >>> pull(values("ab"), tap(seen.append), collect()).run(), seen
    (['a', 'b'], ['a', 'b'])
    """

    checked = synchronous_check("tap", on_value, fix=AWAIT_AND_RETURN)

    def kernel(items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            returned = on_value(item)
            if returned is not None:
                checked(returned)
            yield item

    return Transformer.of_kernel("tap", lambda: kernel)


def unbatch() -> Transformer:
    """Emit the items of each value (a list or other finite iterable), in order.

    Upstream is asked once all items of the previous value are taken. A value that cannot be iterated fails
    the stream on both sides.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([[1, 2], [], [3]]), unbatch(), collect()).run()
    [1, 2, 3]
    """
    return Transformer.of_kernel("unbatch", lambda: chain.from_iterable)
