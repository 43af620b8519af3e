"""Read loops of sinks, paced by the arrival or by the processing of values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.pull.edge import Edge
from headrace.pull.protocol import End


class ReadLoop:
    """Loop that reads an edge until it ends or `stop` is called, and passes on its values in order.

    take: called with each list of 1 to `batch` values. over: called once, with the end.
    batch: number of values per request. More than one is faster, but all modules upstream work that many
           values ahead of the sink.
    """

    def __init__(
        self,
        edge: Edge,
        take: Callable[[list[Any]], object],
        over: Callable[[End], object],
        *,
        batch: int = 1,
    ) -> None:
        self._edge = edge
        self._take = take
        self._over = over
        self._batch = batch
        self.stopped = False

    def start(self) -> None:
        """Make the first requests."""
        for _ in range(self._edge.window):
            self._ask()

    def stop(self) -> None:
        """Make no further requests, and pass on no further values."""
        self.stopped = True

    def _ask(self) -> None:
        self._edge(None, self._got, self._batch)

    def _got(self, end: End | None, values: Any = None, /) -> None:
        if self.stopped:
            return
        if end is not None:
            self.stopped = True
            self._over(end)
            return
        self._take(values)
        if not self.stopped:
            self._edge(None, self._got, self._batch)


class WorkerLoop:
    """Loop that reads an edge and processes up to `width` values at once, started in order.

    begin: `begin(value, finished)` starts processing, and arranges for a call of `finished()`.
    over:  called once: with done when all work is finished, or immediately with an error; values waiting to
           be processed are then dropped.

    If the edge is stopped by someone else (when the run is stopped), the loop does nothing any more.

    The total number of values requested, waiting and being processed is limited to `width`, or to the number
    of requests that keeps all modules upstream busy, whichever is greater.
    """

    def __init__(
        self,
        edge: Edge,
        begin: Callable[[Any, Callable[[], None]], object],
        over: Callable[[End], object],
        *,
        width: int = 1,
    ) -> None:
        self._edge = edge
        self._begin = begin
        self._over = over
        self._width = width
        self._waiting: deque[Any] = deque()
        self._running = 0
        self._ended = False
        self._stopped = False
        self._beginning = False

    def start(self) -> None:
        """Make the first requests."""
        for _ in range(max(self._width, self._edge.window)):
            self._edge(None, self._got)

    def stop(self) -> None:
        """Make no further requests, and start no further work."""
        self._stopped = True
        self._waiting.clear()

    def _got(self, end: End | None, value: Any = None, /) -> None:
        if self._stopped or self._ended or self._edge.stopped:
            return
        if end is None:
            self._waiting.append(value)
        elif isinstance(end, Exception):
            self.stop()
            self._over(end)
        else:
            self._ended = True
        self._go_on()

    def _finished(self) -> None:
        self._running -= 1
        if not (self._stopped or self._ended or self._edge.stopped):
            self._edge(None, self._got)
        self._go_on()

    def _go_on(self) -> None:
        if self._beginning:
            return  # work that finished synchronously: the loop below continues with the next value
        self._beginning = True
        try:
            while self._waiting and self._running < self._width and not self._edge.stopped:
                self._running += 1
                self._begin(self._waiting.popleft(), self._finished)
        finally:
            self._beginning = False
        if self._ended and not (self._stopped or self._waiting or self._running or self._edge.stopped):
            self._stopped = True
            self._over(True)
