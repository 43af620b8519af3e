"""Kernels that compare a value with recent ones: difference, relative change, crossing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.signals.statistics.input_tests import kernel_of
from headrace.engine.signals.statistics.kernel import Kernel, Variable
from headrace.operators.statistics.differences import Crossed, Diff, Direction, PctChange

if TYPE_CHECKING:
    from headrace.engine.signals.statistics.input_tests import InputValues


@kernel_of.register(Diff)
def _diff(statistic: Diff, inputs: InputValues) -> Kernel:
    return _to_before(statistic.count, inputs, "$x - $old")


@kernel_of.register(PctChange)
def _pct_change(statistic: PctChange, inputs: InputValues) -> Kernel:
    return _to_before(statistic.count, inputs, "$change($x, $old)")


def _to_before(count: int, inputs: InputValues, value: str) -> Kernel:
    """Return the source of `value` over `$x` and `$old`, the value `count` before it.

    The result is NaN if either is missing.
    """
    variables, oldest, turn = _one_before() if count == 1 else _ring(count)
    lines = (
        "$full = $next_full",
        f"$old = {oldest}",
        *inputs.guarded((f"{oldest} = $x",), (f"{oldest} = $NAN",)),
        *turn,
    )
    full = (Variable("full", "False"), Variable("next_full", "False"))
    shown = f"$NAN if {inputs.missing} else {value}" if inputs.missing else value
    return Kernel((*full, *variables), lines, shown, "$full")


_History = tuple[tuple[Variable, ...], str, tuple[str, ...]]
"""State, source of the oldest value (where the next one goes), and the lines that advance it."""


def _one_before() -> _History:
    return (Variable("before", "None"),), "$before", ("$next_full = True",)


def _ring(count: int) -> _History:
    turn = ("$k += 1", f"if $k == {count}:", "    $k = 0", "    $next_full = True")
    return (Variable("k", "0"), Variable("ring", f"[None] * {count}", lists=1)), "$ring[$k]", turn


@kernel_of.register(Crossed)
def _crossed(statistic: Crossed, inputs: InputValues) -> Kernel:
    crossed = {
        Direction.ABOVE: "$turned and $side > 0",
        Direction.BELOW: "$turned and $side < 0",
        Direction.BOTH: "$turned",
    }
    level = "$y" if statistic.level is None else "$level"
    lines = (
        f"$now = ($x > {level}) - ($x < {level})",
        "$turned = $now * $side < 0",
        "if $now:",
        "    $side = $now",
    )
    lines = inputs.guarded(lines, ("$turned = False",))
    constants = {} if statistic.level is None else {"level": statistic.level}
    return Kernel((Variable("side", "0"),), lines, crossed[statistic.direction], constants=constants)
