"""Fetching: request any number of values, with enough requests in flight to keep upstream busy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.pull.ask_buffer import Buffer
from headrace.pull.edge import Edge
from headrace.pull.protocol import AnswerTo, End


class Fetching:
    """Request loop for modules that fetch more or fewer values than downstream asks for.

    take: called with each list of values, in order; at the end, which is then in the buffer, with an empty
          list. Not called after `stop`.
    """

    def __init__(self, edge: Edge, buffer: Buffer, take: Callable[[list[Any]], object]) -> None:
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
