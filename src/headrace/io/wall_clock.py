"""Wall clock as a source: time is an ordinary input, so runs that depend on it can be replayed."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.errors import SourceLocation, WrongType
from headrace.expr.time_texts import duration, format_duration
from headrace.io.in_process import convert_rows
from headrace.io.source import Batch, Feed, NextDue, Reader, Source, open_source

_LAST = "last"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_POLL = timedelta(seconds=1)
_LONGEST = 60.0
"""Limit on the seconds between polls, because clocks may be set forward and machines may sleep."""


def _system_time() -> datetime:
    return datetime.now(UTC)


def _check_span(every: timedelta | str) -> None:
    """Raise `WrongType` unless a clock can have this span."""
    if duration(every) <= timedelta():
        raise WrongType(
            f"a clock needs a span above 0, got {format_duration(duration(every))}",
            where=[SourceLocation.of_caller()],
        )


@dataclass(frozen=True)
class WallClock(Source):
    """Source of the current time (UTC): each multiple of `every` since 1970, once it has passed.

    After a pause, only the latest of several passed multiples is emitted. Emitted times never decrease, even
    if the clock is set back. The source never ends, so the run continues until it is stopped; with a
    checkpoint, the next run continues with later times.

    Raises `WrongType` unless `every` is a positive time span.
    """

    every: timedelta | str
    now: Callable[[], datetime] = field(default=_system_time, repr=False)

    def __post_init__(self) -> None:
        _check_span(self.every)


@dataclass(frozen=True)
class TickTime(Source):
    """Time of this machine (UTC), for answers that depend on it: once as a run begins, then while it follows.

    every:   time between two of them. A run that does not follow its sources has one time.
    soonest: in this process, a time comes also when the next row falls due by it, this long after the one
             before at the soonest.

    Times never decrease, even if the clock is set back. Runs feed it to a source `tick_time` for which
    nothing is given. Raises `WrongType` unless `every` is a positive time span.
    """

    every: timedelta | str = "10s"
    now: Callable[[], datetime] = field(default=_system_time, repr=False)
    soonest: timedelta | str = "100ms"

    def __post_init__(self) -> None:
        _check_span(self.every)
        _check_span(self.soonest)

    def take(
        self, taken: MutableMapping[Any, Any], *, begins: bool, next_due: NextDue | None = None
    ) -> datetime | None:
        """Return the time if there is to be one, and record it in `taken`.

        begins: none was taken in this run.
        """
        last: datetime | None = taken.get(_LAST)
        now = self.now()
        if last is not None and now < (last if begins else self._next(last, next_due)):
            return None
        taken[_LAST] = now
        return now

    def _next(self, last: datetime, next_due: NextDue | None) -> datetime:
        following = last + duration(self.every)
        due = None if next_due is None else next_due(last)
        return following if due is None else min(following, max(due, last + duration(self.soonest)))


class TickTimeReader(Reader):
    def __init__(self, clock: TickTime, feed: Feed) -> None:
        self._clock, self._feed, self._begins = clock, feed, True
        poll = min(duration(clock.every) / 10, duration(clock.soonest), _LONGEST_POLL)
        self.look_again = poll.total_seconds()

    def read(self, limit: int | None) -> Batch | None:
        time = self._clock.take(self._feed.taken, begins=self._begins, next_due=self._feed.next_due)
        self._begins, self.done = False, not self._feed.follow
        return None if time is None else convert_rows([time], self._feed, "the time")


@open_source.register
def _(source: TickTime, feed: Feed) -> Reader:
    return TickTimeReader(source, feed)


class WallClockReader(Reader):
    def __init__(self, clock: WallClock, feed: Feed) -> None:
        self._every = duration(clock.every)
        self._now = clock.now
        self._feed = feed

    def read(self, limit: int | None) -> Batch | None:
        last: Any = self._feed.taken.get(_LAST)
        now = self._now()
        time = _EPOCH + (now - _EPOCH) // self._every * self._every
        if last is not None and time <= last:
            self.look_again = min((last + self._every - now).total_seconds(), _LONGEST)
            return None
        batch = convert_rows([time], self._feed, f"times up to {last}")
        self._feed.taken[_LAST] = time
        return batch


@open_source.register
def _(source: WallClock, feed: Feed) -> Reader:
    return WallClockReader(source, feed)
