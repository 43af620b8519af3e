"""What should not be and was passed over: the last of it, for people."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.compute.controller.status import ProblemNote

_KEPT = 100


class Anomalies:
    """The last problems; the same one again and again is one note."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._notes: deque[ProblemNote] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[ProblemNote]:
        return iter(self._notes)

    def __call__(self, replica: str | None, text: str) -> None:
        """Note a problem."""
        now = self._clock()
        last = self._notes[-1] if self._notes else None
        if last is not None and (last.replica, last.text) == (replica, text):
            self._notes[-1] = replace(last, at=now, times=last.times + 1)
        else:
            self._notes.append(ProblemNote(now, replica, text))
