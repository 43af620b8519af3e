"""Buffer: asks that wait for values, values that wait for asks, and the end behind them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.pull.protocol import AnswerTo, End


class Buffer:
    """For modules that get other numbers of values than they are asked for.

    asks: downstream's, each for 1 to so many values. values: not given yet, in order.
    end: the end of upstream, to be answered after the values; failure: an error to be raised there.
    """

    __slots__ = ("asks", "end", "failure", "values")

    def __init__(self) -> None:
        self.asks: deque[tuple[AnswerTo, int]] = deque()
        self.values: deque[Any] = deque()
        self.end: End | None = None
        self.failure: Exception | None = None

    def give(self) -> Sequence[tuple[AnswerTo, int]]:
        """Answer asks by the values, then by the end. Returns the asks that need values from upstream."""
        asks, values = self.asks, self.values
        while asks and values:
            answer, most = asks.popleft()
            if len(values) <= most:
                given = list(values)
                values.clear()
            else:
                given = [values.popleft() for _ in range(most)]
            answer(None, given)
        if asks and self.failure is not None:
            raise self.failure
        if self.end is None:
            return asks
        if asks:
            asks.popleft()[0](self.end)
        return ()

    def clear(self) -> None:
        """Forget all: the stream is stopped."""
        self.asks.clear()
        self.values.clear()
