"""Frontiers: the boundary between settled times and those that may still change.

A time is an int from 0 to `LAST_TIME`, in milliseconds if it comes from a clock. Times are totally ordered
here, so an antichain of times has one element or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LAST_TIME = 2**63 - 1
"""Largest time, which every store can hold."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """Set of the times at or after `time`; empty if `time` is None (`END`, the latest frontier).

    As an upper: times before it are settled, those at or after it may still change. As a since: times before
    it can no longer be distinguished, those at or after it can be read.
    Frontiers are ordered from early to late; `a <= b` if a contains every time of b.

    >>> Frontier(3) < Frontier(5) < END
    True
    >>> Frontier(5).has_passed(4), Frontier(5).has_passed(5), END.has_passed(5)
    (True, False, True)
    """

    time: int | None

    def __post_init__(self) -> None:
        if self.time is not None and not 0 <= self.time <= LAST_TIME:
            raise ValueError(f"no time: {self.time}")

    @property
    def ended(self) -> bool:
        """Whether the frontier is empty: no time remains."""
        return self.time is None

    def has_passed(self, time: int) -> bool:
        """Whether `time` is before the frontier: settled, for an upper; compacted, for a since."""
        return self.time is None or time < self.time

    def __le__(self, other: Frontier) -> bool:
        return other.time is None or (self.time is not None and self.time <= other.time)

    def __lt__(self, other: Frontier) -> bool:
        return self != other and self <= other

    def __ge__(self, other: Frontier) -> bool:
        return other <= self

    def __gt__(self, other: Frontier) -> bool:
        return other < self

    def __str__(self) -> str:
        return "[]" if self.time is None else f"[{self.time}]"

    def step_back(self) -> Frontier:
        """Return the frontier at the last time it has passed; itself if there is none, or for END."""
        return Frontier(self.time - 1) if self.time else self


START = Frontier(0)
"""Earliest frontier: no time is passed."""
END = Frontier(None)
"""Latest frontier: all times are passed. As an upper: sealed. As a since: dropped."""


def meet(frontiers: Iterable[Frontier]) -> Frontier:
    """Return the earliest frontier; END if there are none."""
    return min(frontiers, default=END)


def join(frontiers: Iterable[Frontier]) -> Frontier:
    """Return the latest frontier; START if there are none."""
    return max(frontiers, default=START)
