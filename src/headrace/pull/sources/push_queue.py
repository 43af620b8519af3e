"""Thread-safe queue between the pushers of values and the module that emits them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.pull.protocol import End

Admitted = Callable[[bool], object]
"""Callback for a value that waited for room: True if it was added, False if the stream ended first."""


class PushQueue:
    """Queue of at most `bound` values; further values wait for room, in order.

    Invariant: values wait for room only while the queue is full; `_ring` is set only while it is empty.
    """

    def __init__(self, bound: int | None) -> None:
        self.bound = bound
        self._lock = threading.Lock()
        self._values: deque[Any] = deque()
        self._waiting: deque[tuple[Any, Admitted]] = deque()
        self._ring: Callable[[], object] | None = None
        self._end: End | None = None
        self._closed = False

    # -- for pushers ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._values)

    @property
    def ended(self) -> bool:
        """Whether the queue accepts no further values."""
        return self._closed or self._end is not None

    @property
    def full(self) -> bool:
        return self.bound is not None and len(self._values) >= self.bound

    def push(self, value: Any, admitted: Admitted | None = None) -> bool | None:
        """Add a value. Returns True if added, False if the queue has ended, None if there is no room.

        admitted: wait for room, and call this once the value is added or refused.
        """
        with self._lock:
            if self.ended:
                return False
            if self.full:
                if admitted is not None:
                    self._waiting.append((value, admitted))
                return None
            self._values.append(value)
            ring = self._answered()
        if ring is not None:
            ring()
        return True

    def give_up(self, admitted: Admitted) -> None:
        """Withdraw the waiting value that was pushed with this callback."""
        with self._lock:
            self._waiting = deque(entry for entry in self._waiting if entry[1] is not admitted)

    def end(self, end: End) -> None:
        """End the stream after the values pushed so far. Only the first call counts."""
        with self._lock:
            if self.ended:
                return
            self._end = end
            ring = self._answered()
        if ring is not None:
            ring()

    def _answered(self) -> Callable[[], object] | None:
        ring, self._ring = self._ring, None
        return ring

    # -- for the module -------------------------------------------------------------------------

    def take(self, most: int, expect: Callable[[], Callable[[], object]]) -> list[Any] | End | None:
        """Take 1 to `most` values. Returns the end after the last one, or None if nothing is available yet.

        expect: creates a function that the pushing thread calls once when a value arrives.
        """
        with self._lock:
            batch = [self._values.popleft() for _ in range(min(most, len(self._values)))]
            admitted: list[Admitted] = []
            while self._waiting and not self.full:
                value, callback = self._waiting.popleft()
                self._values.append(value)
                admitted.append(callback)
            if not batch and self._end is None and self._ring is None:
                self._ring = expect()
        for callback in admitted:
            callback(True)
        return batch or self._end

    def close(self) -> None:
        """Refuse further values, and drop the queued ones."""
        with self._lock:
            self._closed = True
            self._values.clear()
            waiting, self._waiting = self._waiting, deque()
            ring = self._answered()
        for _value, callback in waiting:
            callback(False)
        if ring is not None:
            ring()
