"""Exponentially weighted statistics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
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
from headrace.operators.statistics.rounding import NO_WEIGHT, WHOLE
from headrace.operators.statistics.statistic import Need, ResultType, Statistic

if TYPE_CHECKING:
    from headrace.operators.statistics.kernel import InputValues


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
    result = ResultType.FLOAT


@dataclass(frozen=True, slots=True)
class EwmVar(Ewm):
    """Weighted variance, with bias correction unless `bias`."""

    bias: bool = False
    kind = "ewm_var"
    result = ResultType.FLOAT


class EwmStd(EwmVar):
    """Square root of the weighted variance."""

    __slots__ = ()
    kind = "ewm_std"
    result = ResultType.FLOAT


# --- kernels of exponentially weighted statistics -------------------------------------------------

# State is the mean, as a sum of two floats; `$q`, the weighted sum of squares of
# deviations from it, of which `$s` is the unit: a power of two that they are
# multiplied by, so that squares neither overflow nor vanish; `$sum_w`, the sum of the
# weights, and `$pairs`, that of the products of two different ones: it is what the square of the
# sum is above the sum of squares, without the digits that this difference loses. All of them decay
# by one factor before a value enters, so rounding decays with them.


_MEAN = (KernelVariable("m", "0.0"), KernelVariable("cut", "0.0"))
_WEIGHTS = (KernelVariable("n", "0"), KernelVariable("sum_w", "0.0"))
_SQUARES = (KernelVariable("q", "0.0"), KernelVariable("pairs", "0.0"), KernelVariable("s", "1.0"))
_SQUARE = (
    "$g = $d * $s",
    "if not (1e-50 < $q < 1e50 and -1e25 < $g < 1e25):",
    "    $q, $s = $rescaled($q, $s, $d)",
    "    $g = $d * $s",
    # What the mean moves by is no part of the deviation.
    "$q += $share * $older * $g * $g",
)


@kernel_of.register(EwmMean)
def _mean(statistic: EwmMean, inputs: InputValues) -> Kernel:
    return _kernel(statistic, inputs, "$m + $cut" if statistic.min_periods else "$m + $cut if $n else $NAN")


@kernel_of.register(EwmVar)
def _var(statistic: EwmVar, inputs: InputValues) -> Kernel:
    return _kernel(statistic, inputs, _spread(statistic, "{} / $s / $s"))


@kernel_of.register(EwmStd)
def _std(statistic: EwmStd, inputs: InputValues) -> Kernel:
    return _kernel(statistic, inputs, _spread(statistic, "$sqrt({}) / $s"))


def _spread(statistic: EwmVar, of: str) -> str:
    """Return the source of `of` applied to the variance in units of squares; NaN without a variance."""
    # Infinities have left NaN there, which is no other than that of the user's values.
    if statistic.bias:
        return f"({of.format('$q / $sum_w')} if $n and $q == $q else $NAN)"
    variance = of.format("$q * $sum_w / $pairs")
    return f"({variance} if $pairs > {NO_WEIGHT} and $q == $q else $NAN)"


def _kernel(statistic: Ewm, inputs: InputValues, value: str) -> Kernel:
    decay, squares = statistic.decay, isinstance(statistic, EwmVar)
    variables = (*_WEIGHTS, *_MEAN, *(_SQUARES if squares else ()))
    fires = f"$n >= {statistic.min_periods}"
    enter = _enter(1.0 if decay.adjust else decay.alpha or 0.0, inputs, squares=squares)
    if not decay.adjust:
        # The newest value weighs `alpha` to all others' rest, also after missing ones.
        enter = (
            *enter,
            *(("$q /= $sum_w", "$pairs /= $sum_w * $sum_w") if squares else ()),
            "$sum_w = 1.0",
        )
    if decay.half_life is not None:
        lines = (
            *reject_earlier_times(),
            *inputs.guarded((*_keep_since(inputs), *_fade("$keep", squares=squares), *enter)),
        )
        times = KernelVariable("last", "None"), KernelVariable("since", "None")
        return Kernel((*times, *variables), lines, value, fires, spans(decay.half_life))
    keep = 1.0 - (decay.alpha or 0.0)
    if decay.ignore_na or not inputs.missing:
        lines = inputs.guarded((*_fade(repr(keep), squares=squares), *enter))
        return Kernel(variables, lines, value, fires)
    present = (*_keep_after_missing(keep), *_fade("$keep", squares=squares), *enter)
    lines = inputs.guarded(present, ("$missed += 1",))
    return Kernel((KernelVariable("missed", "0"), *variables), lines, value, fires)


# Of missing values only how many there were, or the time, is kept until a value comes: no weight is more to
# another than before, and those that nothing is added to would vanish.


def _keep_since(inputs: InputValues) -> tuple[str, ...]:
    """Return lines that compute the decay factor `$keep` from the time of the last value."""
    return (
        "$keep = 1.0",
        "if $since is not None:",
        f"    $keep = 0.5 ** (($t - $since) / {inputs.span})",
        *_vanishing(),
        "$since = $t",
    )


def _keep_after_missing(keep: float) -> tuple[str, ...]:
    """Return lines that compute the decay factor `$keep` from the number of preceding missing values."""
    return (
        f"$keep = {keep!r}",
        "if $missed:",
        "    $keep = $keep ** ($missed + 1)",
        "    $missed = 0",
        *_vanishing(),
    )


def _vanishing() -> tuple[str, ...]:
    return (f"    if $keep < {NO_WEIGHT}:", "        $keep = 0.0")


def _fade(keep: str, *, squares: bool) -> tuple[str, ...]:
    more = (f"$q *= {keep}", f"$pairs *= {keep} * {keep}") if squares else ()
    return (*more, f"$sum_w *= {keep}")


def _enter(weight: float, inputs: InputValues, *, squares: bool) -> tuple[str, ...]:
    """Return lines that add a value with this weight; earlier values have already decayed."""
    x, rest, halves = "$x", "", ()
    if not inputs.floats:
        # A whole number may have as many digits as a mean, which is two floats.
        x, rest = "$h", " + $rest"
        halves = (f"$h, $rest = ($x, 0.0) if -{WHOLE} < $x < {WHOLE} else $halves($x)",)
    return (
        *((f"$pairs += 2 * {weight} * $sum_w",) if squares else ()),
        "$older = $sum_w",
        f"$sum_w += {weight}",
        "$n += 1",
        f"$share = {weight} / $sum_w",
        *halves,
        f"$d = ({x} - $m) - $cut{rest}",
        "if $d - $d == 0:",
        # From the nearer end, so that nothing remains of a mean that has no weight.
        "    if $share < 0.5:",
        "        $w = $d * $share + $cut",
        "        $u = $m + $w",
        "        $cut = $w - ($u - $m)",
        "    else:",
        "        $w = -$d * ($older / $sum_w)",
        f"        $u = {x} + $w",
        f"        $cut = $w - ($u - {x}){rest}",
        "    $m = $u",
        *(indented(_SQUARE) if squares else ()),
        "else:",
        "    $m, $cut, $q, $s = $update_mean_and_squares($x, $m, $cut, $share, $older, $q, $s)"
        if squares
        else "    $m, $cut = $leap($x, $m, $cut, $share)",
    )
