"""throttle: no more values in a time than so many."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.errors import BadOption, SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.options import positive
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import AnswerTo, End
from penstock.pull.runtime import Cancellable


def throttle(*, per_second: float | None = None, every: float | None = None) -> Transformer:
    """Values at least `every` seconds apart, or 1 / `per_second`; give one of the two.

    Each ask asks upstream at once; the value waits here until its time has come, nothing is lost. The
    first value does not wait, and ends do not: they follow the last value. An abort or an error
    from downstream drops what waits.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values("ab"), throttle(every=0.001), collect()).run()
    ['a', 'b']
    """
    if (per_second is None) == (every is None):
        raise BadOption(
            "throttle() takes one of two options",
            where=[SourceLocation.of_caller()],
            why="per_second= and every= say the same thing in two ways.",
            fix="throttle(per_second=10) or throttle(every=0.1)",
        )
    if every is not None:
        positive("throttle", "every", every)
        seconds = every
    else:
        positive("throttle", "per_second", per_second)
        assert per_second is not None
        seconds = 1 / per_second
    return Transformer.of("throttle", lambda module, edge: _Throttle(module, edge, seconds).read)


class _Throttle:
    def __init__(self, module: Module, edge: Edge, seconds: float) -> None:
        self._module = module
        self._edge = edge
        self._seconds = seconds
        self._asks: deque[AnswerTo] = deque()
        self._come: deque[tuple[End | None, Any]] = deque()
        self._timer: Cancellable | None = None  # until the next value may go
        self._end: End | None = None  # of upstream, by itself
        self._stopped = False

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._asks.append(answer)
            self._edge(None, self._got)
            return
        self._stopped = True
        if isinstance(self._end, Exception):
            self._asks[0](self._end)  # so downstream can tell that closing is not what has failed
        self._asks.clear()
        self._come.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._end is not None:
            answer(self._end)
        else:
            self._edge(abort, answer)

    def _got(self, end: End | None, value: Any = None, /) -> None:
        if not self._stopped:
            self._end = self._end or end
            self._come.append((end, value))
            self._answer()

    def _answer(self) -> None:
        while self._come and (self._timer is None or self._come[0][0] is not None):
            end, value = self._come.popleft()
            self._asks.popleft()(end, value)
            if end is None:
                self._timer = self._module.later(self._seconds, self._in_time)

    def _in_time(self) -> None:
        self._timer = None
        self._answer()
