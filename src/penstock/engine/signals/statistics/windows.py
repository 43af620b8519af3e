"""How values enter and leave a window, whatever is kept of them.

A window writes `$n`, the count of its values that are not missing; `$ok`,
whether they are enough; `$ready`, whether they ever were.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.engine.signals.statistics.kernel import Kernel, Variable
from penstock.flow.statistics.inputs import Holes, Times
from penstock.flow.statistics.window import CountWindow, Expanding, TimeWindow, Window

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from penstock.engine.signals.statistics.aggregates import Aggregate, Sliding


@dataclass(frozen=True, slots=True)
class Inputs:
    """What enters a window.

    count:   of values: `$x`, or `$x` and `$y`.
    holes:   which of them are missing. times: what `$t` is.
    before, variables: lines that make `$y` where it is no signal, and their state.
    """

    count: int = 1
    holes: Holes = Holes.NAN_NONE
    times: Times = Times.EITHER
    before: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return ("x", "y")[: self.count]

    @property
    def missing(self) -> str:
        """Source of whether a value is missing; empty where none can be."""
        given = self.names if not self.before else ("x",)
        match self.holes:
            case Holes.NONE:
                return ""
            case Holes.NAN:
                return " or ".join(f"${x} != ${x}" for x in given)
            case Holes.NAN_NONE:
                return " or ".join(f"${x} is None or ${x} != ${x}" for x in given)

    def guarded(self, present: Iterable[str], otherwise: Iterable[str] = ()) -> tuple[str, ...]:
        """`present` where no value is missing, `otherwise` where one is."""
        otherwise = tuple(otherwise)
        if not self.missing:
            return tuple(present)
        if not otherwise:
            return (f"if not ({self.missing}):", *inside(present))
        return (f"if {self.missing}:", *inside(otherwise), "else:", *inside(present))

    @property
    def span(self) -> str:
        """Source of a constant span (see `spans`) that can be taken from `$t`."""
        match self.times:
            case Times.DATETIMES:
                return "$span"
            case Times.SECONDS:
                return "$seconds"
            case Times.EITHER:
                return "($seconds if isinstance($t, (int, float)) else $span)"


def inside(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines one level deeper."""
    return tuple(f"    {line}" for line in lines)


@singledispatch
def windowed(window: Window, aggregate: Aggregate, inputs: Inputs, value: str) -> Kernel:
    """The kernel of `value`, a source over what the aggregate combines and `$n`."""
    raise NotImplementedError(f"no kernel for {type(window).__name__}")


# -- by count ------------------------------------------------------------------------------------------
#
# The last `size` values stand in a ring `$b0` that is filled from its end to its beginning; a missing one is
# None, and so is a place that was never filled: `$gaps` counts both. The part from `$k` on grows, the old one
# is that before it, its newest value first. At `$edge`, mostly the beginning, the whole ring becomes the old
# part; before the beginning where the anchor has just left the window.


@windowed.register(CountWindow)
def _count(window: CountWindow, aggregate: Aggregate, inputs: Inputs, value: str) -> Kernel:
    size, least, sliding = window.size, window.min_periods, aggregate.sliding
    rings = tuple(f"b{i}" for i in range(inputs.count))
    variables = (
        Variable("k", str(size)),
        *((Variable("edge", "0"),) if sliding.anchors else ()),
        Variable("gaps", str(size)),
        *inputs.variables,
        *_judged(least),
        *(Variable(ring, f"[None] * {size}", lists=1) for ring in rings),
        *_kept(sliding, size),
    )
    fill = (
        "if $gaps:",
        *inside(_first_anchors(sliding, inputs)),
        "    if $b0[$k] is None:",
        "        $gaps -= 1",
        "        $n += 1",
        f"        $ok = $n >= {least}",
        "        $ready = $ready or $ok",
    )
    enter = (*fill, *(f"${r}[$k] = ${x}" for r, x in zip(rings, inputs.names)), *sliding.add)
    leave = (
        "if $b0[$k] is not None:",
        "    $gaps += 1",
        "    $n -= 1",
        f"    $ok = $n >= {least}",
        *(f"    ${r}[$k] = None" for r in rings),
    )
    # The newest value is at `$k`, and goes first.
    turned = ("if $k:", *inside(f"${r} = ${r}[$k:] + ${r}[:$k]" for r in rings))
    turn = (
        "if $k == $edge:" if sliding.anchors else "if not $k:",
        *inside(turned if sliding.anchors else ()),
        f"    $k = {size}",
        *inside(_remade(sliding, "$edge", rings, gaps=True)),
    )
    lines = (*inputs.before, "$k -= 1", *inputs.guarded(enter, leave), *turn, *sliding.combine)
    # Once full, a window in which nothing can be missing stays so.
    return Kernel(variables, lines, _checked(value) if inputs.missing else value, "$ready")


