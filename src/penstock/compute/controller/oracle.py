"""Times: which one a group of writes gets, and which one a read is at.

Writes get increasing times, the clock's milliseconds where it is ahead. A read is at the time of the last
acknowledged write, so it sees every write that was acknowledged before it, and no two reads, one after the
other, go back (strict serializable).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from penstock.compute.frontier import LAST_TIME, Frontier

_REMEMBERED = 4096


class Oracle:
    """The timeline of one controller.

    last: the greatest time given to a write, acknowledged or not.
    read: the time of the last acknowledged write.
    """

    def __init__(self, clock: Callable[[], int], last: int) -> None:
        self.last = last
        self.read = last
        self._clock = clock
        self._acknowledged: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)

    def next(self) -> int:
        """The time for a group of writes: above all others."""
        self.last = min(max(self.last + 1, self._clock()), LAST_TIME - 1)
        return self.last

    def skip(self, upper: Frontier) -> None:
        """Times before `upper` are taken, by whomever."""
        if upper.time is not None:
            self.last = max(self.last, upper.time - 1)

    def acknowledge(self, time: int) -> None:
        """What happened at a time is durable: reads see it from now on."""
        if time > self.read:
            self.read = time
            self._acknowledged.append((time, self._clock()))

    def is_within(self, staleness: int, time: int) -> bool:
        """Whether what was there at a time was current `staleness` ms ago or later.

        It is current until the next write is acknowledged, by the clock: times may be ahead of that. False
        where that was too long ago to be known.
        """
        if time >= self.read:
            return True
        recent = self._acknowledged
        if not recent or time < recent[0][0]:
            return False
        _, superseded = recent[bisect_right(recent, time, key=_time)]
        return self._clock() - superseded <= staleness


def _time(acknowledged: tuple[int, int]) -> int:
    return acknowledged[0]
