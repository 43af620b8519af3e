"""Kernels of exponentially weighted statistics.

State is the mean, as a sum of two floats; `$q`, the weighted sum of squares of
deviations from it (West's update); `$sum_w`, the sum of the weights, and `$pairs`, that
of the products of two different ones: it is what the square of the sum is above the sum of
squares, without the digits that this difference loses. All of them decay by one factor
before a value enters, so rounding decays with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.signals.statistics.kernel import Kernel, Variable
from penstock.engine.signals.statistics.kernels import kernel_of
from penstock.engine.signals.statistics.windows import in_order, inside, spans
from penstock.flow.statistics.ewm import Ewm, EwmMean, EwmStd, EwmVar

if TYPE_CHECKING:
    from penstock.engine.signals.statistics.windows import Inputs

_MEAN = (Variable("m", "0.0"), Variable("cut", "0.0"))
_WEIGHTS = (Variable("n", "0"), Variable("sum_w", "0.0"))
_SQUARES = (Variable("q", "0.0"), Variable("pairs", "0.0"))


@kernel_of.register(EwmMean)
def _mean(statistic: EwmMean, inputs: Inputs) -> Kernel:
    return _kernel(statistic, inputs, "$m + $cut" if statistic.min_periods else "$m + $cut if $n else $NAN")


@kernel_of.register(EwmVar)
def _var(statistic: EwmVar, inputs: Inputs) -> Kernel:
    return _kernel(statistic, inputs, _spread(statistic))


@kernel_of.register(EwmStd)
def _std(statistic: EwmStd, inputs: Inputs) -> Kernel:
    return _kernel(statistic, inputs, f"$root({_spread(statistic)})")


def _spread(statistic: EwmVar) -> str:
    if statistic.bias:
        return "($q / $sum_w if $n else $NAN)"
    return "($q * $sum_w / $pairs if $pairs > 0 else $NAN)"


def _kernel(statistic: Ewm, inputs: Inputs, value: str) -> Kernel:
    decay, squares = statistic.decay, isinstance(statistic, EwmVar)
    by_time = decay.half_life is not None
    weight = 1.0 if decay.adjust else decay.alpha
    keep = "$keep" if by_time else repr(1.0 - (decay.alpha or 0.0))
    fade = (
        *((f"$q *= {keep}", f"$pairs *= {keep} * {keep}") if squares else ()),
        f"$sum_w *= {keep}",
    )
    enter = (
        *((f"$pairs += 2 * {weight} * $sum_w",) if squares else ()),
        f"$sum_w += {weight}",
        "$n += 1",
        "$d = ($x - $m) - $cut",
        "if $d - $d == 0:",
        f"    $w = $d * ({weight} / $sum_w) + $cut",
        "    $u = $m + $w",
        "    $cut = $w - ($u - $m)",
        "    $m = $u",
        *((f"    $q += {weight} * $d * (($x - $m) - $cut)",) if squares else ()),
        # No way leads from a mean to infinity, or back.
        "else:",
        "    $m, $cut = $m + $x, 0.0",
        *(("    $q = $NAN",) if squares else ()),
    )
    if not decay.adjust:
        # The newest value weighs `alpha` to all others' rest, also after missing ones.
        enter = (
            *enter,
            *(("$q /= $sum_w", "$pairs /= $sum_w * $sum_w") if squares else ()),
            "$sum_w = 1.0",
        )
    if decay.ignore_na:
        lines = inputs.guarded((*fade, *enter))
    else:
        lines = (*fade, *inputs.guarded(enter))
    if by_time:
        lines = (
            "$before = $last",
            *in_order(),
            "if $before is not None:",
            f"    $keep = 0.5 ** (($t - $before) / {inputs.span})",
            *inside(fade),
            *inputs.guarded(enter),
        )
    variables = (
        *((Variable("last", "None"),) if by_time else ()),
        *_WEIGHTS,
        *_MEAN,
        *(_SQUARES if squares else ()),
    )
    constants = spans(decay.half_life) if decay.half_life is not None else {}
    return Kernel(variables, lines, value, f"$n >= {statistic.min_periods}", constants)
