"""Kernels of statistics made of sums."""

from __future__ import annotations

from dataclasses import replace

from penstock.engine.signals.statistics.aggregates import DEVIATIONS, NOTHING, PAIRS, PAIRS_FROM_OLDEST, SUM
from penstock.engine.signals.statistics.kernel import Kernel, Variable
from penstock.engine.signals.statistics.kernels import kernel_of
from penstock.engine.signals.statistics.windows import Inputs, windowed
from penstock.flow.statistics.moments import Against, Corr, Count, Cov, Mean, Regression, Std, Sum, Var


@kernel_of.register(Count)
def _count(statistic: Count, inputs: Inputs) -> Kernel:
    return windowed(statistic.window, NOTHING, inputs, "$n")


@kernel_of.register(Sum)
def _sum(statistic: Sum, inputs: Inputs) -> Kernel:
    return windowed(statistic.window, SUM, inputs, "$sum")


@kernel_of.register(Mean)
def _mean(statistic: Mean, inputs: Inputs) -> Kernel:
    value = _from(1, statistic.window.min_periods, "$sum / $n")
    return windowed(statistic.window, SUM, inputs, value)


@kernel_of.register(Var)
def _var(statistic: Var, inputs: Inputs) -> Kernel:
    value = _spread(statistic.ddof, statistic.window.min_periods)
    return windowed(statistic.window, DEVIATIONS, inputs, value)


@kernel_of.register(Std)
def _std(statistic: Std, inputs: Inputs) -> Kernel:
    value = _spread(statistic.ddof, statistic.window.min_periods)
    return windowed(statistic.window, DEVIATIONS, inputs, f"$root({value})")


def _spread(ddof: int, least: int) -> str:
    # Rounding may lead a little below 0; NaN stays what it is.
    return _from(ddof + 1, least, f"(0.0 if $v < 0 else $v) / ($n * ($n - {ddof}))")


def _from(count: int, least: int, value: str) -> str:
    """`value` where there are `count` values; NaN below. A window of `least` at least may need no test."""
    return value if least >= count else f"{value} if $n >= {count} else $NAN"


@kernel_of.register(Cov)
def _cov(statistic: Cov, inputs: Inputs) -> Kernel:
    ddof = statistic.ddof
    # An infinite value makes a square NaN, and the product perhaps not.
    finite = "$vxy + ($vx - $vx) + ($vy - $vy)"
    value = _from(ddof + 1, statistic.window.min_periods, f"({finite}) / ($n * ($n - {ddof}))")
    return windowed(statistic.window, PAIRS, inputs, value)


@kernel_of.register(Corr)
def _corr(statistic: Corr, inputs: Inputs) -> Kernel:
    return windowed(statistic.window, PAIRS, inputs, "$correlation($vx, $vy, $vxy)")


@kernel_of.register(Regression)
def _regression(statistic: Regression, inputs: Inputs) -> Kernel:
    value = "$line($n, $x0, $sx, $y0, $sy, $vx, $vy, $vxy, {origin})"
    match statistic.against:
        case Against.SIGNAL:
            return windowed(statistic.window, PAIRS, inputs, value.format(origin="0"))
        case Against.INDEX:
            before, state = ("$y = $i", "$i += 1"), Variable("i", "0")
        case Against.TIME:
            before = ("if $begin is None:", "    $begin = $t", "$y = $seconds_since($begin, $t)")
            state = Variable("begin", "None")
    inputs = replace(inputs, count=2, before=before, variables=(state,))
    return windowed(statistic.window, PAIRS_FROM_OLDEST, inputs, value.format(origin="$origin"))
