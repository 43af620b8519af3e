"""What statistics mean: each answer computed from the whole window, in exact numbers where there are any."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from headrace.operators.statistics.kernel import SILENT, InputValues, compile_kernel, kernel_of
from headrace.operators.statistics.kernel_runtime import FUNCTIONS
from headrace.operators.statistics.statistic import (
    CountWindow,
    Expanding,
    Holes,
    Statistic,
    TimeWindow,
    ValueWindow,
)

NAN = math.nan
Event = tuple[Any, Any, Any]
"""Value, other value, time."""


def stepwise(statistic: Statistic, events: Sequence[Event], holes: Holes = Holes.NAN_NONE) -> list[Any]:
    """The answers of the kernel, value by value; `SILENT` where it does not fire."""
    kernel = kernel_of(statistic, InputValues(statistic.inputs, holes))
    state, step = kernel.start(FUNCTIONS), compile_kernel(kernel, FUNCTIONS)
    return [step(state, x, y, t) for x, y, t in events]


def from_scratch(
    window: ValueWindow, events: Sequence[Event], answer: Callable[[list[Event]], Any], *, pairs: bool = False
) -> list[Any]:
    """`answer(values that are there)` for the window at each event, as its `min_periods` allow."""
    answers: list[Any] = []
    enough = False
    for at, (_, _, now) in enumerate(events):
        seen = events[: at + 1]
        match window:
            case CountWindow(size=size):
                seen = seen[-size:]
            case TimeWindow(span=span):
                seen = [e for e in seen if e[2] > now - span]
            case Expanding():
                pass
        there = [e for e in seen if not is_missing(e[0]) and not (pairs and is_missing(e[1]))]
        enough = enough or len(there) >= window.min_periods
        if not enough:
            answers.append(SILENT)
        else:
            answers.append(answer(there) if len(there) >= window.min_periods else NAN)
    return answers


def is_missing(value: Any) -> bool:
    return value is None or value != value


def is_finite(values: Sequence[float]) -> bool:
    return all(math.isfinite(v) for v in values)


def squares(xs: Sequence[float], ys: Sequence[float]) -> Fraction:
    """The count times the sum of products of deviations from the means."""
    x, y = [Fraction(v) for v in xs], [Fraction(v) for v in ys]
    return len(x) * sum((a * b for a, b in zip(x, y)), Fraction(0)) - sum(x) * sum(y)


def root(square: Fraction) -> float:
    """The square root, also of what has no float."""
    if square <= 0:
        return 0.0
    shift = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(square / Fraction(4) ** shift), shift)


def seconds(span: float | timedelta) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else span


START = datetime(2024, 2, 29, 23, 59, 50)
