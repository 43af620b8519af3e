"""Moment statistics: count, sum, mean, variance, covariance, correlation, regression."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.operators.statistics.statistic import Need, Windowed
from headrace.operators.statistics.value_kinds import Result
from headrace.operators.statistics.value_windows import TimeWindow


class Count(Windowed):
    """Number of non-missing values."""

    __slots__ = ()
    kind = "count"
    numbers = False


class Sum(Windowed):
    """Sum; 0 for no values."""

    __slots__ = ()
    kind = "sum"


class Mean(Windowed):
    """Arithmetic mean."""

    __slots__ = ()
    kind = "mean"
    result = Result.FLOAT


@dataclass(frozen=True, slots=True)
class Dispersion(Windowed):
    """Base of statistics with divisor count - `ddof`."""

    ddof: int = 1

    def check(self, need: Need) -> None:
        Windowed.check(self, need)
        need(self.ddof >= 0, "what is taken from a count is below zero")


class Var(Dispersion):
    """Variance: squared deviations from the mean, divided by count - `ddof`."""

    kind = "var"
    result = Result.FLOAT


class Std(Dispersion):
    """Square root of the variance."""

    kind = "std"
    result = Result.FLOAT


class Cov(Dispersion):
    """Covariance of two signals."""

    kind = "cov"
    result = Result.FLOAT
    inputs = 2


class Corr(Windowed):
    """Pearson correlation of two signals."""

    __slots__ = ()
    kind = "corr"
    result = Result.FLOAT
    inputs = 2


class Against(Enum):
    """Independent variable of a regression."""

    SIGNAL = "another signal"
    INDEX = "position in the window"
    TIME = "seconds since the window's oldest value"


@dataclass(frozen=True, slots=True)
class Regression(Windowed):
    """Least-squares line through the values: (slope, intercept, r2).

    r2 is the fraction of the values' variance explained by the line.
    """

    against: Against = Against.INDEX
    kind = "regression"

    def check(self, need: Need) -> None:
        Windowed.check(self, need)
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
