"""The wall clock as a source: time is an input like any other, so runs that depend on it can be replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import SourceLocation, WrongType
from penstock.expr.durations import duration, short
from penstock.io.in_process import converted
from penstock.io.source import Batch, Feed, Reader, Source, open_source

_LAST = "last"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = 60.0
"""Limit on the seconds between two looks: clocks are set forward, and machines sleep."""


def _system_time() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class WallClock(Source):
    """The time, for a source of `datetime`s: each multiple of `every` since 1970 in UTC, once it has passed.

    If several have passed since the last look, as after a pause, the source gives the latest. Times never
    go back, even if the clock does. The source has no end: a run continues until it is stopped; with a
    checkpoint, the next run continues with later times.

    >>> import penstock as ps
    >>> flow = ps.Flow("orders of the last minute", ticks="given")
    >>> orders = flow.source("orders", float).latest()
    >>> clock = flow.source("clock", datetime).latest()
    >>> flow.sink("seen", orders.moving("1 min", at=clock).sum().sample(ps.timer("10s", at=clock)))
    >>> # ps.run(flow, sources={"orders": ..., "clock": WallClock("1s")}, sinks={"seen": print})

    Raises `WrongType` unless `every` is a positive span of time.
    """

    every: timedelta | str
    now: Callable[[], datetime] = field(default=_system_time, repr=False)

    def __post_init__(self) -> None:
        if duration(self.every) <= timedelta():
            raise WrongType(
                f"a clock needs a span above 0, got {short(duration(self.every))}",
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
        batch = converted([time], self._feed, f"times up to {last}")
        self._feed.taken[_LAST] = time
        return batch


@open_source.register
def _(source: WallClock, feed: Feed) -> Reader:
    return WallClockReader(source, feed)
