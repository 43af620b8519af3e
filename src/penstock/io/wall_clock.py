"""Wall clock as a source: time is an ordinary input, so runs that depend on it can be replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import SourceLocation, WrongType
from penstock.expr.durations import duration, format_duration
from penstock.io.in_process import convert_rows
from penstock.io.source import Batch, Feed, Reader, Source, open_source

_LAST = "last"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = 60.0
"""Limit on the seconds between polls, because clocks may be set forward and machines may sleep."""


def _system_time() -> datetime:
    return datetime.now(UTC)


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
        if duration(self.every) <= timedelta():
            raise WrongType(
                f"a clock needs a span above 0, got {format_duration(duration(self.every))}",
                where=[SourceLocation.of_caller()],
            )


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
