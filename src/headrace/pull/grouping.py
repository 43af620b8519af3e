"""Transformers that group values into lists, flatten lists and streams, and fetch values ahead.

`batch` and `recent` group; `flatten` and `flat_map` take the values out of streams and collections; `eager`
and `high_watermark` fetch values before they are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from headrace.errors import BadOption, SourceLocation
from headrace.pull.argument_checks import check_integer, check_positive, synchronous_check
from headrace.pull.ask_buffer import Buffer, FetchLoop, StopOnce
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.modules import PullSource, PullTransformer
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, BatchRead, End, attach_close_error


def batch(size: int) -> PullTransformer:
    """Group values into lists of `size`, in order; the last may be shorter, none is empty.

    An ask requests exactly `size` values, or for `most` lists, `most` times as many. An error follows the
    values before it; values of an incomplete list are dropped when downstream stops.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("abcde"), batch(2), collect()).run()
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    check_integer("batch", "size", size, least=1)
    return batches("batch", size, None)


def recent(size: int, seconds: float | None = None) -> PullTransformer:
    """Group values into lists of up to `size`, limited in time; the last list may be shorter.

    seconds: a list also ends this long after its first value arrived, regardless of its size.

    Reads as `batch` does, and only when asked. A list that is closed by time before it is asked for waits;
    requested values that arrive later begin the next one.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 3, 4, 5]), recent(2), collect()).run()
    [[1, 2], [3, 4], [5]]
    """
    check_integer("recent", "size", size, least=1)
    return batches("recent", size, seconds)


def batches(name: str, size: int, seconds: float | None) -> PullTransformer:
    """Group values as `batch` does, also closing lists a number of seconds after their first value."""
    if seconds is not None:
        check_positive(name, "seconds", seconds)
    return PullTransformer.of(
        name, lambda module, edge: _Batches(module, edge, size, seconds).read, batches=True
    )


class _Batches:
    """Running `batch`. `open` is the list being filled; the buffer holds full lists not yet asked for."""

    def __init__(self, module: Module, edge: PullEdge, size: int, seconds: float | None) -> None:
        self._module = module
        self._size = size
        self._seconds = seconds
        self._buffer = Buffer()
        self._fetching = FetchLoop(edge, self._buffer, self._take)
        self._open: list[Any] = []
        self._timer: Cancellable | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._open = []
            self._stop_timer()
            self._fetching.stop(abort, answer)
        else:
            self._buffer.asks.append((answer, most))
            self._answer()

    def _answer(self) -> None:
        wanted = sum(most for _answer, most in self._buffer.give()) * self._size
        self._fetching.want(wanted - len(self._open) - self._fetching.outstanding)

    def _take(self, values: list[Any]) -> None:
        for value in values:
            if not self._open and self._seconds is not None:
                self._timer = self._module.later(self._seconds, self._in_time)
            self._open.append(value)
            if len(self._open) == self._size:
                self._close()
        if self._open and self._buffer.end is not None:
            self._close()
        self._answer()

    def _in_time(self) -> None:
        self._close()
        self._answer()

    def _close(self) -> None:
        self._stop_timer()
        self._buffer.values.append(self._open)
        self._open = []

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def eager(bound: int) -> PullTransformer:
    """Keep upstream busy from the first ask on, fetching up to `bound` values beyond those asked for.

    Done and errors follow the values before them. An abort or an error from downstream drops the values
    waiting here.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("abc"), eager(10), collect()).run()
    ['a', 'b', 'c']
    """
    check_integer("eager", "bound", bound, least=1)
    return PullTransformer.of(
        "eager", lambda _module, edge: _Ahead(edge, bound, bound - 1).read, batches=True
    )


def high_watermark(high: int, low: int | None = None) -> PullTransformer:
    """Fetch `high` values when the pipeline starts, and refill whenever at most `low` are left.

    low: half of `high` by default. Both count values here or in flight, beyond those asked for.

    Done and errors follow the values before them. An abort or an error from downstream drops the values
    waiting here, and stops upstream once (the original asks and aborts again after an end).

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("abc"), high_watermark(2), collect()).run()
    ['a', 'b', 'c']
    """
    check_integer("high_watermark", "high", high, least=1)
    least = high // 2 if low is None else low
    check_integer("high_watermark", "low", least, least=0)
    if least >= high:
        raise BadOption(
            f"high_watermark() cannot work with high={high} and low={low}",
            where=[SourceLocation.of_caller()],
            why="It fills up to `high` when no more than `low` are left.",
            fix="give a low that is below high, or none",
        )

    def open(module: Module, edge: PullEdge) -> BatchRead:
        ahead = _Ahead(edge, high, least)
        module.enter(ahead.fill)
        return ahead.read

    return PullTransformer.of("high_watermark", open, batches=True)


