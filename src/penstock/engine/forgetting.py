"""What generated ticks call to let the first of rows close to each other pass."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any


def is_first(kept: list[Any], time: Any, within: Any) -> bool:
    """Whether no time in `kept`, which is sorted, is nearer than `within`. Then it is put there."""
    at = bisect_left(kept, time)
    if at < len(kept) and kept[at] - time < within:
        return False
    if at and time - kept[at - 1] < within:
        return False
    kept.insert(at, time)
    return True


def still_near(kept: list[Any], mark: Any, within: Any) -> list[Any]:
    """The times that a row which is still to come may be near to. mark: None is the end of time."""
    return [] if mark is None else [time for time in kept if time + within > mark]
