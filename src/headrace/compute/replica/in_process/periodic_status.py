"""Metrics and states that a replica periodically reports to its controller (`Status`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from headrace.compute.protocol.responses import Status
from headrace.compute.replica.in_process.dataflows import RunningDataflow

SAMPLES = 1000
"""Number of recent cancelled peeks that are sampled."""


class Introspection:
    """Reports on a replica's dataflows every `interval` milliseconds; 0 disables them.

    clock: milliseconds. memory: returns the process's memory in bytes, if it should be reported.
    """

    def __init__(self, interval: int, clock: Callable[[], int], memory: Callable[[], int] | None) -> None:
        self._memory = memory
        self._interval = interval
        self._clock = clock
        self._due = clock()
        self._reported: dict[RunningDataflow, str] = {}
        self._cancels: deque[float] = deque(maxlen=SAMPLES)

    def record_cancellation(self, seconds: float) -> None:
        """Record how long a cancellation may have waited."""
        self._cancels.append(seconds * 1000)

    def look(self, dataflows: Iterable[RunningDataflow], peeks: int) -> list[Status]:
        """Return the statuses to report, if they are due."""
        if not self._interval or self._clock() < self._due:
            return []
        self._due = self._clock() + self._interval
        running = list(dict.fromkeys(dataflows))
        return [*self._news(running), Status(None, "replica", self._values(running, peeks))]

    def _news(self, running: list[RunningDataflow]) -> list[Status]:
        """Return the new state of each dataflow whose state has changed."""
        found: list[Status] = []
        for each in running:
            text = _state(each)
            if text != self._reported.get(each):
                found += [Status(id, text) for id in sorted(each.wanted)]
        self._reported = {each: _state(each) for each in running}
        return found

    def _values(self, running: list[RunningDataflow], peeks: int) -> tuple[tuple[str, float], ...]:
        indexes = [index for each in running for index in each.maintained_indexes]
        values: dict[str, float] = {
            "rows": sum(index.weight for index in indexes),
            "changes": sum(index.distinguished_times for index in indexes),
            "dataflows": len(running),
            "peeks": peeks,
        }
        if self._memory is not None:
            values["memory"] = self._memory()
        if self._cancels:
            ordered = sorted(self._cancels)
            values |= {
                "cancel_ms": ordered[len(ordered) // 2],
                "cancel_ms_p99": ordered[len(ordered) * 99 // 100],
                "cancel_ms_max": ordered[-1],
            }
        return tuple(values.items())


def _state(running: RunningDataflow) -> str:
    if running.failed is not None:
        return running.failed.error.what
    return "hydrated" if running.hydrated else "hydrating"
