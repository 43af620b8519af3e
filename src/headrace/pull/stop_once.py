"""`StopOnce`: stop upstream once, for modules that may be stopped after stopping it themselves."""

from __future__ import annotations

from typing import Any

from headrace.pull.edge import Edge
from headrace.pull.protocol import AnswerTo, End


class StopOnce:
    """Function that stops an edge on the first call, and answers all calls once the edge has confirmed."""

    def __init__(self, edge: Edge) -> None:
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
