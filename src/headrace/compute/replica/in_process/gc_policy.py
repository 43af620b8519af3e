"""Garbage collection in a replica, kept out of ongoing work and never scanning a whole index.

By default, the collector repeatedly traverses all objects while an index grows, which takes a tenth of a
second per million rows. Nearly all objects of a replica are freed by reference counting. So young objects are
collected often, at little cost, but all objects only when the replica is idle and a view was dropped (its
engine can be freed in no other way) or a long time has passed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

YOUNG = 20_000
"""Number of allocations before young objects are collected, which takes a millisecond or two."""
OLD = 300.0
"""Seconds between full collections, run when the replica is idle."""
SOON = 10.0
"""Seconds before a full collection after a view was dropped, since others may be dropped with it."""


class GcPolicy:
    """Garbage-collection policy of this process until closed. timer: seconds."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._was_enabled = gc.isenabled()
        self._due = timer() + OLD
        gc.disable()

    def slice(self, busy: bool) -> None:
        """Collect young objects, or all if due and idle."""
        if gc.get_count()[0] > YOUNG:
            gc.collect(1)
        if not busy and self._timer() > self._due:
            gc.collect()
            self._due = self._timer() + OLD

    def schedule_collection(self) -> None:
        """Schedule a full collection soon, because a view was dropped."""
        self._due = min(self._due, self._timer() + SOON)

    def close(self) -> None:
        """Restore the collector."""
        if self._was_enabled:
            gc.enable()
