"""take, take_while: the first values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.pull.edge import Edge
from penstock.pull.options import whole
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import AnswerTo, End
from penstock.pull.stop_once import StopOnce
from penstock.pull.synchronous import AWAIT_BEFORE, synchronous


def take(count: int) -> Transformer:
    """The first `count` values (0 or less: none). It asks upstream for no more than these.

    The ask after the last value aborts upstream, once; what closing fails with is its answer.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values([1, 2, 3]), take(2), collect()).run()
    [1, 2]
    """
    whole("take", "count", count)
    return Transformer.of("take", lambda _module, edge: _Take(edge, count).read, batches=True)


class _Take:
    """Asks beyond the last value wait until all before them are answered: an abort would drop those."""

    def __init__(self, edge: Edge, count: int) -> None:
        self._edge = edge
        self._left = count  # values not asked for yet
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
        self._edge.batch(most, got)


def take_while(test: Callable[[Any], Any], *, last: bool = False) -> Transformer:
    """The values before the first for which `test(value)` is false; later ones are not tested.

    last: pass that one too.

    Each ask asks upstream once and at once. Values, and an end, of asks that were made before the last
    value was known are dropped. The ask that finds the end (with `last`: the one after it) aborts
    upstream, once, and is answered when that has confirmed; what closing fails with is its
    answer. What the test raises fails the stream on both sides.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values([1, 2, 9, 1]), take_while(lambda x: x < 5), collect()).run()
    [1, 2]
    >>> pull(values([1, 2, 9, 1]), take_while(lambda x: x < 5, last=True), collect()).run()
    [1, 2, 9]
    """
    checked = synchronous("take_while", test, fix=AWAIT_BEFORE).calling(test)
    return Transformer.of(
        "take_while", lambda _module, edge: _TakeWhile(edge, checked, last).read, batches=True
    )


class _TakeWhile:
    def __init__(self, edge: Edge, test: Callable[[Any], Any], last: bool) -> None:
        self._edge = edge
        self._test = test
        self._last = last
        self._asks: deque[AnswerTo] = deque()
        self._stop = StopOnce(edge)
        self._last_seen = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._stop(abort, answer)
            return
        self._asks.append(answer)
        if self._last_seen:
            self._close()
        else:
            self._edge.batch(most, self._got)

    def _got(self, end: End | None, values: Any = None, /) -> None:
        if self._stop.called:
            return  # answered when upstream has confirmed
        if end is not None:
            self._asks.popleft()(end)
            return
        passed: list[Any] = []
        try:
            self._choose(values, passed)
        finally:  # what came before an exception of the test is answered before it
            if passed:
                self._asks.popleft()(None, passed)
        if self._last_seen and self._asks:
            self._close()

    def _choose(self, values: list[Any], passed: list[Any]) -> None:
        for value in values:
            if not self._test(value):
                self._last_seen = True
                if self._last:
                    passed.append(value)
                return
            passed.append(value)

    def _close(self) -> None:
        self._stop(True, self._closed)

    def _closed(self, end: End | None, _value: Any = None, /) -> None:
        # Upstream may have failed before it heard of the abort: at a value that nobody wants.
        asks, self._asks = self._asks, deque()
        for answer in asks:
            answer(end if self._edge.stop_arrived else True)
