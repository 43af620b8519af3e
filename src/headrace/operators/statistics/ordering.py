"""Order statistics: minimum, maximum, quantiles, rank, first, last."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.operators.statistics.statistic import Need, Windowed
from headrace.operators.statistics.value_kinds import Result


class Min(Windowed):
    """Least value."""

    __slots__ = ()
    kind = "min"
    result = Result.FLOAT_OF_FLOATS


class Max(Windowed):
    """Greatest value."""

    __slots__ = ()
    kind = "max"
    result = Result.FLOAT_OF_FLOATS


class First(Windowed):
    """Oldest value that is not missing."""

    __slots__ = ()
    kind = "first"
    result = Result.FLOAT_OF_FLOATS
    numbers = False


class Last(Windowed):
    """Newest value that is not missing."""

    __slots__ = ()
    kind = "last"
    result = Result.FLOAT_OF_FLOATS
    numbers = False


class Interpolation(Enum):
    """Rule for a quantile between two values."""

    LINEAR = "linear"
    LOWER = "lower"
    HIGHER = "higher"
    MIDPOINT = "midpoint"
    NEAREST = "nearest"


@dataclass(frozen=True, slots=True)
class Quantile(Windowed):
    """Value below which the fraction `q` of the values lies; 0.5 is the median."""

    q: float = 0.5
    interpolation: Interpolation = Interpolation.LINEAR
    kind = "quantile"
    result = Result.FLOAT_OF_FLOATS

    def check(self, need: Need) -> None:
        Windowed.check(self, need)
        need(0 <= self.q <= 1, "a quantile is not between 0 and 1")

    def describe(self) -> str:
        return f"{self.q:g}, {self.window}"


class Ties(Enum):
    """Rule for the rank of equal values."""

    AVERAGE = "average"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Rank(Windowed):
    """Rank of the newest value in the window, from 1, or as a fraction of the count with `pct`."""

    ties: Ties = Ties.AVERAGE
    pct: bool = False
    kind = "rank"
    result = Result.FLOAT
