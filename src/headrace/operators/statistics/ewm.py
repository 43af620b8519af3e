"""Exponentially weighted statistics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.expr.durations import format_duration
from headrace.operators.statistics.statistic import Need, Statistic
from headrace.operators.statistics.value_kinds import Result


@dataclass(frozen=True, slots=True)
class Decay:
    """Rate at which weights decay.

    alpha:      fraction of its weight that a value loses with each later value; or
    half_life:  time in which it loses half of its weight.
    adjust:     weights are powers of the decay. Otherwise the newest value has weight `alpha`, and all values
                before it together the rest (by count only).
    ignore_na:  missing values do not cause decay (by count only).
    """

    alpha: float | None = None
    half_life: timedelta | None = None
    adjust: bool = True
    ignore_na: bool = False

    def falls(self) -> bool:
        """Return whether exactly one of the two parameters is given, with a valid rate."""
        if self.half_life is not None:
            by_time = self.adjust and not self.ignore_na
            return self.alpha is None and by_time and self.half_life > timedelta()
        return self.alpha is not None and 0 < self.alpha <= 1

    def __str__(self) -> str:
        rate = f"half life {format_duration(self.half_life)}" if self.half_life else f"alpha {self.alpha:g}"
        return rate + ("" if self.adjust else ", not adjusted")


@dataclass(frozen=True, slots=True)
class Ewm(Statistic):
    """Base of the exponentially weighted statistics."""

    decay: Decay
    min_periods: int

    def check(self, need: Need) -> None:
        need(self.min_periods >= 0, "a count is below zero")
        need(self.decay.falls(), "weights do not fall in a way that there is")

    @property
    def reads_time(self) -> bool:
        return self.decay.half_life is not None

    def describe(self) -> str:
        return str(self.decay)


class EwmMean(Ewm):
    """Weighted mean."""

    __slots__ = ()
    kind = "ewm_mean"
    result = Result.FLOAT


@dataclass(frozen=True, slots=True)
class EwmVar(Ewm):
    """Weighted variance, with bias correction unless `bias`."""

    bias: bool = False
    kind = "ewm_var"
    result = Result.FLOAT


class EwmStd(EwmVar):
    """Square root of the weighted variance."""

    __slots__ = ()
    kind = "ewm_std"
    result = Result.FLOAT
