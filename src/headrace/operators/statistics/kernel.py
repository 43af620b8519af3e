"""Kernel: one statistic as straight-line Python over a few variables of plain data.

A name that begins with `$` belongs to the kernel: its inputs `$x`, `$y` (the second signal), `$t` (the time)
and `$fresh` (whether a value came, and not the time alone), its variables and constants, the functions of
`kernel_runtime.py`, and what it needs between two lines. Whoever writes a kernel into a tick chooses these
names, so any number of kernels stand in one function.

A window maintains aggregates, from which a statistic can be read at any time. Each has several forms. A
*sliding* form combines the results for the suffixes of an old part with the result for the growing part. A
*growing* form, for windows without removals, carries corrections for rounding, since its sums may run as long
as the flow; for whole numbers it keeps exact sums. Numbers that this code would get wrong go to a tally
(`rounding.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from headrace.operators.statistics.rounding import LARGEST_SAFE, SMALLEST_SAFE, WHOLE
from headrace.operators.statistics.statistic import Holes, Times

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from headrace.operators.statistics.statistic import Statistic

_NAME = re.compile(r"\$([A-Za-z]\w*)")

SILENT: Any = object()
"""Result of `compile_kernel` for a value at which the statistic does not fire."""


@dataclass(frozen=True, slots=True)
class KernelVariable:
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

    variables: tuple[KernelVariable, ...]
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
    variables: tuple[KernelVariable, ...] = ()
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

    def plain(self, aggregate: WindowAggregate) -> str:
        """Return a test for present values within float range; empty if certain."""
        given = self.names if not self.before else ("x",)
        there = [f"${x} is not None" for x in given if self.holes is Holes.NAN_NONE]
        if not may_need_tally(aggregate, self):
            there += [f"${x} == ${x}" for x in given if self.holes is not Holes.NONE]
            return " and ".join(there)
        squared = aggregate.sums > 1
        there.append(_plain("x", LARGEST_SAFE if self.floats else WHOLE, squared=squared))
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
    return f"({SMALLEST_SAFE} < ${name} < {most} or -{most} < ${name} < -{SMALLEST_SAFE} or ${name} == 0)"


def indented(lines: Iterable[str]) -> tuple[str, ...]:
    """Indent lines by one level."""
    return tuple(f"    {line}" for line in lines)


def may_need_tally(aggregate: WindowAggregate, inputs: InputValues) -> bool:
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


@dataclass(frozen=True, slots=True)
class Sliding:
    """Aggregate code of a sliding window: the growing part, and the end of the old part.

    part:    variables of the growing part, each with its value for no values.
    add:     lines that add `$a` (and `$b`) to it: `$x` and `$y`, or 0 for what a tally takes.
    fronts:  names of the lists with the answers for the end pieces; `$k` is the length of the one that
             is in the window.
    remake:  the function that makes the anchors, the fronts and, where there are anchors, their place
             from lists of values (see `suffixes.py`).
    anchors: names of the values that others are measured from.
    combine: lines from both parts to what statistics name: see `moments.py`, `ordering.py`.
    note:    likewise, for what a tally does not have.
    """

    part: tuple[KernelVariable, ...] = ()
    add: tuple[str, ...] = ()
    fronts: tuple[str, ...] = ()
    remake: str = ""
    anchors: tuple[str, ...] = ()
    combine: tuple[str, ...] = ()
    note: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Growing:
    """Aggregate code over all values so far: like `Sliding`, without removals.

    note: lines that keep in `more` of `$x` (and `$y`) what a tally does not have.
    """

    part: tuple[KernelVariable, ...] = ()
    add: tuple[str, ...] = ()
    combine: tuple[str, ...] = ()
    more: tuple[KernelVariable, ...] = ()
    note: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Aggregate for windows of any kind.

    whole: the growing form of whole numbers; by default that of all. Sliding ones stay whole by themselves.
    sums:  how many a tally has; 0 where every number is kept as it is.
    grow:  the function that takes a value into a tally of all so far.
    """

    sliding: Sliding
    growing: Growing
    whole: Growing | None = None
    sums: int = 0
    grow: str = ""


