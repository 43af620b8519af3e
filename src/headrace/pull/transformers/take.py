"""`take`: keep the first values."""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.pull.argument_checks import check_integer
from headrace.pull.edge import Edge
from headrace.pull.modules import Transformer
from headrace.pull.protocol import AnswerTo, End
from headrace.pull.stop_once import StopOnce


def take(count: int) -> Transformer:
    """Keep the first `count` values (0 or less: none), and ask upstream for no more.

    The ask after the last value aborts upstream, once; any error of closing is its answer.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 3]), take(2), collect()).run()
    [1, 2]
    """
    check_integer("take", "count", count)
    return Transformer.of("take", lambda _module, edge: _Take(edge, count).read, batches=True)


class _Take:
    """Running `take`. Asks beyond the last value wait, because an abort would drop the pending values."""

    def __init__(self, edge: Edge, count: int) -> None:
        self._edge = edge
        self._left = count  # number of values not asked for yet
        self._in_flight = 0
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._stop = StopOnce(edge)

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._stop(abort, answer)
        else:
            self._asks.append((answer, most))
            self._go_on()

    def _go_on(self) -> None:
        while self._asks and self._left > 0:
            answer, most = self._asks.popleft()
            self._ask(answer, min(self._left, most))
        if self._asks and not self._in_flight and not self._stop.called:
            self._stop(True, self._asks.popleft()[0])

    def _ask(self, answer: AnswerTo, most: int) -> None:
        def got(end: End | None, values: Any = None, /) -> None:
            self._in_flight -= 1
            if end is None:
                self._left += most - len(values)
            answer(end, values)
            if end is None:
                self._go_on()

        self._left -= most
        self._in_flight += 1
        self._edge(None, got, most)
