"""Rate reduction of signals: every n-th value, throttle, debounce, bars, timers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.expr.durations import format_duration
from headrace.operators.statistics.statistic import Need, Statistic
from headrace.operators.statistics.value_kinds import Result


class Downsampling(Statistic):
    """Base of statistics that fire for only some of the values."""

    __slots__ = ()
    numbers = False

    @property
    def is_steady(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class EveryNth(Downsampling):
    """Every `count`-th value."""

    count: int
    kind = "every_nth"
    result = Result.AS_GIVEN

    def check(self, need: Need) -> None:
        need(self.count >= 1, "a count is below one")

    def describe(self) -> str:
        return f"{self.count}"


@dataclass(frozen=True, slots=True)
class TimedDownsampling(Downsampling):
    """Base of downsampling statistics with a time span."""

    span: timedelta

    def check(self, need: Need) -> None:
        need(self.span > timedelta(), "a span of time is not above zero")

    @property
    def reads_time(self) -> bool:
        return True

    def describe(self) -> str:
        return format_duration(self.span)


class Throttle(TimedDownsampling):
    """The first value, then each one at least `span` after the last one emitted."""

    __slots__ = ()
    kind = "throttle"
    result = Result.AS_GIVEN


class Debounce(TimedDownsampling):
    """The newest value, once `span` has passed without another."""

    __slots__ = ()
    kind = "debounce"
    result = Result.AS_GIVEN

    @property
    def waits_for_time(self) -> bool:
        return True


class Timer(TimedDownsampling):
    """Latest multiple of `span` that has passed, once per tick in which one has passed."""

    __slots__ = ()
    kind = "timer"
    inputs = 0

    @property
    def waits_for_time(self) -> bool:
        return True

    def describe(self) -> str:
        return f"every {format_duration(self.span)}"


@dataclass(frozen=True, slots=True)
class BarsByCount(Downsampling):
    """Bars of `count` values (open, high, low, close), emitted with the last of them."""

    count: int
    kind = "ohlc"
    numbers = True

    def check(self, need: Need) -> None:
        need(self.count >= 1, "a count is below one")

    def describe(self) -> str:
        return f"of {self.count} values"


class BarsByTime(TimedDownsampling):
    """Bars per multiple of `span` (start, open, high, low, close), emitted when a later one begins."""

    __slots__ = ()
    kind = "ohlc"
    numbers = True

    @property
    def waits_for_time(self) -> bool:
        return True
