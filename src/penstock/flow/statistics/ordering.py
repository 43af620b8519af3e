"""Statistics by order of size or of arrival: minimum, maximum, quantiles, rank, first, last."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.flow.statistics.inputs import Result
from penstock.flow.statistics.statistic import Need, Windowed


class Min(Windowed):
    """The least value."""

    __slots__ = ()
    kind = "min"
    result = Result.FLOAT_OF_FLOATS


class Max(Windowed):
    """The greatest value."""

    __slots__ = ()
    kind = "max"
    result = Result.FLOAT_OF_FLOATS


class First(Windowed):
    """The oldest value that is not missing."""

    __slots__ = ()
    kind = "first"
    result = Result.FLOAT_OF_FLOATS
    numbers = False


class Last(Windowed):
    """The newest value that is not missing."""

    __slots__ = ()
    kind = "last"
    result = Result.FLOAT_OF_FLOATS
    numbers = False


class Interpolation(Enum):
    """What a quantile is that falls between two values."""

    LINEAR = "linear"
    LOWER = "lower"
    HIGHER = "higher"
    MIDPOINT = "midpoint"
    NEAREST = "nearest"


@dataclass(frozen=True, slots=True)
class Quantile(Windowed):
    """The value below which a part `q` of the values lies; 0.5 is the median."""

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
    """The rank of a value that occurs more than once."""

    AVERAGE = "average"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Rank(Windowed):
    """The place of the newest value among those of the window, from 1; as a part of the count with `pct`."""

    ties: Ties = Ties.AVERAGE
    pct: bool = False
    kind = "rank"
    result = Result.FLOAT
