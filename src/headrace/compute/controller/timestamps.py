"""Timestamp selection for writes and reads.

Writes get increasing times, the clock's milliseconds if that is ahead. A read is at the time of the last
acknowledged write, so it sees every write acknowledged before it, and successive reads never go back in time
(strict serializable). A read may also specify its time, or bound its staleness.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from headrace.compute.controller.catalog import CollectionEntry, ViewEntry
from headrace.compute.controller.holds import ReadHold
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.requests import PeekRequest
from headrace.compute.errors import BadMessage, SinceViolation
from headrace.compute.frontier import END, LAST_TIME, Frontier
from headrace.compute.protocol.dataflow import Id

_REMEMBERED = 4096


class TimestampOracle:
    """Timestamp oracle of one controller.

    last: greatest time of a write, acknowledged or not.
    read: time of the last acknowledged write.
    """

    def __init__(self, clock: Callable[[], int], last: int) -> None:
        self.last = last
        self.read = last
        self._clock = clock
        self._acknowledged: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)

    def assign_write_time(self) -> int:
        """Assign a time to a group of writes, above all earlier ones."""
        self.last = min(max(self.last + 1, self._clock()), LAST_TIME - 1)
        return self.last

    def skip_to(self, upper: Frontier) -> None:
        """Skip the times before `upper`, which are already used."""
        if upper.time is not None:
            self.last = max(self.last, upper.time - 1)

    def acknowledge(self, time: int) -> None:
        """Make a durable write visible to strict reads."""
        if time > self.read:
            self.read = time
            self._acknowledged.append((time, self._clock()))

    def is_within(self, staleness: int, time: int) -> bool:
        """Whether the contents at a time were current at most `staleness` ms ago.

        They are current until the next write is acknowledged, by the clock, since write times may be ahead of
        it. False if that was too long ago to be remembered.
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


Entry: TypeAlias = CollectionEntry | ViewEntry


class ReadTimestamps:
    """Timestamp selection for reads.

    fence: raises `StaleEpoch` if another controller may have acknowledged writes unknown to this one.
    settled: returns the latest upper of a view or collection on connected replicas, or START.
    """

    def __init__(
        self,
        instance: Instance,
        oracle: TimestampOracle,
        fence: Callable[[], None],
        settled: Callable[[Id], Frontier],
    ) -> None:
        self._instance = instance
        self._oracle = oracle
        self._fence = fence
        self._settled = settled

    def select_time(self, request: PeekRequest, entry: Entry) -> int:
        """Select the time of a peek. Raises `SinceViolation`, `BadMessage`, `StaleEpoch`."""
        if request.at is not None:
            if request.staleness is not None:
                raise BadMessage("a read has a time or a bound on its staleness, not both", field="staleness")
            return self.check_readable(request.at, entry)
        if request.staleness is not None:
            if request.staleness < 0:
                raise BadMessage(f"staleness of {request.staleness} ms", field="staleness")
            self._fence()
            settled = self._fresh_enough(entry.id, request.staleness)
            if settled is not None:
                return settled
        return self.select_strict_time(entry)

    def check_readable(self, time: int, entry: Entry) -> int:
        """Check a time given by a client. Raises `SinceViolation` if it is compacted, and `BadMessage`."""
        if not 0 <= time < LAST_TIME:
            raise BadMessage(f"{time} is not a valid time", field="at")
        since = self._instance.holds.since(entry.id)
        if since.has_passed(time):
            raise SinceViolation(
                f"time {time} of {entry.name!r} can no longer be read",
                why=f"It can be read from time {since.time} on."
                if since.time is not None
                else "It is complete.",
                fix="read a later time, or create the view with a greater `keep`",
                id=entry.id,
                time=time,
                since=since,
            )
        return time

    def select_strict_time(self, entry: Entry) -> int:
        """Select the time of a strict read: that of the last acknowledged write, or the since if later.

        Raises `StaleEpoch`, `SinceViolation`.
        """
        self._fence()
        since = self._instance.holds.since(entry.id).time
        if since is None:
            raise SinceViolation(
                f"{entry.name!r} is complete, and can no longer be read",
                fix="read the collection that it is written into",
                id=entry.id,
                since=END,
            )
        return max(self._oracle.read, since)

    def acquire_hold(self, id: Id, time: int) -> ReadHold:
        """Acquire a hold that keeps `id` readable from a time on."""
        hold = self._instance.holds.acquire(id)
        hold.downgrade(Frontier(time))
        return hold

    def _fresh_enough(self, id: Id, staleness: int) -> int | None:
        settled = self._settled(id).time
        since = self._instance.holds.since(id).time
        if not settled or since is None:
            return None
        time = min(settled - 1, self._oracle.read)
        return time if time >= since and self._oracle.is_within(staleness, time) else None
