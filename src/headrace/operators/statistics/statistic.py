"""Statistics of signals as data: their base classes, windows over values, kinds of input and result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import ClassVar, TypeAlias

from headrace.expr.time_texts import format_duration

# --- kinds of input and result values of statistics, known before the first value -----------------


class Holes(Enum):
    """Values that count as missing. They occupy a slot of a window by count, but are ignored otherwise.

    NONE:     no values.
    NAN:      NaN.
    NAN_NONE: NaN and None.
    """

    NONE = "no value is missing"
    NAN = "NaN is missing"
    NAN_NONE = "NaN and None are missing"


class ResultType(Enum):
    """Type of a statistic's results: float, bool, the type of the input, float for floats, or any."""

    FLOAT = "float"
    BOOL = "bool"
    AS_GIVEN = "as given"
    FLOAT_OF_FLOATS = "float of floats"
    ANY = "any"


class Times(Enum):
    """Type of the values of a time signal: `datetime`, seconds, or either, determined at run time."""

    DATETIMES = "datetimes"
    SECONDS = "seconds"
    EITHER = "either"


# --- windows over the values of a signal ----------------------------------------------------------


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


ValueWindow = CountWindow | TimeWindow | Expanding


# --- base classes of statistics -------------------------------------------------------------------


Need: TypeAlias = Callable[[bool, str], None]


@dataclass(frozen=True, slots=True)
class Statistic(ABC):
    """Base of statistics: functions of the ordered values of one or two signals.

    kind:     its name, as written by users.
    inputs:   number of signals of values that it reads; a signal of times comes after them.
    numbers:  whether those values must be numbers.
    result:   type of its results.
    """

    kind: ClassVar[str]
    inputs: ClassVar[int] = 1
    numbers: ClassVar[bool] = True
    result: ClassVar[ResultType] = ResultType.ANY

    @property
    def reads_time(self) -> bool:
        """Whether the statistic depends on the time of each value."""
        return False

    @property
    def waits_for_time(self) -> bool:
        """Whether the passing of time alone can make the statistic fire."""
        return False

    @property
    def may_be_silent(self) -> bool:
        """Whether the statistic may not fire for a value."""
        return True

    @property
    def is_steady(self) -> bool:
        """Whether the statistic fires for every value after its first firing."""
        return True

    @abstractmethod
    def check(self, need: Need) -> None:
        """Call `need` with each condition on the parameters and its error message."""

    def describe(self) -> str:
        """Return a short rendering of the parameters; empty if there are none."""
        return ""


@dataclass(frozen=True, slots=True)
class WindowedStatistic(Statistic):
    """A statistic over a sliding or expanding window."""

    window: ValueWindow

    def check(self, need: Need) -> None:
        window = self.window
        need(window.min_periods >= 0, "a count is below zero")
        match window:
            case CountWindow():
                need(window.size >= max(window.min_periods, 1), "a window has fewer values than it needs")
            case TimeWindow():
                need(window.span > timedelta(), "a span of time is not above zero")
            case Expanding():
                pass

    @property
    def reads_time(self) -> bool:
        return isinstance(self.window, TimeWindow)

    @property
    def may_be_silent(self) -> bool:
        return self.window.min_periods > 0

    def describe(self) -> str:
        return str(self.window)
