"""Window kernels: entry and removal of values, for any aggregate.

A window writes `$n`, the number of non-missing values; `$ok`, whether they are enough; and `$ready`, whether
they ever were.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

from headrace.operators.statistics.kernel import (
    InputValues,
    Kernel,
    KernelVariable,
    Sliding,
    WindowAggregate,
    indented,
    may_need_tally,
    reject_earlier_times,
    rename_variables,
    spans,
)
from headrace.operators.statistics.statistic import CountWindow, Expanding, TimeWindow, ValueWindow

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class StatisticResult:
    """Sources of a statistic's value over `$n` and the combined aggregate.

    floats: the general source. whole: for whole numbers. exact: over the tally `$exact`, if there is one.
    """

    floats: str
    whole: str = ""
    exact: str = ""

    def for_inputs(self, aggregate: WindowAggregate, inputs: InputValues, *, tally: bool = True) -> str:
        """Choose the source for these inputs. tally: whether a tally may exist."""
        if aggregate.sums and inputs.all_integers:
            return self.whole
        if tally and may_need_tally(aggregate, inputs):
            return f"({self.exact}) if $exact else ({self.floats})"
        return self.floats


def lines_unless_missing(
    aggregate: WindowAggregate,
    inputs: InputValues,
    add_exactly: str,
    present: Iterable[str],
    missing: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return lines that run `present`, over `$a` (and `$b`), if no value is missing, else `missing`.

    add_exactly: call that adds the values to the tally and returns what the floats take in their place. It
        runs for values that are not plain, and while there is a tally.
    """
    if not may_need_tally(aggregate, inputs):
        return inputs.guarded(_of_inputs(present), missing)
    names, missing = ", ".join(("$a", "$b")[: inputs.count]), tuple(missing)
    return (
        f"{names} = {', '.join(f'${x}' for x in inputs.names)}",
        f"if $exact or not ({inputs.plain(aggregate)}):",
        f"    {names} = {add_exactly}",
        "if $a is not None:",
        *indented(present),
        *(("else:", *indented(missing)) if missing else ()),
    )


def _of_inputs(lines: Iterable[str]) -> tuple[str, ...]:
    """Rename `$a` and `$b` in lines to `$x` and `$y`."""
    names = {"a": "$x", "b": "$y"}
    return tuple(rename_variables(line, lambda name: names.get(name, f"${name}")) for line in lines)


def guard_combination(
    aggregate: WindowAggregate, inputs: InputValues, lines: tuple[str, ...]
) -> tuple[str, ...]:
    """Guard `lines` that combine floats, unless the values of a tally are always floats."""
    if not may_need_tally(aggregate, inputs) or (inputs.floats and not inputs.broken):
        return lines
    return ("if not $exact:", *indented(lines)) if lines else ()


def tally_variable(
    aggregate: WindowAggregate, inputs: InputValues, start: str = "[]"
) -> tuple[KernelVariable, ...]:
    """Return the variable of the tally, if one may be needed."""
    return (KernelVariable("exact", start, lists=1),) if may_need_tally(aggregate, inputs) else ()


@singledispatch
def windowed(
    window: ValueWindow, aggregate: WindowAggregate, inputs: InputValues, answer: StatisticResult
) -> Kernel:
    """Return the kernel of a statistic over a window's values."""
    raise NotImplementedError(f"no kernel for {type(window).__name__}")


# -- by count ------------------------------------------------------------------------------------------
#
# The last `size` values stand in a ring `$b0` that is filled from its end to its beginning; a missing one is
# None, and so is a slot that was never filled: `$gaps` counts both. The part from `$k` on grows, the old one
# is that before it, its newest value first. At `$edge`, mostly the beginning, the whole ring becomes the old
# part; before the beginning where the anchor has just left the window. The window is `$full` if no slot is
# free and there is no tally: then a value that floats can take just replaces the oldest.