class _Ahead:
    def __init__(self, edge: PullEdge, high: int, low: int) -> None:
        self._high = high
        self._low = low
        self._buffer = Buffer()
        self._fetching = FetchLoop(edge, self._buffer, self._take)

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._fetching.stop(abort, answer)
        else:
            self._buffer.asks.append((answer, most))
            self.fill()

    def fill(self) -> None:
        """Answer with available values, then refill to the upper bound if the lower bound is reached."""
        self._buffer.give()
        ahead = len(self._buffer.values) + self._fetching.outstanding - len(self._buffer.asks)
        if ahead <= self._low:
            self._fetching.want(self._high - ahead)

    def _take(self, values: list[Any]) -> None:
        self._buffer.values.extend(values)
        self.fill()


def flatten(*, width: int = 0) -> PullTransformer:
    """Concatenate the contents of each value: the stream of a `PullSource`, values of a mapping, or items.

    Text, bytes and values that are not iterable are passed through; None contributes nothing. Only one level
    is flattened.

    A source is opened, or an iterable started, when all contents before it are used up. Upstream is asked for
    one value per request that finds no contents. An inner error aborts upstream, and is answered once that
    has confirmed. An abort closes the inner stream first, then upstream, and is confirmed after both; inner
    streams not yet started are not touched. Any number of empty inner streams takes no stack and no memory;
    the original overflowed.

    width: number of values to request at once from an inner source that takes time to produce them.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([[1, 2], values([3]), "four", None, {"x": 5}]), flatten(), collect()).run()
    [1, 2, 3, 'four', 5]
    """
    check_integer("flatten", "width", width, least=0)
    return PullTransformer.of(
        "flatten", lambda module, edge: open_flatten(module, edge, _same), batches=True, width=width
    )


def open_flatten(module: Module, edge: PullEdge, inner_of: Callable[[Any], Any]) -> BatchRead:
    """Open a flattening module. `inner_of` maps each of the edge's values to its contents."""
    return _Flat(module, edge, inner_of).read


def _same(value: Any) -> Any:
    return value


def _items(inner: Any) -> Iterable[Any]:
    """Return the items of a value that is not a source."""
    if inner is None:
        return ()
    if isinstance(inner, Mapping):
        return inner.values()  # pyright: ignore[reportUnknownVariableType]
    if isinstance(inner, Iterable) and not isinstance(inner, str | bytes | bytearray):
        return inner  # pyright: ignore[reportUnknownVariableType]
    return (inner,)


