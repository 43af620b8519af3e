"""Statistics of consecutive values: difference, relative change, crossing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headrace.operators.statistics.kernel import Kernel, Variable, kernel_of
from headrace.operators.statistics.statistic import Need, Result, Statistic

if TYPE_CHECKING:
    from headrace.operators.statistics.kernel import InputValues


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


# --- kernels that compare a value with recent ones: difference, relative change, crossing ---------


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
