"""Order statistics: minimum, maximum, quantiles, rank, first, last."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import singledispatch
from typing import ClassVar

from headrace.operators.statistics.kernel import (
    GREATEST,
    LEAST,
    NEWEST,
    OLDEST,
    InputValues,
    Kernel,
    KernelVariable,
    kernel_of,
    reject_earlier_times,
    spans,
)
from headrace.operators.statistics.statistic import (
    CountWindow,
    Expanding,
    Need,
    ResultType,
    TimeWindow,
    ValueWindow,
    WindowedStatistic,
)
from headrace.operators.statistics.windows import StatisticResult, windowed

# --- windows that keep their values in sorted order as well as in order of arrival ----------------


@dataclass(frozen=True, slots=True)
class SortedCode:
    """Sorted values: sources of statements and expressions, with `{}` for a value or position.

    put, take: insert or remove a value. at: the value at a position, from 0.
    places:    number of lesser values, and of values not greater.
    """

    variables: tuple[KernelVariable, ...]
    put: str
    take: str
    at: str
    places: str


FEW = SortedCode(
    (KernelVariable("sorted", "[]", lists=1),),
    "$insort($sorted, {})",
    "del $sorted[$bisect_left($sorted, {})]",
    "$sorted[{}]",
    "$bisect_left($sorted, {0}), $bisect_right($sorted, {0})",
)
"""Order for small windows: a single list, whose values move faster than a function is called."""

MANY = SortedCode(
    (
        KernelVariable("blocks", "[]", lists=2),
        KernelVariable("tops", "[]", lists=1),
        KernelVariable("counts", "[]", lists=1),
    ),
    "$put_in($blocks, $tops, $counts, {})",
    "$take_out($blocks, $tops, $counts, {})",
    "$value_at($blocks, $counts, {})",
    "$places($blocks, $tops, $counts, {})",
)
"""Order for large windows: the blocks of `sorted_blocks.py`."""

_FEW = 2_000
"""Window size up to which one list is faster than blocks."""


def choose_sorted_structure(window: ValueWindow) -> SortedCode:
    """Choose the sorted structure for a window's values."""
    return FEW if isinstance(window, CountWindow) and window.size <= _FEW else MANY


@singledispatch
def sorted_window_kernel(
    window: ValueWindow, inputs: InputValues, lines: tuple[str, ...], value: str
) -> Kernel:
    """Return the kernel of `value` after `lines`, over the sorted values and their count `$n`."""
    raise NotImplementedError(f"no kernel for {type(window).__name__}")


@sorted_window_kernel.register(CountWindow)
def _by_count(window: CountWindow, inputs: InputValues, lines: tuple[str, ...], value: str) -> Kernel:
    size, least, order = window.size, window.min_periods, choose_sorted_structure(window)
    variables = (
        KernelVariable("k", "0"),
        KernelVariable("n", "0"),
        KernelVariable("ready", str(least == 0)),
        KernelVariable("ring", f"[None] * {size}", lists=1),
        *order.variables,
    )
    turn = (
        "$old = $ring[$k]",
        "if $old is not None:",
        f"    {order.take.format('$old')}",
        "    $n -= 1",
        *inputs.guarded((order.put.format("$x"), "$n += 1", "$ring[$k] = $x"), ("$ring[$k] = None",)),
        "$k += 1",
        f"if $k == {size}:",
        "    $k = 0",
        f"if $n >= {least}:",
        "    $ready = True",
    )
    return Kernel(variables, (*turn, *lines), f"({value}) if $n >= {least} else $NAN", "$ready")


@sorted_window_kernel.register(TimeWindow)
def _by_time(window: TimeWindow, inputs: InputValues, lines: tuple[str, ...], value: str) -> Kernel:
    least, order = window.min_periods, choose_sorted_structure(window)
    variables = (
        KernelVariable("k", "0"),
        KernelVariable("n", "0"),
        KernelVariable("last", "None"),
        KernelVariable("ready", str(least == 0)),
        KernelVariable("times", "[]", lists=1),
        KernelVariable("values", "[]", lists=1),
        *order.variables,
    )
    turn = (
        *reject_earlier_times(),
        f"$limit = $t - {inputs.span}",
        "while $k < len($times) and $times[$k] <= $limit:",
        f"    {order.take.format('$values[$k]')}",
        "    $k += 1",
        "    $n -= 1",
        # Once what has left is more than the rest, it goes.
        "if $k > $n + 16:",
        "    del $times[:$k], $values[:$k]",
        "    $k = 0",
        *inputs.guarded(("$times.append($t)", "$values.append($x)", order.put.format("$x"), "$n += 1")),
        f"if $n >= {least}:",
        "    $ready = True",
    )
    shown = f"({value}) if $n >= {least} else $NAN"
    return Kernel(variables, (*turn, *lines), shown, "$ready", spans(window.span))


@sorted_window_kernel.register(Expanding)
def _by_all(window: Expanding, inputs: InputValues, lines: tuple[str, ...], value: str) -> Kernel:
    order = choose_sorted_structure(window)
    enter = inputs.guarded((order.put.format("$x"), "$n += 1"))
    variables = (KernelVariable("n", "0"), *order.variables)
    return Kernel(variables, (*enter, *lines), value, f"$n >= {window.min_periods}")


