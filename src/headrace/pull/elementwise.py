"""Transformers of single values: `map`, `filter` and their variants, `unique`, `take`, `through`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import (
    AWAIT_BEFORE,
    IN_A_TASK,
    check_integer,
    refuse_async,
    synchronous_check,
)
from headrace.pull.ask_buffer import StopOnce
from headrace.pull.compose import pull
from headrace.pull.edge import PullEdge
from headrace.pull.errors import NotHashable
from headrace.pull.fusion import Kernel
from headrace.pull.module_context import Module
from headrace.pull.modules import PullTransformer
from headrace.pull.protocol import AnswerTo, BatchRead, End, attach_close_error

AWAIT_AND_RETURN = "async_map() of a function that awaits it and returns the value"


def map(function: Callable[[Any], Any]) -> PullTransformer:
    """Apply `function(value)` to each value, in order. Fused with its neighbours.

    An exception of the function fails upstream; once that has confirmed, downstream gets it.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 3]), map(lambda x: x * x), collect()).run()
    [1, 4, 9]
    """
    refuse_async("map", function, fix="async_map(function) awaits it", passes_on=True)
    # Not the builtin: a StopIteration raised by the function would end the batch.
    return PullTransformer.of_kernel("map", lambda: lambda items: (function(item) for item in items))


def filter(test: Callable[[Any], Any] | None = None) -> PullTransformer:
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
    return PullTransformer.of_kernel(
        "filter",
        lambda: lambda items: (i for i in items if (kept := keep(i)) is True or (kept and checked(kept))),
    )


def filter_not(test: Callable[[Any], Any] | None = None) -> PullTransformer:
    """Keep the values for which `test(value)` is false, in order. Otherwise like `filter`.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values(range(6)), filter_not(lambda x: x % 2), collect()).run()
    [0, 2, 4]
    """
    drop = bool if test is None else test
    checked = synchronous_check("filter_not", drop, fix=AWAIT_BEFORE)
    return PullTransformer.of_kernel(
        "filter_not",
        lambda: (
            lambda items: (
                i for i in items if (dropped := drop(i)) is not True and not (dropped and checked(dropped))
            )
        ),
    )


def skip(count: int) -> PullTransformer:
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

    return PullTransformer.of_kernel("skip", make)


def skip_while(test: Callable[[Any], Any]) -> PullTransformer:
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

    return PullTransformer.of_kernel("skip_while", make)


def sliding(size: int, reduce: Callable[[list[Any]], Any] | None = None) -> PullTransformer:
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

    return PullTransformer.of_kernel("sliding", make)


def tap(on_value: Callable[[Any], object]) -> PullTransformer:
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

    return PullTransformer.of_kernel("tap", lambda: kernel)


def unbatch() -> PullTransformer:
    """Emit the items of each value (a list or other finite iterable), in order.

    Upstream is asked once all items of the previous value are taken. A value that cannot be iterated fails
    the stream on both sides.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([[1, 2], [], [3]]), unbatch(), collect()).run()
    [1, 2, 3]
    """
    return PullTransformer.of_kernel("unbatch", lambda: chain.from_iterable)


def unique(key: Callable[[Any], Any] | None = None) -> PullTransformer:
    """Keep the first value of each key, in order. key: a function of the value; by default the value itself.

    Keys are compared as in Python (`1 == 1.0 == True`, `1 != "1"`; the original compares texts) and must be
    hashable: otherwise `NotHashable` fails the stream. All seen keys are kept until the stream ends. For each
    ask, it asks upstream until a new key arrives.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, "1", 2, 1, 2]), unique(), collect()).run()
    [1, '1', 2]
    >>> pull(values(["ab", "cd", "xyz"]), unique(len), collect()).run()
    ['ab', 'xyz']
    """
    return PullTransformer.of_kernel("unique", _kernels("unique", key, repeated=False))


def non_unique(key: Callable[[Any], Any] | None = None) -> PullTransformer:
    """Keep the values whose key was seen before, that is, repetitions only. Otherwise like `unique`.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 1, 1, 2]), non_unique(), collect()).run()
    [1, 1, 2]
    """
    return PullTransformer.of_kernel("non_unique", _kernels("non_unique", key, repeated=True))


def _kernels(name: str, key: Callable[[Any], Any] | None, *, repeated: bool) -> Callable[[], Kernel]:
    location = SourceLocation.of_caller()
    checked = synchronous_check(name, key, fix=AWAIT_BEFORE)

    def make() -> Kernel:
        seen: set[Any] = set()

        def choose(items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                found = item if key is None else key(item)
                try:
                    known = found in seen
                    seen.add(found)
                except TypeError:
                    _check_hashable(name, found, location)
                    raise
                if not known:
                    checked(found)  # a coroutine is equal to no other
                if known == repeated:
                    yield item

        return choose

    return make


def _check_hashable(name: str, key: Any, location: SourceLocation) -> None:
    try:
        hash(key)
    except TypeError as error:
        raise NotHashable(
            f"{name}() cannot remember the key {key!r}",
            where=[location],
            why=f"Keys are kept in a set, and a {type(key).__name__} is not hashable.",
            fix=f"give a key function with hashable results: {name}(key=tuple), {name}(key=repr)",
        ) from error


def take(count: int) -> PullTransformer:
    """Keep the first `count` values (0 or less: none), and ask upstream for no more.

    The ask after the last value aborts upstream, once; any error of closing is its answer.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 3]), take(2), collect()).run()
    [1, 2]
    """
    check_integer("take", "count", count)
    return PullTransformer.of("take", lambda _module, edge: _Take(edge, count).read, batches=True)


class _Take:
    """Running `take`. Asks beyond the last value wait, because an abort would drop the pending values."""

    def __init__(self, edge: PullEdge, count: int) -> None:
        self._edge = edge
        self._left = count  # number of values not asked for yet
        self._in_flight = 0
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._stop = StopOnce(edge)

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._stop(abort, answer)
        else:
            self._asks.append((answer, most))
            self._go_on()

    def _go_on(self) -> None:
        while self._asks and self._left > 0:
            answer, most = self._asks.popleft()
            self._ask(answer, min(self._left, most))
        if self._asks and not self._in_flight and not self._stop.called:
            self._stop(True, self._asks.popleft()[0])

    def _ask(self, answer: AnswerTo, most: int) -> None:
        def got(end: End | None, values: Any = None, /) -> None:
            self._in_flight -= 1
            if end is None:
                self._left += most - len(values)
            answer(end, values)
            if end is None:
                self._go_on()

        self._left -= most
        self._in_flight += 1
        self._edge(None, got, most)


def take_while(test: Callable[[Any], Any], *, last: bool = False) -> PullTransformer:
    """Keep the values before the first for which `test(value)` is false; later ones are not tested.

    last: also keep the value that fails the test.

    Each ask immediately asks upstream once. Values, or an end, answered to asks made before the last value
    was known are dropped. The ask that finds the failing value (with `last`, the next one) aborts upstream,
    once, and is answered once that has confirmed, with any error of closing. An exception of the test fails
    the stream on both sides.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 9, 1]), take_while(lambda x: x < 5), collect()).run()
    [1, 2]
    >>> pull(values([1, 2, 9, 1]), take_while(lambda x: x < 5, last=True), collect()).run()
    [1, 2, 9]
    """
    checked = synchronous_check("take_while", test, fix=AWAIT_BEFORE).calling(test)
    return PullTransformer.of(
        "take_while", lambda _module, edge: _take_while(edge, checked, last), batches=True
    )


def _take_while(edge: PullEdge, test: Callable[[Any], Any], last: bool) -> BatchRead:
    asks: deque[AnswerTo] = deque()
    stop = StopOnce(edge)
    last_seen = False

    def read(abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            asks.clear()
            stop(abort, answer)
            return
        asks.append(answer)
        if last_seen:
            stop(True, closed)
        else:
            edge(None, got, most)

    def got(end: End | None, values: Any = None, /) -> None:
        if stop.called:
            return  # answered once upstream has confirmed
        if end is not None:
            asks.popleft()(end)
            return
        passed: list[Any] = []
        try:
            choose(values, passed)
        finally:  # values before an exception of the test are answered first
            if passed:
                asks.popleft()(None, passed)
        if last_seen and asks:
            stop(True, closed)

    def choose(values: list[Any], passed: list[Any]) -> None:
        nonlocal last_seen
        for value in values:
            last_seen = not test(value)
            if last or not last_seen:
                passed.append(value)
            if last_seen:
                return

    def closed(end: End | None, _value: Any = None, /) -> None:
        # Upstream may have failed before the abort reached it, at an unwanted value.
        waiting = [*asks]
        asks.clear()
        for answer in waiting:
            answer(end if edge.was_stopped else True)

    return read


OnEnd = Callable[[Exception | None], object]
"""Callback for the end of a stream: with None after done or an abort, otherwise with the error."""


def through(on_value: Callable[[Any], object] | None = None, on_end: OnEnd | None = None) -> PullTransformer:
    """Call `on_value(value)` for each value, and `on_end(error)` once before the end is passed on.

    on_end gets None for a normal end and for a confirmed abort, otherwise the error: of upstream, of
    downstream, of `on_value`, or of closing. Its own exception fails the stream, or is attached to the error.

    >>> from headrace.pull import collect, pull, take, values
    >>> ended = []
    >>> pull(values("abc"), through(on_end=ended.append), take(1), collect()).run(), ended
    (['a'], [None])
    """
    parts: list[PullTransformer] = []
    if on_value is not None:
        refuse_async("through", on_value, fix=AWAIT_AND_RETURN)
        parts.append(tap(on_value))
    if on_end is not None:
        parts.append(_at_end(synchronous_check("through", on_end, fix=IN_A_TASK).calling(on_end)))
    return pull(PullTransformer(()), *parts)


def _at_end(on_end: OnEnd) -> PullTransformer:
    def open(_module: Module, edge: PullEdge) -> BatchRead:
        over = EndOnce(on_end)

        def read(abort: End | None, answer: AnswerTo, most: int) -> None:
            def passed(end: End | None, value: Any = None, /) -> None:
                answer(end if end is None else over(end), value)

            if abort is None:
                edge(None, passed, most)
            else:
                edge(abort, passed)

        return read

    return PullTransformer.of("through", open, batches=True)


class EndOnce:
    """Function that passes an end to the user's function, only once, and returns the end to pass on."""

    def __init__(self, on_end: OnEnd | None) -> None:
        self._on_end = on_end
        self._end: End | None = None

    def __call__(self, end: End) -> End:
        if self._end is None:
            self._end = end
            if self._on_end is not None:
                self._end = _call(self._on_end, end)
        return self._end


def _call(on_end: OnEnd, end: End) -> End:
    try:
        on_end(end if isinstance(end, Exception) else None)
    except Exception as error:
        return attach_close_error(end, error) if isinstance(end, Exception) else error
    return end
