"""Windows that keep their values in sorted order as well as in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from headrace.engine.signals.statistics.input_tests import InputValues, reject_earlier_times, spans
from headrace.engine.signals.statistics.kernel import Kernel, Variable
from headrace.operators.statistics.value_windows import CountWindow, Expanding, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class SortedCode:
    """Sorted values: sources of statements and expressions, with `{}` for a value or position.

    put, take: insert or remove a value. at: the value at a position, from 0.
    places:    number of lesser values, and of values not greater.
    """

    variables: tuple[Variable, ...]
    put: str
    take: str
    at: str
    places: str


FEW = SortedCode(
    (Variable("sorted", "[]", lists=1),),
    "$insort($sorted, {})",
    "del $sorted[$bisect_left($sorted, {})]",
    "$sorted[{}]",
    "$bisect_left($sorted, {0}), $bisect_right($sorted, {0})",
)
"""Order for small windows: a single list, whose values move faster than a function is called."""

MANY = SortedCode(
    (
        Variable("blocks", "[]", lists=2),
        Variable("tops", "[]", lists=1),
        Variable("counts", "[]", lists=1),
    ),
    "$put_in($blocks, $tops, $counts, {})",
    "$take_out($blocks, $tops, $counts, {})",
    "$value_at($blocks, $counts, {})",
    "$places($blocks, $tops, $counts, {})",
)
"""Order for large windows: the blocks of `sorted_blocks.py`."""

_FEW = 2_000
"""Window size up to which one list is faster than blocks."""


def choose_sorted_structure(window: Window) -> SortedCode:
    """Choose the sorted structure for a window's values."""
    return FEW if isinstance(window, CountWindow) and window.size <= _FEW else MANY


@singledispatch
def sorted_window_kernel(window: Window, inputs: InputValues, lines: tuple[str, ...], value: str) -> Kernel:
    """Return the kernel of `value` after `lines`, over the sorted values and their count `$n`."""
    raise NotImplementedError(f"no kernel for {type(window).__name__}")


@sorted_window_kernel.register(CountWindow)
def _by_count(window: CountWindow, inputs: InputValues, lines: tuple[str, ...], value: str) -> Kernel:
    size, least, order = window.size, window.min_periods, choose_sorted_structure(window)
    variables = (
        Variable("k", "0"),
        Variable("n", "0"),
        Variable("ready", str(least == 0)),
        Variable("ring", f"[None] * {size}", lists=1),
        *order.variables,
    )
    turn = (
        "$old = $ring[$k]",
        "if $old is not None:",
        f"    {order.take.format('$old')}",
        "    $n -= 1",
        *inputs.guarded((order.put.format("$x"), "$n += 1", "$ring[$k] = $x"), ("$ring[$k] = None",)),
        "$k += 1",
        f"if $k == {size}:",
        "    $k = 0",
        f"if $n >= {least}:",
        "    $ready = True",
    )
    return Kernel(variables, (*turn, *lines), f"({value}) if $n >= {least} else $NAN", "$ready")


@sorted_window_kernel.register(TimeWindow)
def _by_time(window: TimeWindow, inputs: InputValues, lines: tuple[str, ...], value: str) -> Kernel:
    least, order = window.min_periods, choose_sorted_structure(window)
    variables = (
        Variable("k", "0"),
        Variable("n", "0"),
        Variable("last", "None"),
        Variable("ready", str(least == 0)),
        Variable("times", "[]", lists=1),
        Variable("values", "[]", lists=1),
        *order.variables,
    )
    turn = (
        *reject_earlier_times(),
        f"$limit = $t - {inputs.span}",
        "while $k < len($times) and $times[$k] <= $limit:",
        f"    {order.take.format('$values[$k]')}",
        "    $k += 1",
        "    $n -= 1",
        # Once what has left is more than the rest, it goes.
        "if $k > $n + 16:",
        "    del $times[:$k], $values[:$k]",
        "    $k = 0",
        *inputs.guarded(("$times.append($t)", "$values.append($x)", order.put.format("$x"), "$n += 1")),
        f"if $n >= {least}:",
        "    $ready = True",
    )
    shown = f"({value}) if $n >= {least} else $NAN"
    return Kernel(variables, (*turn, *lines), shown, "$ready", spans(window.span))


@sorted_window_kernel.register(Expanding)
def _by_all(window: Expanding, inputs: InputValues, lines: tuple[str, ...], value: str) -> Kernel:
    order = choose_sorted_structure(window)
    enter = inputs.guarded((order.put.format("$x"), "$n += 1"))
    variables = (Variable("n", "0"), *order.variables)
    return Kernel(variables, (*enter, *lines), value, f"$n >= {window.min_periods}")
