"""Fewer values: every n-th, one per span of time, one after quiet, bars of many; and timers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from penstock.expr.durations import short
from penstock.flow.statistics.inputs import Result
from penstock.flow.statistics.statistic import Need, Statistic


class Fewer(Statistic):
    """Base of what fires now and then."""

    __slots__ = ()
    numbers = False

    @property
    def is_steady(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class EveryNth(Fewer):
    """The last of each `count` values."""

    count: int
    kind = "every_nth"
    result = Result.AS_GIVEN

    def check(self, need: Need) -> None:
        need(self.count >= 1, "a count is below one")

    def describe(self) -> str:
        return f"{self.count}"


@dataclass(frozen=True, slots=True)
class Paced(Fewer):
    """Base of those that depend on a span of time."""

    span: timedelta

    def check(self, need: Need) -> None:
        need(self.span > timedelta(), "a span of time is not above zero")

    @property
    def reads_time(self) -> bool:
        return True

    def describe(self) -> str:
        return short(self.span)


class Throttle(Paced):
    """The first value, then each that is not within `span` of the last one let through."""

    __slots__ = ()
    kind = "throttle"
    result = Result.AS_GIVEN


class Debounce(Paced):
    """The newest value, once `span` has passed without another."""

    __slots__ = ()
    kind = "debounce"
    result = Result.AS_GIVEN

    @property
    def waits_for_time(self) -> bool:
        return True


class Timer(Paced):
    """The latest multiple of `span` that has passed, once for each tick in which one did."""

    __slots__ = ()
    kind = "timer"
    inputs = 0

    @property
    def waits_for_time(self) -> bool:
        return True

    def describe(self) -> str:
        return f"every {short(self.span)}"


@dataclass(frozen=True, slots=True)
class BarsByCount(Fewer):
    """Of each `count` values (open, high, low, close), when the last of them has come."""

    count: int
    kind = "ohlc"
    numbers = True

    def check(self, need: Need) -> None:
        need(self.count >= 1, "a count is below one")

    def describe(self) -> str:
        return f"of {self.count} values"


class BarsByTime(Paced):
    """Of the values in each multiple of `span` (start, open, high, low, close), when a later one begins."""

    __slots__ = ()
    kind = "ohlc"
    numbers = True

    @property
    def waits_for_time(self) -> bool:
        return True
