"""Requests: those that a deferred module got before it was connected."""

from __future__ import annotations

from penstock.pull.edge import Edge
from penstock.pull.protocol import AnswerTo, End


class Requests:
    """Wait for an edge, and are made of it then, in order; later ones at once.

    An abort waits as well: to confirm it is to say that what will be connected has closed.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[End | None, AnswerTo, int]] = []
        self._edge: Edge | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if self._edge is None:
            self._waiting.append((abort, answer, most))
        elif abort is None:
            self._edge.batch(most, answer)
        else:
            self._edge(abort, answer)

    def connect(self, edge: Edge) -> None:
        self._edge = edge
        waiting, self._waiting = self._waiting, []
        for abort, answer, most in waiting:
            self.read(abort, answer, most)
