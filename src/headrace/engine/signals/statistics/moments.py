"""Kernels of statistics computed from sums."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from headrace.engine.signals.statistics.aggregates import DEVIATIONS, NOTHING, PAIRS, PAIRS_FROM_OLDEST, SUM
from headrace.engine.signals.statistics.input_tests import InputValues, kernel_of
from headrace.engine.signals.statistics.kernel import Kernel, Variable
from headrace.engine.signals.statistics.windows import StatisticResult, windowed
from headrace.operators.statistics.moments import Against, Corr, Count, Cov, Mean, Regression, Std, Sum, Var

if TYPE_CHECKING:
    from headrace.operators.statistics.value_windows import Window


@kernel_of.register(Count)
def _count(statistic: Count, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, NOTHING, inputs, StatisticResult("$n"))


@kernel_of.register(Sum)
def _sum(statistic: Sum, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, SUM, inputs, StatisticResult("$sum", "$sum", "$total($exact)"))


@kernel_of.register(Mean)
def _mean(statistic: Mean, inputs: InputValues) -> Kernel:
    answer = StatisticResult("$sum / $n", "$quotient($sum, $n)", "$mean($exact)")
    return windowed(statistic.window, SUM, inputs, _from(1, statistic.window, answer))


@kernel_of.register(Var)
def _var(statistic: Var, inputs: InputValues) -> Kernel:
    ddof = statistic.ddof
    answer = StatisticResult(
        _spread(ddof), f"$quotient($v, $n * ($n - {ddof}))", f"$variance($exact, {ddof})"
    )
    return windowed(statistic.window, DEVIATIONS, inputs, _from(ddof + 1, statistic.window, answer))


@kernel_of.register(Std)
def _std(statistic: Std, inputs: InputValues) -> Kernel:
    ddof = statistic.ddof
    answer = StatisticResult(
        f"$sqrt({_spread(ddof)})", f"$root($v, $n * ($n - {ddof}))", f"$deviation($exact, {ddof})"
    )
    return windowed(statistic.window, DEVIATIONS, inputs, _from(ddof + 1, statistic.window, answer))


def _spread(ddof: int) -> str:
    # Rounding may lead a little below 0.
    return f"(0.0 if $v < 0 else $v) / ($n * ($n - {ddof}))"


def _from(count: int, window: Window, answer: StatisticResult) -> StatisticResult:
    """Guard `answer` with NaN for fewer than `count` values. Windows of as many need no test."""
    if window.min_periods >= count:
        return answer
    return StatisticResult(*(f"{source} if $n >= {count} else $NAN" for source in astuple(answer)))


@kernel_of.register(Cov)
def _cov(statistic: Cov, inputs: InputValues) -> Kernel:
    ddof = statistic.ddof
    divisor = f"($n * ($n - {ddof}))"
    answer = StatisticResult(
        f"$vxy / {divisor}", f"$quotient($vxy, {divisor})", f"$covariance($exact, {ddof})"
    )
    return windowed(statistic.window, PAIRS, inputs, _from(ddof + 1, statistic.window, answer))


@kernel_of.register(Corr)
def _corr(statistic: Corr, inputs: InputValues) -> Kernel:
    sums = "$vx, $vy, $vxy"
    answer = StatisticResult(
        f"$correlation({sums})", f"$correlation_of_whole({sums})", "$pair_correlation($exact)"
    )
    return windowed(statistic.window, PAIRS, inputs, answer)


@kernel_of.register(Regression)
def _regression(statistic: Regression, inputs: InputValues) -> Kernel:
    match statistic.against:
        case Against.SIGNAL:
            return windowed(statistic.window, PAIRS, inputs, _line("0"))
        case Against.INDEX:
            before, state = ("$y = $i", "$i += 1"), Variable("i", "0")
        case Against.TIME:
            before = ("if $begin is None:", "    $begin = $t", "$y = $seconds_since($begin, $t)")
            state = Variable("begin", "None")
    broken = statistic.against is Against.TIME
    inputs = replace(inputs, count=2, before=before, variables=(state,), broken=broken)
    return windowed(statistic.window, PAIRS_FROM_OLDEST, inputs, _line("$origin"))


def _line(origin: str) -> StatisticResult:
    sums = "$vx, $vy, $vxy"
    return StatisticResult(
        f"$line($n, $x0, $sx, $y0, $sy, {sums}, {origin})",
        f"$line_of_whole($n, $n * $x0 + $sx, $n * $y0 + $sy, {sums}, {origin})",
        f"$pair_line($exact, {origin})",
    )
