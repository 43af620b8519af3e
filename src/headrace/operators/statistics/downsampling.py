"""Statistics of few values: rate reduction, differences, crossings.

Rate reduction: every n-th value, throttle, debounce, bars, timers. Of consecutive values: difference,
relative change, crossing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

from headrace.expr.time_texts import format_duration
from headrace.operators.statistics.kernel import (
    Kernel,
    KernelVariable,
    indented,
    kernel_of,
    reject_earlier_times,
    spans,
)
from headrace.operators.statistics.statistic import Need, ResultType, Statistic

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
    result = ResultType.AS_GIVEN

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
    result = ResultType.AS_GIVEN


class Debounce(TimedDownsampling):
    """The newest value, once `span` has passed without another."""

    __slots__ = ()
    kind = "debounce"
    result = ResultType.AS_GIVEN

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
    return Kernel((KernelVariable("k", "0"),), lines, "$x", f"$k == {statistic.count}")


@kernel_of.register(Throttle)
def _throttle(statistic: Throttle, inputs: InputValues) -> Kernel:
    lines = (
        *reject_earlier_times(),
        f"$through = $shown is None or $t - {inputs.span} >= $shown",
        "if $through:",
        "    $shown = $t",
    )
    variables = (KernelVariable("last", "None"), KernelVariable("shown", "None"))
    return Kernel(variables, lines, "$x", "$through", spans(statistic.span))


@kernel_of.register(Debounce)
def _debounce(statistic: Debounce, inputs: InputValues) -> Kernel:
    variables = (
        KernelVariable("last", "None"),
        KernelVariable("since", "None"),
        KernelVariable("held", "None"),
    )
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
    variables = (KernelVariable("last", "None"), KernelVariable("passed", "None"))
    lines = (
        *reject_earlier_times(),
        f"$start = $multiple_before($t, {inputs.span})",
        "$rings = $passed is not None and $start > $passed",
        "$passed = $start",
    )
    return Kernel(variables, lines, "$passed", "$rings", spans(statistic.span))


_BAR = tuple(KernelVariable(name, "None") for name in ("open", "high", "low", "close"))
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
    variables = (KernelVariable("k", "0"), *_BAR)
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
    variables = (KernelVariable("last", "None"), KernelVariable("start", "None"), *_BAR)
    return Kernel(variables, lines, "$bar", "$closed", spans(statistic.span))


@dataclass(frozen=True, slots=True)
class Diff(Statistic):
    """Difference from the value `count` firings ago."""

    count: int
    kind = "diff"
    result = ResultType.FLOAT_OF_FLOATS
    numbers = False

    def check(self, need: Need) -> None:
        need(self.count >= 1, "a count is below one")

    def describe(self) -> str:
        return f"to {self.count} before"


@dataclass(frozen=True, slots=True)
class PctChange(Statistic):
    """Relative change since `count` firings ago."""

    count: int
    kind = "pct_change"
    result = ResultType.FLOAT

    def check(self, need: Need) -> None:
        need(self.count >= 1, "a count is below one")

    def describe(self) -> str:
        return f"to {self.count} before"


class Direction(Enum):
    """Direction of a crossing."""

    ABOVE = "above"
    BELOW = "below"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Crossed(Statistic):
    """Whether the first signal has just crossed the second, or a level.

    It has crossed when it is on the side opposite to the one it was last on. Equality is on neither side, so
    touching and turning back does not count.
    """

    direction: Direction
    level: int | float | None = None
    kind = "crossed"
    result = ResultType.BOOL

    def check(self, need: Need) -> None:
        level = self.level
        need(level is None or level == level, "a level is no number")

    @property
    def inputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 2 if self.level is None else 1

    @property
    def may_be_silent(self) -> bool:
        return False

    def describe(self) -> str:
        side = "" if self.direction is Direction.BOTH else self.direction.value
        if self.level is None:
            return side
        shown = f"{self.level:g}" if isinstance(self.level, float) else str(self.level)
        return f"{side} {shown}".strip()


# --- kernels that compare a value with recent ones: difference, relative change, crossing ---------


@kernel_of.register(Diff)
def _diff(statistic: Diff, inputs: InputValues) -> Kernel:
    return _to_before(statistic.count, inputs, "$x - $old")


@kernel_of.register(PctChange)
def _pct_change(statistic: PctChange, inputs: InputValues) -> Kernel:
    return _to_before(statistic.count, inputs, "$change($x, $old)")


def _to_before(count: int, inputs: InputValues, value: str) -> Kernel:
    """Return the source of `value` over `$x` and `$old`, the value `count` before it.

    The result is NaN if either is missing.
    """
    variables, oldest, turn = _one_before() if count == 1 else _ring(count)
    lines = (
        "$full = $next_full",
        f"$old = {oldest}",
        *inputs.guarded((f"{oldest} = $x",), (f"{oldest} = $NAN",)),
        *turn,
    )
    full = (KernelVariable("full", "False"), KernelVariable("next_full", "False"))
    shown = f"$NAN if {inputs.missing} else {value}" if inputs.missing else value
    return Kernel((*full, *variables), lines, shown, "$full")


_History = tuple[tuple[KernelVariable, ...], str, tuple[str, ...]]
"""State, source of the oldest value (where the next one goes), and the lines that advance it."""


def _one_before() -> _History:
    return (KernelVariable("before", "None"),), "$before", ("$next_full = True",)


def _ring(count: int) -> _History:
    turn = ("$k += 1", f"if $k == {count}:", "    $k = 0", "    $next_full = True")
    return (KernelVariable("k", "0"), KernelVariable("ring", f"[None] * {count}", lists=1)), "$ring[$k]", turn


@kernel_of.register(Crossed)
def _crossed(statistic: Crossed, inputs: InputValues) -> Kernel:
    crossed = {
        Direction.ABOVE: "$turned and $side > 0",
        Direction.BELOW: "$turned and $side < 0",
        Direction.BOTH: "$turned",
    }
    level = "$y" if statistic.level is None else "$level"
    lines = (
        f"$now = ($x > {level}) - ($x < {level})",
        "$turned = $now * $side < 0",
        "if $now:",
        "    $side = $now",
    )
    lines = inputs.guarded(lines, ("$turned = False",))
    constants = {} if statistic.level is None else {"level": statistic.level}
    return Kernel((KernelVariable("side", "0"),), lines, crossed[statistic.direction], constants=constants)
