"""Windows over the values of a signal."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.expr.durations import format_duration


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The last `size` values, missing ones included."""

    size: int
    min_periods: int

    def __str__(self) -> str:
        return f"last {self.size}"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Values less than `span` older than the newest: open on the left, closed on the right."""

    span: timedelta
    min_periods: int

    def __str__(self) -> str:
        return f"last {format_duration(self.span)}"


@dataclass(frozen=True, slots=True)
class Expanding:
    """All values so far."""

    min_periods: int

    def __str__(self) -> str:
        return "all so far"


Window = CountWindow | TimeWindow | Expanding
