"""Throttling of calls that show something to a person."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.pull.pipeline_runtime import running_loop


class Throttle:
    """Calls of `action` at most once every `between` seconds; the last request is served, too.

    Called within an event loop, as in a notebook, a request that comes too early is served later by the loop.
    Without a loop, every request is served at once.
    """

    def __init__(
        self, action: Callable[[], object], between: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._action = action
        self._between = between
        self._clock = clock
        self._last: float | None = None
        self._requested = False
        self._scheduled = False

    def __call__(self) -> None:
        """Request a call."""
        now = self._clock()
        wait = 0.0 if self._last is None else self._last + self._between - now
        loop = running_loop() if wait > 0 else None
        if loop is None:
            self._requested = False
            self._last = now
            self._action()
            return
        self._requested = True
        if not self._scheduled:
            self._scheduled = True
            loop.call_later(wait, self._late)

    def _late(self) -> None:
        self._scheduled = False
        if self._requested:
            self()
