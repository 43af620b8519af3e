"""`eager`, `high_watermark`: fetch values before they are asked for, up to a bound."""

from __future__ import annotations

from typing import Any

from headrace.errors import BadOption, SourceLocation
from headrace.pull.argument_checks import check_integer
from headrace.pull.ask_buffer import Buffer, Fetching
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Transformer
from headrace.pull.protocol import AnswerTo, BatchRead, End


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