NOTHING = WindowAggregate(Sliding(), Growing())
"""Empty aggregate, for statistics that only need the count `$n`."""

SUM = WindowAggregate(
    Sliding(
        part=(KernelVariable("p", "0"),),
        add=("$p += $a",),
        fronts=("f",),
        remake="sums",
        combine=("$sum = $f[$k] + $p",),
    ),
    Growing(
        # The digits that an addition cuts off are a float themselves (Knuth); they are added up beside.
        part=(KernelVariable("p", "0"), KernelVariable("cut", "0")),
        add=("$u = $p + $a", "$w = $u - $p", "$cut += ($p - ($u - $w)) + ($a - $w)", "$p = $u"),
        combine=("$sum = $p + $cut",),
    ),
    Growing(part=(KernelVariable("p", "0"),), add=("$p += $a",), combine=("$sum = $p",)),
    sums=1,
    grow="grow_sum",
)
"""Sum of the values, in `$sum`."""

DEVIATIONS = WindowAggregate(
    Sliding(
        part=(KernelVariable("p1", "0"), KernelVariable("p2", "0")),
        add=("$d = $a - $c0", "$p1 += $d", "$p2 += $d * $d"),
        fronts=("f1", "f2"),
        remake="deviations",
        anchors=("c0",),
        combine=("$s1 = $f1[$k] + $p1", "$v = $n * ($f2[$k] + $p2) - $s1 * $s1"),
    ),
    Growing(
        # Welford's update, with the mean as a sum of two floats.
        part=(KernelVariable("m", "0.0"), KernelVariable("cut", "0.0"), KernelVariable("q", "0.0")),
        add=(
            "$d = ($a - $m) - $cut",
            "$w = $d / $n + $cut",
            "$u = $m + $w",
            "$cut = $w - ($u - $m)",
            "$m = $u",
            "$q += $d * (($a - $m) - $cut)",
        ),
        combine=("$v = $n * $q",),
    ),
    Growing(
        part=(KernelVariable("s1", "0"), KernelVariable("s2", "0")),
        add=("$s1 += $a", "$s2 += $a * $a"),
        combine=("$v = $n * $s2 - $s1 * $s1",),
    ),
    sums=2,
    grow="grow_deviations",
)
"""Spread in `$v`: the count times the sum of squared deviations from the mean."""

_PAIR_PARTS = tuple(KernelVariable(name, "0") for name in ("px", "py", "pxx", "pxy", "pyy"))
_PAIR_ADD = (
    "$d = $a - $x0",
    "$g = $b - $y0",
    "$px += $d",
    "$py += $g",
    "$pxx += $d * $d",
    "$pxy += $d * $g",
    "$pyy += $g * $g",
)
_PAIR_COMBINE = (
    "$sx = $fx[$k] + $px",
    "$sy = $fy[$k] + $py",
    "$vx = $n * ($fxx[$k] + $pxx) - $sx * $sx",
    "$vy = $n * ($fyy[$k] + $pyy) - $sy * $sy",
    "$vxy = $n * ($fxy[$k] + $pxy) - $sx * $sy",
)
_PAIR_GROWING = Growing(
    part=tuple(KernelVariable(name, "0.0") for name in ("mx", "cx", "my", "cy", "qx", "qxy", "qy")),
    add=(
        "$d = ($a - $mx) - $cx",
        "$g = ($b - $my) - $cy",
        "$w = $d / $n + $cx",
        "$u = $mx + $w",
        "$cx = $w - ($u - $mx)",
        "$mx = $u",
        "$w = $g / $n + $cy",
        "$u = $my + $w",
        "$cy = $w - ($u - $my)",
        "$my = $u",
        "$w = ($b - $my) - $cy",
        "$qx += $d * (($a - $mx) - $cx)",
        "$qxy += $d * $w",
        "$qy += $g * $w",
    ),
    combine=(
        "$vx, $vy, $vxy = $n * $qx, $n * $qy, $n * $qxy",
        "$x0, $sx, $y0, $sy = $mx, $n * $cx, $my, $n * $cy",
    ),
)

