"""eager, high_watermark: values are fetched before they are asked for, up to a bound."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.errors import BadOption, SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.options import whole
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import AnswerTo, BatchRead, End
from penstock.pull.transformers.fetching import Fetching


def eager(bound: int) -> Transformer:
    """From the first ask on, upstream is kept at work: up to `bound` values beyond those that are asked for.

    Done and errors follow the values that came before them. An abort or an error from downstream
    drops what waits here.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values("abc"), eager(10), collect()).run()
    ['a', 'b', 'c']
    """
    whole("eager", "bound", bound, least=1)

    def open(_module: Module, edge: Edge) -> BatchRead:
        return _Ahead(edge, bound, bound - 1).read

    return Transformer.of("eager", open, batches=True)


def high_watermark(high: int, low: int | None = None) -> Transformer:
    """Fetches `high` values when the pipeline starts, and fills up again when no more than `low` are left.

    low: half of `high` by default. Both count values that are here or on their way, beyond those asked for.

    Done and errors follow the values that came before them. An abort or an error from downstream
    drops what waits here, and stops upstream once (the original asks and aborts again after an end).

    >>> from penstock.pull import collect, pull, values
    >>> pull(values("abc"), high_watermark(2), collect()).run()
    ['a', 'b', 'c']
    """
    whole("high_watermark", "high", high, least=1)
    least = high // 2 if low is None else low
    whole("high_watermark", "low", least, least=0)
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
        self._fetching = Fetching(edge, self._take, self._over)
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._ready: deque[Any] = deque()
        self._end: End | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._ready.clear()
            self._fetching.stop(abort, answer)
            return
        self._asks.append((answer, most))
        self._answer()
        self.fill()

    def fill(self) -> None:
        """Fetch up to the upper bound, if no more than the lower one are left."""
        ahead = len(self._ready) + self._fetching.outstanding - len(self._asks)
        if ahead <= self._low:
            self._fetching.want(self._high - ahead)

    def _answer(self) -> None:
        asks, ready = self._asks, self._ready
        while asks and ready:
            answer, most = asks.popleft()
            answer(None, [ready.popleft() for _ in range(min(most, len(ready)))])
        if asks and self._end is not None:
            asks.popleft()[0](self._end)

    def _take(self, values: list[Any]) -> None:
        self._ready.extend(values)
        self._answer()
        self.fill()

    def _over(self, end: End) -> None:
        self._end = end
        self._answer()
