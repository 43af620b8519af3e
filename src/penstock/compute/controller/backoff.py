"""Back-off: how long to wait before the next try, longer each time, never twice the same."""

from __future__ import annotations

import random


def pause(random: random.Random, tries: int, first: int, longest: int) -> int:
    """Milliseconds before the next try, after `tries` that failed.

    Doubles from `first` up to `longest`; the half of it is left to chance, so that those who failed together
    do not come back together.
    """
    most = min(first << min(max(tries - 1, 0), 30), longest)
    return most - random.randint(0, most // 2)
