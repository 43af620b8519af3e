"""Buffers for modules that do not map asks to answers one to one: pending asks, prefetched values, stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headrace.pull.edge import PullEdge
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


class FetchLoop:
    """Request loop for modules that fetch more or fewer values than downstream asks for.

    take: called with each list of values, in order; at the end, which is then in the buffer, with an empty
          list. Not called after `stop`.
    """

    def __init__(self, edge: PullEdge, buffer: Buffer, take: Callable[[list[Any]], object]) -> None:
        self._edge = edge
        self._buffer = buffer
        self._take = take
        self._requests = 0
        self._stopped = False
        self._to_ask = 0
        self.outstanding = 0
        """Number of wanted values that have not arrived."""

    def want(self, count: int) -> None:
        """Fetch `count` more values (0 or less: none)."""
        if count > 0:
            self.outstanding += count
            self._to_ask += count
            self._ask()

    def stop(self, cause: End, answer: AnswerTo) -> None:
        """Drop buffered values, and stop upstream, or answer with its end if it has ended."""
        self._buffer.clear()
        self._stopped = True
        if self._buffer.end is not None:
            answer(self._buffer.end)
        else:
            self._edge(cause, answer)

    def _ask(self) -> None:
        while self._to_ask > 0 and self._requests < self._edge.window and not self._stopped:
            # Split evenly, so that all requests of the window are used even for few values.
            most = -(-self._to_ask // (self._edge.window - self._requests))
            self._to_ask -= most
            self._requests += 1
            self._edge(None, partial(self._got, most), most)

    def _got(self, most: int, end: End | None, values: Any = (), /) -> None:
        if self._stopped:
            return
        self._requests -= 1
        if end is not None:
            self._stopped = True
            self._buffer.end = end
            values = []
        else:
            self.outstanding -= len(values)
            self._to_ask += most - len(values)
        self._take(values)
        self._ask()


class StopOnce:
    """Function that stops an edge on the first call, and answers all calls once the edge has confirmed."""

    def __init__(self, edge: PullEdge) -> None:
        self._edge = edge
        self._waiting: list[AnswerTo] = []
        self._end: End | None = None
        self.called = False

    def __call__(self, cause: End, answer: AnswerTo) -> None:
        self._waiting.append(answer)
        if not self.called:
            self.called = True
            self._edge(cause, self._confirmed)
        elif self._end is not None:
            self._confirmed(self._end)

    def _confirmed(self, end: End | None, _value: Any = None, /) -> None:
        self._end = end
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer(end)
