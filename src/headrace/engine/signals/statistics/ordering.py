"""Kernels of order statistics, by arrival and by size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.signals.statistics.aggregates import GREATEST, LEAST, NEWEST, OLDEST
from headrace.engine.signals.statistics.input_tests import kernel_of
from headrace.engine.signals.statistics.sorted_windows import choose_sorted_structure, sorted_window_kernel
from headrace.engine.signals.statistics.windows import StatisticResult, windowed
from headrace.operators.statistics.ordering import First, Interpolation, Last, Max, Min, Quantile, Rank, Ties

if TYPE_CHECKING:
    from headrace.engine.signals.statistics.input_tests import InputValues
    from headrace.engine.signals.statistics.kernel import Kernel
    from headrace.operators.statistics.value_windows import Window


@kernel_of.register(Min)
def _min(statistic: Min, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, LEAST, inputs, StatisticResult(_some("$best", statistic.window)))


@kernel_of.register(Max)
def _max(statistic: Max, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, GREATEST, inputs, StatisticResult(_some("$best", statistic.window)))


@kernel_of.register(First)
def _first(statistic: First, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, OLDEST, inputs, StatisticResult(_some("$best", statistic.window)))


@kernel_of.register(Last)
def _last(statistic: Last, inputs: InputValues) -> Kernel:
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


@kernel_of.register(Rank)
def _rank(statistic: Rank, inputs: InputValues) -> Kernel:
    rank = {Ties.AVERAGE: "($less + $upto + 1) / 2", Ties.MIN: "$less + 1.0", Ties.MAX: "$upto * 1.0"}
    value = rank[statistic.ties]
    if statistic.pct:
        value = _some(f"({value}) / $n", statistic.window)
    places = choose_sorted_structure(statistic.window).places.format("$x")
    # A missing value has no rank.
    lines = inputs.guarded((f"$less, $upto = {places}",), ("$less = $upto = $NAN",))
    return sorted_window_kernel(statistic.window, inputs, lines, value)


def _some(value: str, window: Window) -> str:
    return value if window.min_periods else f"({value} if $n else $NAN)"
