"""Kernels of statistics by order: of arrival, and of size."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.engine.signals.statistics.aggregates import GREATEST, LEAST, NEWEST, OLDEST
from penstock.engine.signals.statistics.kernel import Kernel, Variable
from penstock.engine.signals.statistics.kernels import kernel_of
from penstock.engine.signals.statistics.windows import Inputs, in_order, spans, windowed
from penstock.flow.statistics.ordering import First, Interpolation, Last, Max, Min, Quantile, Rank, Ties
from penstock.flow.statistics.window import CountWindow, Expanding, TimeWindow, Window

if TYPE_CHECKING:
    from collections.abc import Mapping


@kernel_of.register(Min)
def _min(statistic: Min, inputs: Inputs) -> Kernel:
    return windowed(statistic.window, LEAST, inputs, _some("$best", statistic.window))


@kernel_of.register(Max)
def _max(statistic: Max, inputs: Inputs) -> Kernel:
    return windowed(statistic.window, GREATEST, inputs, _some("$best", statistic.window))


@kernel_of.register(First)
def _first(statistic: First, inputs: Inputs) -> Kernel:
    return windowed(statistic.window, OLDEST, inputs, _some("$best", statistic.window))


@kernel_of.register(Last)
def _last(statistic: Last, inputs: Inputs) -> Kernel:
    return windowed(statistic.window, NEWEST, inputs, _some("$best", statistic.window))


@kernel_of.register(Quantile)
def _quantile(statistic: Quantile, inputs: Inputs) -> Kernel:
    function = _QUANTILES[statistic.interpolation]
    value = _some(f"${function}($blocks, $counts, $n, {statistic.q!r})", statistic.window)
    return sorted_window(statistic.window, inputs, value)


_QUANTILES: Mapping[Interpolation, str] = {i: f"quantile_{i.value}" for i in Interpolation}


@kernel_of.register(Rank)
def _rank(statistic: Rank, inputs: Inputs) -> Kernel:
    rank = {Ties.AVERAGE: "($less + $upto + 1) / 2", Ties.MIN: "$less + 1.0", Ties.MAX: "$upto * 1.0"}
    value = rank[statistic.ties]
    if statistic.pct:
        value = _some(f"({value}) / $n", statistic.window)
    # A missing value has no rank.
    lines = inputs.guarded(
        ("$less, $upto = $places($blocks, $tops, $counts, $x)",), ("$less = $upto = $NAN",)
    )
    return sorted_window(statistic.window, inputs, value, lines)


def _some(value: str, window: Window) -> str:
    return value if window.min_periods else f"({value} if $n else $NAN)"


# -- windows whose values are kept in order of size ---------------------------------------------------


@singledispatch
def sorted_window(window: Window, inputs: Inputs, value: str, lines: tuple[str, ...] = ()) -> Kernel:
    """The kernel of `value`, a source over the values in order of size and their count, `$n`."""
    raise NotImplementedError(f"no kernel for {type(window).__name__}")


_SORTED = (
    Variable("blocks", "[]", lists=2),
    Variable("tops", "[]", lists=1),
    Variable("counts", "[]", lists=1),
)


@sorted_window.register(CountWindow)
def _by_count(window: CountWindow, inputs: Inputs, value: str, lines: tuple[str, ...] = ()) -> Kernel:
    size, least = window.size, window.min_periods
    variables = (
        Variable("k", "0"),
        Variable("n", "0"),
        Variable("ready", str(least == 0)),
        Variable("ring", f"[None] * {size}", lists=1),
        *_SORTED,
    )
    turn = (
        "$old = $ring[$k]",
        "if $old is not None:",
        "    $take_out($blocks, $tops, $counts, $old)",
        "    $n -= 1",
        *inputs.guarded(
            ("$put_in($blocks, $tops, $counts, $x)", "$n += 1", "$ring[$k] = $x"), ("$ring[$k] = None",)
        ),
        "$k += 1",
        f"if $k == {size}:",
        "    $k = 0",
        f"if $n >= {least}:",
        "    $ready = True",
    )
    return Kernel(variables, (*turn, *lines), f"({value}) if $n >= {least} else $NAN", "$ready")


@sorted_window.register(TimeWindow)
def _by_time(window: TimeWindow, inputs: Inputs, value: str, lines: tuple[str, ...] = ()) -> Kernel:
    least = window.min_periods
    variables = (
        Variable("k", "0"),
        Variable("n", "0"),
        Variable("last", "None"),
        Variable("ready", str(least == 0)),
        Variable("times", "[]", lists=1),
        Variable("values", "[]", lists=1),
        *_SORTED,
    )
    turn = (
        *in_order(),
        f"$limit = $t - {inputs.span}",
        "while $k < len($times) and $times[$k] <= $limit:",
        "    $take_out($blocks, $tops, $counts, $values[$k])",
        "    $k += 1",
        "    $n -= 1",
        # Once the half that has left is larger than the rest, it goes.
        "if $k > $n + 16:",
        "    del $times[:$k], $values[:$k]",
        "    $k = 0",
        *inputs.guarded(
            ("$times.append($t)", "$values.append($x)", "$put_in($blocks, $tops, $counts, $x)", "$n += 1")
        ),
        f"if $n >= {least}:",
        "    $ready = True",
    )
    shown = f"({value}) if $n >= {least} else $NAN"
    return Kernel(variables, (*turn, *lines), shown, "$ready", spans(window.span))


@sorted_window.register(Expanding)
def _by_all(window: Expanding, inputs: Inputs, value: str, lines: tuple[str, ...] = ()) -> Kernel:
    enter = inputs.guarded(("$put_in($blocks, $tops, $counts, $x)", "$n += 1"))
    return Kernel((Variable("n", "0"), *_SORTED), (*enter, *lines), value, f"$n >= {window.min_periods}")
