"""timeout: upstream has so long to answer."""

from __future__ import annotations

from typing import Any

from penstock.errors import NoAnswerInTime, Step
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.options import positive
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import AnswerTo, End


def timeout(seconds: float) -> Transformer:
    """Values as they come; `NoAnswerInTime` where an ask is not answered within `seconds`.

    The time begins with the ask, and again with each answer while further asks wait: concurrent
    asks are answered one after the other. Upstream is failed with the error, and when it has
    confirmed, downstream gets it. A downstream that does not ask uses up no time. Done,
    errors and aborts pass; an abort has a time limit of its own (`confirm_within` of `run`).

    >>> from penstock.pull import collect, pull, values
    >>> pull(values("ab"), timeout(60), collect()).run()
    ['a', 'b']
    """
    positive("timeout", "seconds", seconds)
    return Transformer.of("timeout", lambda module, edge: _Timeout(module, edge, seconds).read, batches=True)


class _Timeout:
    """One timer at a time: it looks whether the limit was moved since it was set."""

    def __init__(self, module: Module, edge: Edge, seconds: float) -> None:
        self._module = module
        self._edge = edge
        self._seconds = seconds
        self._pending = 0
        self._limit = 0.0
        self._watching = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._pending = 0
            self._edge(abort, answer)
            return

        def got(end: End | None, value: Any = None, /) -> None:
            self._pending -= 1
            self._limit = self._module.now() + self._seconds
            answer(end, value)

        self._pending += 1
        if self._pending == 1:
            self._limit = self._module.now() + self._seconds
            if not self._watching:
                self._watch()
        self._edge.batch(most, got)

    def _watch(self) -> None:
        self._watching = True
        self._module.later(self._limit - self._module.now(), self._look)

    def _look(self) -> None:
        self._watching = False
        if not self._pending or self._edge.ended is not None:
            return  # nobody waits, or the end is on its way
        if self._limit > self._module.now():
            self._watch()
            return
        raise NoAnswerInTime(
            f"{self._edge.upper.name!r} has not answered within {self._seconds:g} s",
            where=[
                Step(self._edge.upper.location, "asked here"),
                Step(self._module.location, f"and waited for {self._seconds:g} s"),
            ],
            fix="give it more time, or go on without it: put a catch(...) behind the timeout",
            module=self._edge.upper.name,
            seconds=self._seconds,
        )