def _first_anchors(sliding: Sliding, inputs: Inputs) -> tuple[str, ...]:
    """Lines that measure from the first value of a window in which there was none."""
    return tuple(f"if not $n: ${anchor} = ${x}" for anchor, x in zip(sliding.anchors, inputs.names))


# -- by time -------------------------------------------------------------------------------------------
#
# The old part has times `$ft`, of which the last `$k` are still in the window; the growing part has times
# `$bt` and values `$b0`. When the old part is empty, the growing one takes its place.


@windowed.register(TimeWindow)
def _time(window: TimeWindow, aggregate: Aggregate, inputs: Inputs, value: str) -> Kernel:
    sliding = aggregate.sliding
    lists = tuple(f"b{i}" for i in range(inputs.count))
    variables = (
        Variable("k", "0"),
        Variable("last", "None"),
        *inputs.variables,
        *_judged(window.min_periods),
        Variable("ft", "[]", lists=1),
        Variable("bt", "[]", lists=1),
        *(Variable(name, "[]", lists=1) for name in lists),
        *_kept(sliding, 0),
    )
    lines = (
        *in_order(),
        *inputs.before,
        f"$limit = $t - {inputs.span}",
        "while $k and $ft[-$k] <= $limit:",
        "    $k -= 1",
        "    $n -= 1",
        *inputs.guarded(
            (
                "$n += 1",
                "$bt.append($t)",
                *(f"${b}.append(${x})" for b, x in zip(lists, inputs.names)),
                *sliding.add,
            )
        ),
        "if not $k and $bt:",
        "    $gone = $bisect_right($bt, $limit)",
        "    if $gone:",
        "        $n -= $gone",
        f"        del $bt[:$gone], {', '.join(f'${b}[:$gone]' for b in lists)}",
        *inside(_remade(sliding, "$gone", tuple(f"{b}[::-1]" for b in lists), gaps=False)),
        "    $ft, $bt, $k = $bt, [], len($bt)",
        *(f"    ${b} = []" for b in lists),
        f"$ok = $n >= {window.min_periods}",
        "$ready = $ready or $ok",
        *sliding.combine,
    )
    never_short = not inputs.missing and window.min_periods <= 1
    shown = value if never_short else _checked(value)
    return Kernel(variables, lines, shown, "$ready", spans(window.span))


def in_order() -> tuple[str, ...]:
    """Lines that refuse a time before the last one."""
    return (
        "if $last is not None and not $t >= $last:",
        "    $time_went_back($t, $last)",
        "$last = $t",
    )


def spans(span: timedelta) -> dict[str, object]:
    """The constants that `Inputs.span` names."""
    seconds = span.total_seconds()
    return {"span": span, "seconds": int(seconds) if seconds.is_integer() else seconds}


# -- all so far ----------------------------------------------------------------------------------------


@windowed.register(Expanding)
def _expanding(window: Expanding, aggregate: Aggregate, inputs: Inputs, value: str) -> Kernel:
    growing = aggregate.growing
    lines = (*inputs.before, *inputs.guarded(("$n += 1", *growing.add)), *growing.combine)
    return Kernel(
        (*inputs.variables, Variable("n", "0"), *growing.part), lines, value, f"$n >= {window.min_periods}"
    )


# -- parts of them -------------------------------------------------------------------------------------


def _judged(least: int) -> tuple[Variable, ...]:
    enough = str(least == 0)
    return (Variable("n", "0"), Variable("ok", enough), Variable("ready", enough))


def _checked(value: str) -> str:
    return f"({value}) if $ok else $NAN"


def _kept(sliding: Sliding, size: int) -> tuple[Variable, ...]:
    """The anchors, the old part as that of a window without values, and the growing part."""
    empty = [v.start for v in sliding.part]
    return (
        *(Variable(name, "0") for name in sliding.anchors),
        *(Variable(f, f"[{empty[i]}] * {size + 1}", 1) for i, f in enumerate(sliding.fronts)),
        *sliding.part,
    )


def _remade(sliding: Sliding, place: str, lists: tuple[str, ...], *, gaps: bool) -> tuple[str, ...]:
    """Lines that make the growing part, in `lists`, the old one, and a new one of no values.

    place: what is assigned the place of the anchors. gaps: whether values in the lists may be missing.
    """
    if not sliding.fronts:
        return ()
    names = [f"${n}" for n in (*sliding.anchors, *sliding.fronts)]
    if sliding.anchors:
        names.append(place)
    arguments = ", ".join([*(f"${name}" for name in lists), "$gaps" if gaps else "0"])
    return (
        f"{', '.join(names)} = ${sliding.remake}({arguments})",
        *(f"${v.name} = {v.start}" for v in sliding.part),
    )
