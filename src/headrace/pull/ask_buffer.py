"""Buffer of pending asks, buffered values, and the end of upstream."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from headrace.pull.protocol import AnswerTo, End


class Buffer:
    """Buffer for modules whose upstream answers do not match downstream's requests one to one.

    asks: downstream's asks, each with its limit on values. values: values not answered yet, in order.
    end: the end of upstream, to be answered after the values; failure: an error to raise there.
    """

    __slots__ = ("asks", "end", "failure", "values")

    def __init__(self) -> None:
        self.asks: deque[tuple[AnswerTo, int]] = deque()
        self.values: deque[Any] = deque()
        self.end: End | None = None
        self.failure: Exception | None = None

    def give(self) -> Sequence[tuple[AnswerTo, int]]:
        """Answer asks with the values, then with the end. Returns the asks that need more values."""
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
        """Drop asks and values of a stopped stream."""
        self.asks.clear()
        self.values.clear()
