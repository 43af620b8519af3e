"""Statistics of consecutive values: difference, relative change, crossing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.operators.statistics.statistic import Need, Statistic
from headrace.operators.statistics.value_kinds import Result


@dataclass(frozen=True, slots=True)
class Diff(Statistic):
    """Difference from the value `count` firings ago."""

    count: int
    kind = "diff"
    result = Result.FLOAT_OF_FLOATS
    numbers = False

    def check(self, need: Need) -> None:
        need(self.count >= 1, "a count is below one")

    def describe(self) -> str:
        return f"to {self.count} before"


@dataclass(frozen=True, slots=True)
class PctChange(Statistic):
    """Relative change since `count` firings ago."""

    count: int
    kind = "pct_change"
    result = Result.FLOAT

    def check(self, need: Need) -> None:
        need(self.count >= 1, "a count is below one")

    def describe(self) -> str:
        return f"to {self.count} before"


class Direction(Enum):
    """Direction of a crossing."""

    ABOVE = "above"
    BELOW = "below"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Crossed(Statistic):
    """Whether the first signal has just crossed the second, or a level.

    It has crossed when it is on the side opposite to the one it was last on. Equality is on neither side, so
    touching and turning back does not count.
    """

    direction: Direction
    level: int | float | None = None
    kind = "crossed"
    result = Result.BOOL

    def check(self, need: Need) -> None:
        level = self.level
        need(level is None or level == level, "a level is no number")

    @property
    def inputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 2 if self.level is None else 1

    @property
    def may_be_silent(self) -> bool:
        return False

    def describe(self) -> str:
        side = "" if self.direction is Direction.BOTH else self.direction.value
        if self.level is None:
            return side
        shown = f"{self.level:g}" if isinstance(self.level, float) else str(self.level)
        return f"{side} {shown}".strip()
