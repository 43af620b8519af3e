"""take_while: the values before the first that fails a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.edge import Edge
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import AnswerTo, End
from penstock.pull.stop_once import StopOnce


def take_while(test: Callable[[Any], Any], *, last: bool = False) -> Transformer:
    """The values before the first for which `test(value)` is false; later ones are not tested.

    last: pass that one too.

    Every ask is passed on, so that no more values are asked for than downstream wants; those
    that come after the end was found are dropped. The ask that finds the end (with `last`: the one
    after it) aborts upstream, once, and is answered when that has confirmed; what closing fails
    with is its answer. What the test raises fails the stream on both sides.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values([1, 2, 9, 1]), take_while(lambda x: x < 5), collect()).run()
    [1, 2]
    >>> pull(values([1, 2, 9, 1]), take_while(lambda x: x < 5, last=True), collect()).run()
    [1, 2, 9]
    """
    return Transformer.of("take_while", lambda _module, edge: _TakeWhile(edge, test, last).read)


class _TakeWhile:
    def __init__(self, edge: Edge, test: Callable[[Any], Any], last: bool) -> None:
        self._edge = edge
        self._test = test
        self._last = last
        self._over = False
        self._in_flight = 0
        self._stop = StopOnce(edge)

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is not None or self._over:
            self._stop(abort or True, answer)
            return

        def got(end: End | None, value: Any = None, /) -> None:
            self._in_flight -= 1
            if end is not None:
                answer(end)
            elif self._test(value):
                answer(None, value)
            else:
                self._finish(answer, value)

        self._in_flight += 1
        self._edge(None, got)

    def _finish(self, answer: AnswerTo, value: Any) -> None:
        self._over = True
        if not self._last:
            self._stop(True, answer)
            return
        answer(None, value)
        if self._in_flight:  # the ask after the last value has been made already
            self._stop(True, _nobody)


def _nobody(_end: End | None, _value: Any = None, /) -> None:
    """Asks that were passed on get the end, and that answers for all."""