class _Flat:
    """Running `flatten`. Outer values wait in `queue`; the current one is `items`, or `source` and `inner`.

    Waiting requests are in `asks`. The first `inner_asked` of them were passed to `inner`; those it cannot
    answer go to the next inner stream. `outer_asked` requests, at most as many as wait here, went upstream.
    """

    def __init__(self, module: Module, outer: PullEdge, inner_of: Callable[[Any], Any]) -> None:
        self._module = module
        self._outer = outer
        self._inner_of = inner_of
        self._stop_outer = StopOnce(outer)
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._queue: deque[Any] = deque()
        self._items: Iterator[Any] | None = None
        self._source: PullSource | None = None
        self._inner: PullEdge | None = None
        self._inner_asked = 0
        self._outer_asked = 0
        self._end: End | None = None
        self._failure: Exception | None = None
        self._closing = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._abort(abort, answer)
            return
        self._asks.append((answer, most))
        self._go_on()

    def _go_on(self) -> None:
        """Answer with available values, and ask for missing ones."""
        while self._asks and not self._closing and self._begin():
            if self._source is not None:
                inner = self._inner = self._inner or self._module.open(self._source)
                while self._inner_asked < len(self._asks):
                    self._inner_asked += 1
                    inner(None, self._got_inner, self._asks[self._inner_asked - 1][1])
                return
            self._give_items()
        if not self._asks:
            return
        if self._end is not None:
            self._asks.popleft()[0](self._end)
            return
        while not self._closing and self._outer_asked < len(self._asks):
            self._outer_asked += 1
            self._outer(None, self._got_outer, self._asks[self._outer_asked - 1][1])

    def _got_outer(self, end: End | None, values: Any = None, /) -> None:
        self._outer_asked -= 1
        if self._closing:
            return
        if end is not None:
            self._end = self._end or end
        else:
            self._queue.extend(values)
        if self._inner is None:
            self._go_on()

    def _begin(self) -> bool:
        """Start the next outer value. Returns whether one is active that may have values."""
        if self._source is None and self._items is None and self._queue:
            self._start(self._inner_of(self._queue.popleft()))
        return self._source is not None or self._items is not None

    def _start(self, inner: Any) -> None:
        if isinstance(inner, PullSource):
            self._source = inner
        else:
            self._items = iter(_items(inner))

    def _give_items(self) -> None:
        """Answer the first request from as many collections as it takes to fill it."""
        answer, most = self._asks[0]
        found: list[Any] = []
        try:
            while self._items is not None:
                self._take(self._items, found, most - len(found))
                if len(found) == most or self._closing:
                    break
                self._items = None
                self._pass_whole(found, most)
        finally:
            if found:  # includes values before an exception
                self._asks.popleft()
                answer(None, found)

    def _pass_whole(self, found: list[Any], most: int) -> None:
        """Append whole lists and tuples while they fit, then start the first value that does not."""
        while self._queue and len(found) < most:
            inner = self._inner_of(self._queue.popleft())
            if type(inner) in (list, tuple) and len(inner) <= most - len(found):
                found.extend(inner)
            else:
                self._start(inner)
                return

    def _take(self, items: Iterator[Any], found: list[Any], most: int) -> None:
        try:
            found.extend(islice(items, most))
        except Exception as error:
            self._fail(error)

    def _got_inner(self, end: End | None, values: Any = None, /) -> None:
        self._inner_asked -= 1
        if end is None:
            self._asks.popleft()[0](None, values)
        elif not self._closing and not self._inner_asked:
            self._source = self._inner = None
            if isinstance(end, Exception):
                self._fail(end)
            else:
                self._go_on()

    def _fail(self, error: Exception) -> None:
        """Fail because a value's contents failed. Upstream is only aborted, since it is not at fault."""
        self._closing = True
        self._failure = error
        self._end = None  # an earlier end of upstream no longer counts

        def confirmed(end: End | None, _value: Any = None, /) -> None:
            self._end = self._first_of(end)
            self._go_on()

        self._stop_outer(True, confirmed)

    def _abort(self, cause: End, answer: AnswerTo) -> None:
        """Abort the inner stream before the outer one, whose resources it may need."""
        self._closing = True
        self._asks.clear()
        self._queue.clear()
        close = getattr(self._items, "close", None)
        if close is not None:
            close()
        if self._inner is None:
            self._abort_outer(cause, answer)
            return

        def closed(end: End | None, _value: Any = None, /) -> None:
            if isinstance(end, Exception):
                self._failure = end
            self._abort_outer(cause, answer)

        self._inner(cause, closed)

    def _abort_outer(self, cause: End, answer: AnswerTo) -> None:
        self._stop_outer(cause, lambda end, _value=None, /: answer(self._first_of(end)))

    def _first_of(self, end: End | None) -> End | None:
        """Combine an inner stream's failure, if any, with the end that closing upstream returned."""
        if self._failure is None:
            return end
        return attach_close_error(self._failure, end) if isinstance(end, Exception) else self._failure


def flat_map(function: Callable[[Any], Any], *, width: int = 0) -> PullTransformer:
    """Concatenate the contents of `function(value)` for each value.

    The function returns a collection, a generator, or a `PullSource`, treated as in `flatten`. It is called
    once all contents of the previous values are used up. An exception fails upstream; once that has
    confirmed, downstream gets it.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values(["a b", "", "c"]), flat_map(str.split), collect()).run()
    ['a', 'b', 'c']
    """
    check_integer("flat_map", "width", width, least=0)
    fix = "async_map(function), then flatten(); iterate(generator) is a source of an asynchronous generator"
    checked = synchronous_check("flat_map", function, fix=fix).calling(function)
    return PullTransformer.of(
        "flat_map", lambda module, edge: open_flatten(module, edge, checked), batches=True, width=width
    )
