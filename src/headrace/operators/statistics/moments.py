"""Moment statistics: count, sum, mean, variance, covariance, correlation, regression."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from headrace.operators.statistics.kernel import (
    DEVIATIONS,
    NOTHING,
    PAIRS,
    PAIRS_FROM_OLDEST,
    SUM,
    InputValues,
    Kernel,
    KernelVariable,
    kernel_of,
)
from headrace.operators.statistics.statistic import Need, ResultType, TimeWindow, WindowedStatistic
from headrace.operators.statistics.windows import StatisticResult, windowed

if TYPE_CHECKING:
    from headrace.operators.statistics.statistic import ValueWindow


class SignalCount(WindowedStatistic):
    """Number of non-missing values."""

    __slots__ = ()
    described_as: ClassVar[str] = "Count"
    kind = "count"
    numbers = False


class SignalSum(WindowedStatistic):
    """Sum; 0 for no values."""

    __slots__ = ()
    described_as: ClassVar[str] = "Sum"
    kind = "sum"


class SignalMean(WindowedStatistic):
    """Arithmetic mean."""

    __slots__ = ()
    described_as: ClassVar[str] = "Mean"
    kind = "mean"
    result = ResultType.FLOAT


@dataclass(frozen=True, slots=True)
class Dispersion(WindowedStatistic):
    """Base of statistics with divisor count - `ddof`."""

    ddof: int = 1

    def check(self, need: Need) -> None:
        WindowedStatistic.check(self, need)
        need(self.ddof >= 0, "what is taken from a count is below zero")


class Var(Dispersion):
    """Variance: squared deviations from the mean, divided by count - `ddof`."""

    kind = "var"
    result = ResultType.FLOAT


class Std(Dispersion):
    """Square root of the variance."""

    kind = "std"
    result = ResultType.FLOAT


class Cov(Dispersion):
    """Covariance of two signals."""

    kind = "cov"
    result = ResultType.FLOAT
    inputs = 2


class Corr(WindowedStatistic):
    """Pearson correlation of two signals."""

    __slots__ = ()
    kind = "corr"
    result = ResultType.FLOAT
    inputs = 2


class Against(Enum):
    """Independent variable of a regression."""

    SIGNAL = "another signal"
    INDEX = "position in the window"
    TIME = "seconds since the window's oldest value"


@dataclass(frozen=True, slots=True)
class Regression(WindowedStatistic):
    """Least-squares line through the values: (slope, intercept, r2).

    r2 is the fraction of the values' variance explained by the line.
    """

    against: Against = Against.INDEX
    kind = "regression"

    def check(self, need: Need) -> None:
        WindowedStatistic.check(self, need)
        timed = isinstance(self.window, TimeWindow)
        need(timed or self.against is not Against.TIME, "a regression by time has no times")

    @property
    def inputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 2 if self.against is Against.SIGNAL else 1

    @property
    def reads_time(self) -> bool:
        return self.against is Against.TIME or isinstance(self.window, TimeWindow)

    def describe(self) -> str:
        return f"{self.window}, against {self.against.value}"


# --- kernels of statistics computed from sums -----------------------------------------------------


@kernel_of.register(SignalCount)
def _count(statistic: SignalCount, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, NOTHING, inputs, StatisticResult("$n"))


@kernel_of.register(SignalSum)
def _sum(statistic: SignalSum, inputs: InputValues) -> Kernel:
    return windowed(statistic.window, SUM, inputs, StatisticResult("$sum", "$sum", "$total($exact)"))


@kernel_of.register(SignalMean)
def _mean(statistic: SignalMean, inputs: InputValues) -> Kernel:
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


def _from(count: int, window: ValueWindow, answer: StatisticResult) -> StatisticResult:
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
            before, state = ("$y = $i", "$i += 1"), KernelVariable("i", "0")
        case Against.TIME:
            before = ("if $begin is None:", "    $begin = $t", "$y = $seconds_since($begin, $t)")
            state = KernelVariable("begin", "None")
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