@windowed.register(CountWindow)
def _count(
    window: CountWindow, aggregate: WindowAggregate, inputs: InputValues, answer: StatisticResult
) -> Kernel:
    size, least, sliding = window.size, window.min_periods, aggregate.sliding
    rings = tuple(f"b{i}" for i in range(inputs.count))
    variables = (
        KernelVariable("k", str(size)),
        *((KernelVariable("edge", "0"),) if sliding.anchors else ()),
        KernelVariable("gaps", str(size)),
        KernelVariable("full", "False"),
        *inputs.variables,
        *_judged(least),
        *tally_variable(aggregate, inputs),
        *(KernelVariable(ring, f"[None] * {size}", lists=1) for ring in rings),
        *_kept(sliding, size),
    )
    keep = tuple(f"${r}[$k] = ${x}" for r, x in zip(rings, inputs.names))
    tally, plain = may_need_tally(aggregate, inputs), inputs.plain(aggregate)
    lines = (
        *inputs.before,
        "$k -= 1",
        f"if $full{' and ' if plain else ''}{plain}:",
        *indented((*keep, *_of_inputs(sliding.add))),
        "else:",
        *indented(_into_gaps(window, aggregate, inputs, keep)),
        f"    $full = not $gaps{' and not $exact' if tally else ''}",
        *_turn(window, sliding, rings),
        *guard_combination(aggregate, inputs, sliding.combine),
        *sliding.note,
    )
    value = answer.for_inputs(aggregate, inputs)
    if tally or inputs.missing:
        value = f"({answer.for_inputs(aggregate, inputs, tally=False)}) if $full else ({_checked(value)})"
    return Kernel(variables, lines, value, "$ready")


def _into_gaps(
    window: CountWindow, aggregate: WindowAggregate, inputs: InputValues, keep: tuple[str, ...]
) -> tuple[str, ...]:
    """Return lines that add a value, present or missing, to a window with gaps or a tally."""
    least, sliding = window.min_periods, aggregate.sliding
    fill = (
        "if $gaps:",
        # In a window in which there was no value, others are measured from the first one.
        *(f"    if not $n: ${anchor} = {value}" for anchor, value in zip(sliding.anchors, ("$a", "$b"))),
        "    if $b0[$k] is None:",
        "        $gaps -= 1",
        "        $n += 1",
        f"        $ok = $n >= {least}",
        "        $ready = $ready or $ok",
    )
    leave = (
        "if $b0[$k] is not None:",
        "    $gaps += 1",
        "    $n -= 1",
        f"    $ok = $n >= {least}",
        *(f"    $b{i}[$k] = None" for i in range(inputs.count)),
    )
    add_exactly = (
        f"$add_by_count($exact, {aggregate.sums}, $x, $b0, $k)"
        if inputs.count == 1
        else "$add_pair_by_count($exact, $x, $y, $b0, $b1, $k)"
    )
    return lines_unless_missing(aggregate, inputs, add_exactly, (*fill, *keep, *sliding.add), leave)


def _turn(window: CountWindow, sliding: Sliding, rings: tuple[str, ...]) -> tuple[str, ...]:
    """Return lines that turn the whole ring into the old part when due."""
    # The newest value is at `$k`, and goes first.
    turned = ("if $k:", *indented(f"${r} = ${r}[$k:] + ${r}[:$k]" for r in rings))
    return (
        "if $k == $edge:" if sliding.anchors else "if not $k:",
        *indented(turned if sliding.anchors else ()),
        f"    $k = {window.size}",
        *indented(_remade(sliding, "$edge", rings, gaps=True)),
    )


# -- by time -------------------------------------------------------------------------------------------
#
# The old part has times `$ft`, of which the last `$k` are still in the window, and for tallies its values
# `$old0`; the growing part has times `$bt` and values `$b0`. When the old part is empty, the growing one
# takes its place.


@windowed.register(TimeWindow)
def _time(
    window: TimeWindow, aggregate: WindowAggregate, inputs: InputValues, answer: StatisticResult
) -> Kernel:
    sliding = aggregate.sliding
    lists = tuple(f"b{i}" for i in range(inputs.count))
    tally = tally_variable(aggregate, inputs)
    olds = tuple(f"old{i}" for i in range(inputs.count if tally else 0))
    variables = (
        KernelVariable("k", "0"),
        KernelVariable("last", "None"),
        *inputs.variables,
        *_judged(window.min_periods),
        *tally,
        KernelVariable("ft", "[]", lists=1),
        KernelVariable("bt", "[]", lists=1),
        *(KernelVariable(name, "[]", lists=1) for name in (*olds, *lists)),
        *_kept(sliding, 0),
    )
    enter = (
        "$n += 1",
        "$bt.append($t)",
        *(f"${b}.append(${x})" for b, x in zip(lists, inputs.names)),
        *sliding.add,
    )
    add_exactly = (
        f"$add_by_time($exact, {aggregate.sums}, $x, $old0, $k, $b0)"
        if inputs.count == 1
        else "$add_pair_by_time($exact, $x, $y, $old0, $old1, $k, $b0, $b1)"
    )
    lines = (
        *reject_earlier_times(),
        *inputs.before,
        f"$limit = $t - {inputs.span}",
        "while $k and $ft[-$k] <= $limit:",
        *(_leaving("leave", [f"${old}[-$k]" for old in olds]) if tally else ()),
        "    $k -= 1",
        "    $n -= 1",
        *lines_unless_missing(aggregate, inputs, add_exactly, enter),
        "if not $k and $bt:",
        "    $gone = $bisect_right($bt, $limit)",
        "    if $gone:",
        *indented(_leaving("leave_all", [f"${b}[:$gone]" for b in lists]) if tally else ()),
        "        $n -= $gone",
        f"        del $bt[:$gone], {', '.join(f'${b}[:$gone]' for b in lists)}",
        *indented(_remade(sliding, "$gone", tuple(f"{b}[::-1]" for b in lists), gaps=False)),
        "    $ft, $bt, $k = $bt, [], len($bt)",
        *(f"    ${old} = ${b}" for old, b in zip(olds, lists, strict=False)),
        *(f"    ${b} = []" for b in lists),
        f"$ok = $n >= {window.min_periods}",
        "$ready = $ready or $ok",
        *guard_combination(aggregate, inputs, sliding.combine),
        *sliding.note,
    )
    value = answer.for_inputs(aggregate, inputs)
    never_short = not inputs.missing and window.min_periods <= 1
    shown = value if never_short else _checked(value)
    return Kernel(variables, lines, shown, "$ready", spans(window.span))