class SignalMin(WindowedStatistic):
    """Least value."""

    __slots__ = ()
    described_as: ClassVar[str] = "Min"
    kind = "min"
    result = ResultType.FLOAT_OF_FLOATS


class SignalMax(WindowedStatistic):
    """Greatest value."""

    __slots__ = ()
    described_as: ClassVar[str] = "Max"
    kind = "max"
    result = ResultType.FLOAT_OF_FLOATS


class SignalFirst(WindowedStatistic):
    """Oldest value that is not missing."""

    __slots__ = ()
    described_as: ClassVar[str] = "First"
    kind = "first"
    result = ResultType.FLOAT_OF_FLOATS
    numbers = False


class SignalLast(WindowedStatistic):
    """Newest value that is not missing."""

    __slots__ = ()
    described_as: ClassVar[str] = "Last"
    kind = "last"
    result = ResultType.FLOAT_OF_FLOATS
    numbers = False


class Interpolation(Enum):
    """Rule for a quantile between two values."""

    LINEAR = "linear"
    LOWER = "lower"
    HIGHER = "higher"
    MIDPOINT = "midpoint"
    NEAREST = "nearest"


@dataclass(frozen=True, slots=True)
class Quantile(WindowedStatistic):
    """Value below which the fraction `q` of the values lies; 0.5 is the median."""

    q: float = 0.5
    interpolation: Interpolation = Interpolation.LINEAR
    kind = "quantile"
    result = ResultType.FLOAT_OF_FLOATS

    def check(self, need: Need) -> None:
        WindowedStatistic.check(self, need)
        need(0 <= self.q <= 1, "a quantile is not between 0 and 1")

    def describe(self) -> str:
        return f"{self.q:g}, {self.window}"


class Ties(Enum):
    """Rule for the rank of equal values."""

    AVERAGE = "average"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class SignalRank(WindowedStatistic):
    """Rank of the newest value in the window, from 1, or as a fraction of the count with `pct`."""

    described_as: ClassVar[str] = "Rank"
    ties: Ties = Ties.AVERAGE
    pct: bool = False
    kind = "rank"
    result = ResultType.FLOAT


# --- kernels of order statistics, by arrival and by size ------------------------------------------


@kernel_of.register(SignalMin)
def _min(statistic: SignalMin, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, LEAST, inputs, StatisticResult(_some("$best", statistic.window)))


@kernel_of.register(SignalMax)
def _max(statistic: SignalMax, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, GREATEST, inputs, StatisticResult(_some("$best", statistic.window)))


@kernel_of.register(SignalFirst)
def _first(statistic: SignalFirst, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, OLDEST, inputs, StatisticResult(_some("$best", statistic.window)))


@kernel_of.register(SignalLast)
def _last(statistic: SignalLast, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, NEWEST, inputs, StatisticResult(_some("$best", statistic.window)))


@kernel_of.register(Quantile)
def _quantile(statistic: Quantile, inputs: InputValues) -> Kernel:
    order = choose_sorted_structure(statistic.window)
    lines = (
        # The places beside that of the quantile, and how far it is from the lower one.
        "if $n:",
        f"    $part = {statistic.q!r} * ($n - 1)",
        "    $i = int($part)",
        "    $part -= $i",
        f"    $low = {order.at.format('$i')}",
        f"    $high = {order.at.format('$i + 1')} if $part else $low",
        "else:",
        "    $low = $high = $NAN",
        "    $i = $part = 0",
    )
    value = _BETWEEN[statistic.interpolation]
    if inputs.floats and "$interpolate" in value:
        # Mostly the difference of two floats is one.
        part = "0.5" if statistic.interpolation is Interpolation.MIDPOINT else "$part"
        lines = (*lines, f"$found = $low + ($high - $low) * {part}")
        value = f"$found if $found - $found == 0 else {value}"
    return sorted_window_kernel(statistic.window, inputs, lines, value)


_BETWEEN = {
    Interpolation.LINEAR: "$low if $low == $high else $interpolate($low, $high, $part)",
    Interpolation.MIDPOINT: "$low if $low == $high else $interpolate($low, $high, 0.5)",
    Interpolation.LOWER: "$low",
    Interpolation.HIGHER: "$high",
    Interpolation.NEAREST: "$low if $part < 0.5 or ($part == 0.5 and $i % 2 == 0) else $high",
}


@kernel_of.register(SignalRank)
def _rank(statistic: SignalRank, inputs: InputValues) -> Kernel:
    rank = {Ties.AVERAGE: "($less + $upto + 1) / 2", Ties.MIN: "$less + 1.0", Ties.MAX: "$upto * 1.0"}
    value = rank[statistic.ties]
    if statistic.pct:
        value = _some(f"({value}) / $n", statistic.window)
    places = choose_sorted_structure(statistic.window).places.format("$x")
    # A missing value has no rank.
    lines = inputs.guarded((f"$less, $upto = {places}",), ("$less = $upto = $NAN",))
    return sorted_window_kernel(statistic.window, inputs, lines, value)


def _some(value: str, window: ValueWindow) -> str:
    return value if window.min_periods else f"({value} if $n else $NAN)"
