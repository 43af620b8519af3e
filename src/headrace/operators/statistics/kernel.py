"""Kernel: one statistic as straight-line Python over a few variables of plain data.

A name that begins with `$` belongs to the kernel: its inputs `$x`, `$y` (the second signal), `$t` (the time)
and `$fresh` (whether a value came, and not the time alone), its variables and constants, the functions of
`kernel_runtime.py`, and what it needs between two lines. Whoever writes a kernel into a tick chooses these
names, so any number of kernels stand in one function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from headrace.operators.statistics.rounding import GREATEST, LEAST, WHOLE
from headrace.operators.statistics.statistic import Holes, Times

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from headrace.operators.statistics.aggregates import Aggregate
    from headrace.operators.statistics.statistic import Statistic


_NAME = re.compile(r"\$([A-Za-z]\w*)")

SILENT: Any = object()
"""Result of `compile_kernel` for a value at which the statistic does not fire."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A state variable. start: source of its initial value. lists: nesting depth of its lists."""

    name: str
    start: str
    lists: int = 0

    def first(self, functions: Mapping[str, Any]) -> Any:
        """Create an initial value."""
        return eval(rename_variables(self.start, str), dict(functions))


@dataclass(frozen=True, slots=True)
class Kernel:
    """Code that updates a statistic by a value.

    variables: its state, in the order in which it is kept.
    lines:     what is done with a value; they change nothing but the variables.
    value:     source of the statistic after these lines; `fires` of whether it has one.
    constants: values that the lines name with a `$`.
    """

    variables: tuple[Variable, ...]
    lines: tuple[str, ...]
    value: str
    fires: str = "True"
    constants: Mapping[str, object] = field(default_factory=dict[str, object])

    def start(self, functions: Mapping[str, Any]) -> list[Any]:
        """Return the initial state."""
        return [v.first(functions) for v in self.variables]


def rename_variables(source: str, name: Callable[[str], str]) -> str:
    """Replace each `$n` in `source` with `name(n)`."""
    return _NAME.sub(lambda found: name(found[1]), source)


def compile_kernel(kernel: Kernel, functions: Mapping[str, Any]) -> Callable[..., Any]:
    """Compile the kernel to a function of state and named inputs; `SILENT` if it does not fire."""
    names = ", ".join(v.name for v in kernel.variables)
    fires = rename_variables(kernel.fires, str)
    lines = [
        "def step(state, x=None, y=None, t=None, fresh=True):",
        f"    [{names}] = state",
        *(f"    {rename_variables(line, str)}" for line in kernel.lines),
        f"    out = ({rename_variables(kernel.value, str)}) if {fires} else SILENT",
        f"    state[:] = [{names}]",
        "    return out",
    ]
    namespace: dict[str, Any] = {**functions, **kernel.constants, "SILENT": SILENT}
    exec("\n".join(lines), namespace)
    return namespace["step"]


# --- known properties of a statistic's inputs, and the source of tests for the unknown ones -------


@dataclass(frozen=True, slots=True)
class InputValues:
    """Input values of a window.

    count:   of values: `$x`, or `$x` and `$y`.
    holes:   which of them are missing. times: what `$t` is.
    before, variables: lines that make `$y` where it is no signal, and their state.
    broken:  whether that `$y` may be no whole number, or large.
    """

    count: int = 1
    holes: Holes = Holes.NAN_NONE
    times: Times = Times.EITHER
    before: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()
    broken: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return ("x", "y")[: self.count]

    @property
    def missing(self) -> str:
        """Test for a missing value; empty if none can be missing."""
        given = self.names if not self.before else ("x",)
        match self.holes:
            case Holes.NONE:
                return ""
            case Holes.NAN:
                return " or ".join(f"${x} != ${x}" for x in given)
            case Holes.NAN_NONE:
                return " or ".join(f"${x} is None or ${x} != ${x}" for x in given)

    def guarded(self, present: Iterable[str], otherwise: Iterable[str] = ()) -> tuple[str, ...]:
        """Return lines that run `present` if no value is missing, else `otherwise`."""
        present, otherwise = tuple(present), tuple(otherwise)
        if not present:
            return ()
        if not self.missing:
            return present
        if not otherwise:
            return (f"if not ({self.missing}):", *indented(present))
        return (f"if {self.missing}:", *indented(otherwise), "else:", *indented(present))

    @property
    def all_integers(self) -> bool:
        """Return whether all numbers are known to be integers, so that sums are not rounded."""
        return self.holes is Holes.NONE and not self.broken

    @property
    def floats(self) -> bool:
        """Return whether `$x` is known to be a float."""
        return self.holes is Holes.NAN and (self.count == 1 or bool(self.before))

    def plain(self, aggregate: Aggregate) -> str:
        """Return a test for present values within float range; empty if certain."""
        given = self.names if not self.before else ("x",)
        there = [f"${x} is not None" for x in given if self.holes is Holes.NAN_NONE]
        if not may_need_tally(aggregate, self):
            there += [f"${x} == ${x}" for x in given if self.holes is not Holes.NONE]
            return " and ".join(there)
        squared = aggregate.sums > 1
        there.append(_plain("x", GREATEST if self.floats else WHOLE, squared=squared))
        if self.count == 2 and (self.broken or not self.before):
            there.append(_plain("y", WHOLE, squared=squared))
        return " and ".join(there)

    @property
    def span(self) -> str:
        """Source of a constant span (see `spans`) that can be subtracted from `$t`."""
        match self.times:
            case Times.DATETIMES:
                return "$span"
            case Times.SECONDS:
                return "$seconds"
            case Times.EITHER:
                return "($seconds if isinstance($t, (int, float)) else $span)"


def _plain(name: str, most: float, *, squared: bool) -> str:
    if not squared:
        return f"-{most} < ${name} < {most}"
    return f"({LEAST} < ${name} < {most} or -{most} < ${name} < -{LEAST} or ${name} == 0)"


def indented(lines: Iterable[str]) -> tuple[str, ...]:
    """Indent lines by one level."""
    return tuple(f"    {line}" for line in lines)


def may_need_tally(aggregate: Aggregate, inputs: InputValues) -> bool:
    """Return whether a tally may be needed."""
    return aggregate.sums > 0 and not inputs.all_integers


def reject_earlier_times() -> tuple[str, ...]:
    """Return lines that reject a time before the last one."""
    return (
        "if $last is not None and not $t >= $last:",
        "    $time_went_back($t, $last)",
        "$last = $t",
    )


def spans(span: timedelta) -> dict[str, object]:
    """Constants named by `InputValues.span`."""
    seconds = span.total_seconds()
    return {"span": span, "seconds": int(seconds) if seconds.is_integer() else seconds}


@singledispatch
def kernel_of(statistic: Statistic, inputs: InputValues) -> Kernel:
    """Create the kernel of `statistic`; every class of statistics registers one."""
    raise NotImplementedError(f"no kernel for {type(statistic).__name__}")
