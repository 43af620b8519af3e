"""Kernels that emit fewer values than they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.signals.statistics.input_tests import indented, kernel_of, reject_earlier_times, spans
from headrace.engine.signals.statistics.kernel import Kernel, Variable
from headrace.operators.statistics.downsampling import (
    BarsByCount,
    BarsByTime,
    Debounce,
    EveryNth,
    Throttle,
    Timer,
)

if TYPE_CHECKING:
    from headrace.engine.signals.statistics.input_tests import InputValues


@kernel_of.register(EveryNth)
def _every_nth(statistic: EveryNth, inputs: InputValues) -> Kernel:
    lines = (f"$k = $k + 1 if $k < {statistic.count} else 1",)
    return Kernel((Variable("k", "0"),), lines, "$x", f"$k == {statistic.count}")


@kernel_of.register(Throttle)
def _throttle(statistic: Throttle, inputs: InputValues) -> Kernel:
    lines = (
        *reject_earlier_times(),
        f"$through = $shown is None or $t - {inputs.span} >= $shown",
        "if $through:",
        "    $shown = $t",
    )
    variables = (Variable("last", "None"), Variable("shown", "None"))
    return Kernel(variables, lines, "$x", "$through", spans(statistic.span))


@kernel_of.register(Debounce)
def _debounce(statistic: Debounce, inputs: InputValues) -> Kernel:
    variables = (Variable("last", "None"), Variable("since", "None"), Variable("held", "None"))
    lines = (
        *reject_earlier_times(),
        f"$calm = $since is not None and $t - {inputs.span} >= $since",
        "$shown = $held",
        "if $calm:",
        "    $since = $held = None",
        "if $fresh:",
        "    $since, $held = $t, $x",
    )
    return Kernel(variables, lines, "$shown", "$calm", spans(statistic.span))


@kernel_of.register(Timer)
def _timer(statistic: Timer, inputs: InputValues) -> Kernel:
    variables = (Variable("last", "None"), Variable("passed", "None"))
    lines = (
        *reject_earlier_times(),
        f"$start = $multiple_before($t, {inputs.span})",
        "$rings = $passed is not None and $start > $passed",
        "$passed = $start",
    )
    return Kernel(variables, lines, "$passed", "$rings", spans(statistic.span))


_BAR = tuple(Variable(name, "None") for name in ("open", "high", "low", "close"))
_OPEN = ("$open = $high = $low = $close = $x",)
_GROW = (
    "$close = $x",
    "if $x > $high:",
    "    $high = $x",
    "if $x < $low:",
    "    $low = $x",
)


@kernel_of.register(BarsByCount)
def _bars_by_count(statistic: BarsByCount, inputs: InputValues) -> Kernel:
    enter = ("if $k == 0:", *indented(_OPEN), "else:", *indented(_GROW), "$k += 1")
    lines = (
        f"if $k == {statistic.count}:",
        "    $k = 0",
        "$came = False",
        *inputs.guarded((*enter, "$came = True")),
    )
    variables = (Variable("k", "0"), *_BAR)
    return Kernel(variables, lines, "($open, $high, $low, $close)", f"$came and $k == {statistic.count}")


@kernel_of.register(BarsByTime)
def _bars_by_time(statistic: BarsByTime, inputs: InputValues) -> Kernel:
    enter = (
        "if $start is None:",
        "    $start = $now",
        *indented(_OPEN),
        "else:",
        *indented(_GROW),
    )
    lines = (
        *reject_earlier_times(),
        f"$now = $multiple_before($t, {inputs.span})",
        "$closed = $start is not None and $now > $start",
        "$bar = ($start, $open, $high, $low, $close)",
        "if $closed:",
        "    $start = None",
        "if $fresh:",
        *indented(inputs.guarded(enter)),
    )
    variables = (Variable("last", "None"), Variable("start", "None"), *_BAR)
    return Kernel(variables, lines, "$bar", "$closed", spans(statistic.span))
