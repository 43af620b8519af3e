"""`batch`, `recent`: group values into lists, by number and by time."""

from __future__ import annotations

from typing import Any

from headrace.pull.argument_checks import check_integer, check_positive
from headrace.pull.ask_buffer import Buffer, Fetching
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Transformer
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, End


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
