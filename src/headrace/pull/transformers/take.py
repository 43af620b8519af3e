"""`take`, `take_while`: keep the first values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.pull.argument_checks import AWAIT_BEFORE, check_integer, synchronous_check
from headrace.pull.ask_buffer import StopOnce
from headrace.pull.edge import Edge
from headrace.pull.modules import Transformer
from headrace.pull.protocol import AnswerTo, BatchRead, End


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


# --- `take_while`: keep the values before the first that fails a test -----------------------------


def take_while(test: Callable[[Any], Any], *, last: bool = False) -> Transformer:
    """Keep the values before the first for which `test(value)` is false; later ones are not tested.

    last: also keep the value that fails the test.

    Each ask immediately asks upstream once. Values, or an end, answered to asks made before the last value
    was known are dropped. The ask that finds the failing value (with `last`, the next one) aborts upstream,
    once, and is answered once that has confirmed, with any error of closing. An exception of the test fails
    the stream on both sides.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 9, 1]), take_while(lambda x: x < 5), collect()).run()
    [1, 2]
    >>> pull(values([1, 2, 9, 1]), take_while(lambda x: x < 5, last=True), collect()).run()
    [1, 2, 9]
    """
    checked = synchronous_check("take_while", test, fix=AWAIT_BEFORE).calling(test)
    return Transformer.of("take_while", lambda _module, edge: _take_while(edge, checked, last), batches=True)


def _take_while(edge: Edge, test: Callable[[Any], Any], last: bool) -> BatchRead:
    asks: deque[AnswerTo] = deque()
    stop = StopOnce(edge)
    last_seen = False

    def read(abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            asks.clear()
            stop(abort, answer)
            return
        asks.append(answer)
        if last_seen:
            stop(True, closed)
        else:
            edge(None, got, most)

    def got(end: End | None, values: Any = None, /) -> None:
        if stop.called:
            return  # answered once upstream has confirmed
        if end is not None:
            asks.popleft()(end)
            return
        passed: list[Any] = []
        try:
            choose(values, passed)
        finally:  # values before an exception of the test are answered first
            if passed:
                asks.popleft()(None, passed)
        if last_seen and asks:
            stop(True, closed)

    def choose(values: list[Any], passed: list[Any]) -> None:
        nonlocal last_seen
        for value in values:
            last_seen = not test(value)
            if last or not last_seen:
                passed.append(value)
            if last_seen:
                return

    def closed(end: End | None, _value: Any = None, /) -> None:
        # Upstream may have failed before the abort reached it, at an unwanted value.
        waiting = [*asks]
        asks.clear()
        for answer in waiting:
            answer(end if edge.was_stopped else True)

    return read
