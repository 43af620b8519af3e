"""Rate reduction of signals: every n-th value, throttle, debounce, bars, timers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.expr.time_texts import format_duration
from headrace.operators.statistics.kernel import (
    Kernel,
    Variable,
    indented,
    kernel_of,
    reject_earlier_times,
    spans,
)
from headrace.operators.statistics.statistic import Need, Result, Statistic

if TYPE_CHECKING:
    from headrace.operators.statistics.kernel import InputValues


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


# --- kernels that emit fewer values than they take ------------------------------------------------


@kernel_of.register(EveryNth)
def _every_nth(statistic: EveryNth, inputs: InputValues) -> Kernel:
    lines = (f"$k = $k + 1 if $k < {statistic.count} else 1",)
    return Kernel((Variable("k", "0"),), lines, "$x", f"$k == {statistic.count}")


@kernel_of.register(Throttle)
def _throttle(statistic: Throttle, inputs: InputValues) -> Kernel:
    lines = (
        *reject_earlier_times(),
        f"$through = $shown is None or $t - {inputs.span} >= $shown",
        "if $through:",
        "    $shown = $t",
    )
    variables = (Variable("last", "None"), Variable("shown", "None"))
    return Kernel(variables, lines, "$x", "$through", spans(statistic.span))


@kernel_of.register(Debounce)
def _debounce(statistic: Debounce, inputs: InputValues) -> Kernel:
    variables = (Variable("last", "None"), Variable("since", "None"), Variable("held", "None"))
    lines = (
        *reject_earlier_times(),
        f"$calm = $since is not None and $t - {inputs.span} >= $since",
        "$shown = $held",
        "if $calm:",
        "    $since = $held = None",
        "if $fresh:",
        "    $since, $held = $t, $x",
    )
    return Kernel(variables, lines, "$shown", "$calm", spans(statistic.span))


@kernel_of.register(Timer)
def _timer(statistic: Timer, inputs: InputValues) -> Kernel:
    variables = (Variable("last", "None"), Variable("passed", "None"))
    lines = (
        *reject_earlier_times(),
        f"$start = $multiple_before($t, {inputs.span})",
        "$rings = $passed is not None and $start > $passed",
        "$passed = $start",
    )
    return Kernel(variables, lines, "$passed", "$rings", spans(statistic.span))


_BAR = tuple(Variable(name, "None") for name in ("open", "high", "low", "close"))
_OPEN = ("$open = $high = $low = $close = $x",)
_GROW = (
    "$close = $x",
    "if $x > $high:",
    "    $high = $x",
    "if $x < $low:",
    "    $low = $x",
)


@kernel_of.register(BarsByCount)
def _bars_by_count(statistic: BarsByCount, inputs: InputValues) -> Kernel:
    enter = ("if $k == 0:", *indented(_OPEN), "else:", *indented(_GROW), "$k += 1")
    lines = (
        f"if $k == {statistic.count}:",
        "    $k = 0",
        "$came = False",
        *inputs.guarded((*enter, "$came = True")),
    )
    variables = (Variable("k", "0"), *_BAR)
    return Kernel(variables, lines, "($open, $high, $low, $close)", f"$came and $k == {statistic.count}")


@kernel_of.register(BarsByTime)
def _bars_by_time(statistic: BarsByTime, inputs: InputValues) -> Kernel:
    enter = (
        "if $start is None:",
        "    $start = $now",
        *indented(_OPEN),
        "else:",
        *indented(_GROW),
    )
    lines = (
        *reject_earlier_times(),
        f"$now = $multiple_before($t, {inputs.span})",
        "$closed = $start is not None and $now > $start",
        "$bar = ($start, $open, $high, $low, $close)",
        "if $closed:",
        "    $start = None",
        "if $fresh:",
        *indented(inputs.guarded(enter)),
    )
    variables = (Variable("last", "None"), Variable("start", "None"), *_BAR)
    return Kernel(variables, lines, "$bar", "$closed", spans(statistic.span))