def _leaving(function: str, values: list[str]) -> tuple[str, ...]:
    """Return lines that remove values from a tally, if there is one."""
    return ("    if $exact:", f"        ${function}($exact, {', '.join(values)})")


# -- all so far ----------------------------------------------------------------------------------------


@windowed.register(Expanding)
def _expanding(
    window: Expanding, aggregate: WindowAggregate, inputs: InputValues, answer: StatisticResult
) -> Kernel:
    growing = aggregate.growing
    if inputs.all_integers and aggregate.whole is not None:
        growing = aggregate.whole
    # Values of any kind may all be whole.
    tally = tally_variable(aggregate, inputs, "[]" if inputs.floats else f"$tally({aggregate.sums})")
    add = ("$n += 1", *_of_inputs(growing.add))
    if tally:
        floats = ", ".join(f"${v.name}" for v in growing.part)
        given = ", ".join(f"${x}" for x in inputs.names)
        taking = inputs.guarded(("$n += 1", f"{floats} = ${aggregate.grow}($exact, {given}, $n, {floats})"))
        add = (f"if not $exact and {inputs.plain(aggregate)}:", *indented(add), "else:", *indented(taking))
    else:
        add = inputs.guarded(add)
    lines = (
        *inputs.before,
        *add,
        *inputs.guarded(growing.note),
        *guard_combination(aggregate, inputs, growing.combine),
    )
    variables = (*inputs.variables, KernelVariable("n", "0"), *tally, *growing.part, *growing.more)
    return Kernel(variables, lines, answer.for_inputs(aggregate, inputs), f"$n >= {window.min_periods}")


# -- parts of them -------------------------------------------------------------------------------------


def _judged(least: int) -> tuple[KernelVariable, ...]:
    enough = str(least == 0)
    return (KernelVariable("n", "0"), KernelVariable("ok", enough), KernelVariable("ready", enough))


def _checked(value: str) -> str:
    return f"({value}) if $ok else $NAN"


def _kept(sliding: Sliding, size: int) -> tuple[KernelVariable, ...]:
    """Return the variables of the anchors, the empty old part, and the growing part."""
    empty = [v.start for v in sliding.part]
    return (
        *(KernelVariable(name, "0") for name in sliding.anchors),
        *(KernelVariable(f, f"[{empty[i]}] * {size + 1}", 1) for i, f in enumerate(sliding.fronts)),
        *sliding.part,
    )


def _remade(sliding: Sliding, anchor_index: str, lists: tuple[str, ...], *, gaps: bool) -> tuple[str, ...]:
    """Return lines that turn the growing part, in `lists`, into the old one, and start an empty one.

    anchor_index: target of the index of the anchors. gaps: whether values in the lists may be missing.
    """
    if not sliding.fronts:
        return ()
    names = [f"${n}" for n in (*sliding.anchors, *sliding.fronts)]
    if sliding.anchors:
        names.append(anchor_index)
    arguments = ", ".join([*(f"${name}" for name in lists), "$gaps" if gaps else "0"])
    return (
        f"{', '.join(names)} = ${sliding.remake}({arguments})",
        *(f"${v.name} = {v.start}" for v in sliding.part),
    )
