"""`batch`, `recent`: values grouped into lists; `eager`, `high_watermark`: values fetched ahead."""

from __future__ import annotations

from typing import Any

from headrace.errors import BadOption, SourceLocation
from headrace.pull.argument_checks import check_integer, check_positive
from headrace.pull.ask_buffer import Buffer, Fetching
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Transformer
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, BatchRead, End


def batch(size: int) -> Transformer:
    """Group values into lists of `size`, in order; the last may be shorter, none is empty.

    An ask requests exactly `size` values, or for `most` lists, `most` times as many. An error follows the
    values before it; values of an incomplete list are dropped when downstream stops.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("abcde"), batch(2), collect()).run()
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    check_integer("batch", "size", size, least=1)
    return batches("batch", size, None)


def recent(size: int, seconds: float | None = None) -> Transformer:
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


def batches(name: str, size: int, seconds: float | None) -> Transformer:
    """Group values as `batch` does, also closing lists a number of seconds after their first value."""
    if seconds is not None:
        check_positive(name, "seconds", seconds)
    return Transformer.of(name, lambda module, edge: _Batches(module, edge, size, seconds).read, batches=True)


class _Batches:
    """Running `batch`. `open` is the list being filled; the buffer holds full lists not yet asked for."""

    def __init__(self, module: Module, edge: Edge, size: int, seconds: float | None) -> None:
        self._module = module
        self._size = size
        self._seconds = seconds
        self._buffer = Buffer()
        self._fetching = Fetching(edge, self._buffer, self._take)
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


# --- `eager`, `high_watermark`: fetch values before they are asked for, up to a bound -------------


def eager(bound: int) -> Transformer:
    """Keep upstream busy from the first ask on, fetching up to `bound` values beyond those asked for.

    Done and errors follow the values before them. An abort or an error from downstream drops the values
    waiting here.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("abc"), eager(10), collect()).run()
    ['a', 'b', 'c']
    """
    check_integer("eager", "bound", bound, least=1)
    return Transformer.of("eager", lambda _module, edge: _Ahead(edge, bound, bound - 1).read, batches=True)


def high_watermark(high: int, low: int | None = None) -> Transformer:
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

    def open(module: Module, edge: Edge) -> BatchRead:
        ahead = _Ahead(edge, high, least)
        module.enter(ahead.fill)
        return ahead.read

    return Transformer.of("high_watermark", open, batches=True)


class _Ahead:
    def __init__(self, edge: Edge, high: int, low: int) -> None:
        self._high = high
        self._low = low
        self._buffer = Buffer()
        self._fetching = Fetching(edge, self._buffer, self._take)

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