_PAIR_WHOLE = Growing(
    part=tuple(KernelVariable(name, "0") for name in ("sx", "sy", "sxx", "sxy", "syy")),
    add=("$sx += $a", "$sy += $b", "$sxx += $a * $a", "$sxy += $a * $b", "$syy += $b * $b"),
    combine=(
        "$vx, $vy = $n * $sxx - $sx * $sx, $n * $syy - $sy * $sy",
        "$vxy = $n * $sxy - $sx * $sy",
        "$x0 = $y0 = 0",
    ),
)

PAIRS = WindowAggregate(
    Sliding(
        part=_PAIR_PARTS,
        add=_PAIR_ADD,
        fronts=("fx", "fy", "fxx", "fxy", "fyy"),
        remake="pair_deviations",
        anchors=("x0", "y0"),
        combine=_PAIR_COMBINE,
    ),
    _PAIR_GROWING,
    _PAIR_WHOLE,
    sums=5,
    grow="grow_pairs",
)
"""Spreads of both variables and their products in `$vx`, `$vy` and `$vxy`, scaled like `$v`; the mean of `$x`
is `$x0 + $sx / $n`.
"""


def _from_oldest(pairs: Growing) -> Growing:
    oldest = ("if $origin is None:", "    $origin = $y")
    return replace(pairs, more=(KernelVariable("origin", "None"),), note=oldest)


PAIRS_FROM_OLDEST = WindowAggregate(
    Sliding(
        part=(*_PAIR_PARTS, KernelVariable("po", "None")),
        add=(*_PAIR_ADD, "if $po is None:", "    $po = $y"),
        fronts=("fx", "fy", "fxx", "fxy", "fyy", "fo"),
        remake="pair_deviations_and_oldest",
        anchors=("x0", "y0"),
        combine=_PAIR_COMBINE,
        note=("$origin = $fo[$k] if $fo[$k] is not None else $po",),
    ),
    _from_oldest(_PAIR_GROWING),
    _from_oldest(_PAIR_WHOLE),
    sums=5,
    grow="grow_pairs",
)
"""`PAIRS`, with the oldest `$y` in `$origin`."""

LEAST = WindowAggregate(
    Sliding(
        part=(KernelVariable("p", "$INFINITY"),),
        add=("if $x < $p:", "    $p = $x"),
        fronts=("f",),
        remake="least",
        combine=("$best = $f[$k] if $f[$k] < $p else $p",),
    ),
    Growing(
        part=(KernelVariable("p", "$INFINITY"),), add=("if $x < $p:", "    $p = $x"), combine=("$best = $p",)
    ),
)
"""Least value, in `$best`."""

GREATEST = WindowAggregate(
    Sliding(
        part=(KernelVariable("p", "-$INFINITY"),),
        add=("if $x > $p:", "    $p = $x"),
        fronts=("f",),
        remake="greatest",
        combine=("$best = $f[$k] if $f[$k] > $p else $p",),
    ),
    Growing(
        part=(KernelVariable("p", "-$INFINITY"),), add=("if $x > $p:", "    $p = $x"), combine=("$best = $p",)
    ),
)
"""Greatest value, in `$best`."""

OLDEST = WindowAggregate(
    Sliding(
        part=(KernelVariable("p", "None"),),
        add=("if $p is None:", "    $p = $x"),
        fronts=("f",),
        remake="oldest",
        combine=("$best = $f[$k] if $f[$k] is not None else $p",),
    ),
    Growing(
        part=(KernelVariable("p", "None"),), add=("if $p is None:", "    $p = $x"), combine=("$best = $p",)
    ),
)
"""Oldest value, in `$best`."""

NEWEST = WindowAggregate(
    Sliding(
        part=(KernelVariable("p", "None"),),
        add=("$p = $x",),
        fronts=("f",),
        remake="newest",
        combine=("$best = $p if $p is not None else $f[$k]",),
    ),
    Growing(part=(KernelVariable("p", "None"),), add=("$p = $x",), combine=("$best = $p",)),
)
"""Newest value, in `$best`."""
