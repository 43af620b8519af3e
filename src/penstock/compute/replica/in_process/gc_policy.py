"""When Python looks for garbage in a replica: never in the middle of work, and never through all of an index.

Left to itself, the collector goes through every object that is there again and again while an index grows: at
a million rows that is a tenth of a second each time. Nearly all of what a replica makes is freed without it.
So it looks at what is young, often and for little; and at everything only when there is nothing else to do,
and a view was dropped, whose engine is freed by that alone, or a long time has passed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

YOUNG = 20_000
"""How many objects are made before those are looked at: a millisecond or two."""
OLD = 300.0
"""Seconds after which all objects are looked at, if the replica is idle."""
SOON = 10.0
"""Seconds after which they are, where a view was dropped: others may be dropped with it."""


class GcPolicy:
    """Takes the collector of this process over, until it is closed. timer: seconds."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._was_enabled = gc.isenabled()
        self._due = timer() + OLD
        gc.disable()

    def slice(self, busy: bool) -> None:
        """Look a little; at everything if it is time and there is no other work."""
        if gc.get_count()[0] > YOUNG:
            gc.collect(1)
        if not busy and self._timer() > self._due:
            gc.collect()
            self._due = self._timer() + OLD

    def dropped(self) -> None:
        """Something large was dropped."""
        self._due = min(self._due, self._timer() + SOON)

    def close(self) -> None:
        """Leave the collector as it was."""
        if self._was_enabled:
            gc.enable()
