"""Aggregates maintained by a window, from which a statistic can be read at any time.

Each has several forms. A *sliding* form combines the results for the suffixes of an old part (see
`suffixes.py`) with the result for the growing part. A *growing* form, for windows without removals, carries
corrections for rounding, since its sums may run as long as the flow; for whole numbers it keeps exact sums.
Numbers that this code would get wrong go to a tally (see `tallies.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.operators.statistics.kernel import Variable


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

    part: tuple[Variable, ...] = ()
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

    part: tuple[Variable, ...] = ()
    add: tuple[str, ...] = ()
    combine: tuple[str, ...] = ()
    more: tuple[Variable, ...] = ()
    note: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
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


NOTHING = Aggregate(Sliding(), Growing())
"""Empty aggregate, for statistics that only need the count `$n`."""

SUM = Aggregate(
    Sliding(
        part=(Variable("p", "0"),),
        add=("$p += $a",),
        fronts=("f",),
        remake="sums",
        combine=("$sum = $f[$k] + $p",),
    ),
    Growing(
        # The digits that an addition cuts off are a float themselves (Knuth); they are added up beside.
        part=(Variable("p", "0"), Variable("cut", "0")),
        add=("$u = $p + $a", "$w = $u - $p", "$cut += ($p - ($u - $w)) + ($a - $w)", "$p = $u"),
        combine=("$sum = $p + $cut",),
    ),
    Growing(part=(Variable("p", "0"),), add=("$p += $a",), combine=("$sum = $p",)),
    sums=1,
    grow="grow_sum",
)
"""Sum of the values, in `$sum`."""

DEVIATIONS = Aggregate(
    Sliding(
        part=(Variable("p1", "0"), Variable("p2", "0")),
        add=("$d = $a - $c0", "$p1 += $d", "$p2 += $d * $d"),
        fronts=("f1", "f2"),
        remake="deviations",
        anchors=("c0",),
        combine=("$s1 = $f1[$k] + $p1", "$v = $n * ($f2[$k] + $p2) - $s1 * $s1"),
    ),
    Growing(
        # Welford's update, with the mean as a sum of two floats.
        part=(Variable("m", "0.0"), Variable("cut", "0.0"), Variable("q", "0.0")),
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
        part=(Variable("s1", "0"), Variable("s2", "0")),
        add=("$s1 += $a", "$s2 += $a * $a"),
        combine=("$v = $n * $s2 - $s1 * $s1",),
    ),
    sums=2,
    grow="grow_deviations",
)
"""Spread in `$v`: the count times the sum of squared deviations from the mean."""

_PAIR_PARTS = tuple(Variable(name, "0") for name in ("px", "py", "pxx", "pxy", "pyy"))
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
    part=tuple(Variable(name, "0.0") for name in ("mx", "cx", "my", "cy", "qx", "qxy", "qy")),
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
    part=tuple(Variable(name, "0") for name in ("sx", "sy", "sxx", "sxy", "syy")),
    add=("$sx += $a", "$sy += $b", "$sxx += $a * $a", "$sxy += $a * $b", "$syy += $b * $b"),
    combine=(
        "$vx, $vy = $n * $sxx - $sx * $sx, $n * $syy - $sy * $sy",
        "$vxy = $n * $sxy - $sx * $sy",
        "$x0 = $y0 = 0",
    ),
)

PAIRS = Aggregate(
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
    return replace(pairs, more=(Variable("origin", "None"),), note=oldest)


PAIRS_FROM_OLDEST = Aggregate(
    Sliding(
        part=(*_PAIR_PARTS, Variable("po", "None")),
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

LEAST = Aggregate(
    Sliding(
        part=(Variable("p", "$INFINITY"),),
        add=("if $x < $p:", "    $p = $x"),
        fronts=("f",),
        remake="least",
        combine=("$best = $f[$k] if $f[$k] < $p else $p",),
    ),
    Growing(part=(Variable("p", "$INFINITY"),), add=("if $x < $p:", "    $p = $x"), combine=("$best = $p",)),
)
"""Least value, in `$best`."""

GREATEST = Aggregate(
    Sliding(
        part=(Variable("p", "-$INFINITY"),),
        add=("if $x > $p:", "    $p = $x"),
        fronts=("f",),
        remake="greatest",
        combine=("$best = $f[$k] if $f[$k] > $p else $p",),
    ),
    Growing(part=(Variable("p", "-$INFINITY"),), add=("if $x > $p:", "    $p = $x"), combine=("$best = $p",)),
)
"""Greatest value, in `$best`."""

OLDEST = Aggregate(
    Sliding(
        part=(Variable("p", "None"),),
        add=("if $p is None:", "    $p = $x"),
        fronts=("f",),
        remake="oldest",
        combine=("$best = $f[$k] if $f[$k] is not None else $p",),
    ),
    Growing(part=(Variable("p", "None"),), add=("if $p is None:", "    $p = $x"), combine=("$best = $p",)),
)
"""Oldest value, in `$best`."""

NEWEST = Aggregate(
    Sliding(
        part=(Variable("p", "None"),),
        add=("$p = $x",),
        fronts=("f",),
        remake="newest",
        combine=("$best = $p if $p is not None else $f[$k]",),
    ),
    Growing(part=(Variable("p", "None"),), add=("$p = $x",), combine=("$best = $p",)),
)
"""Newest value, in `$best`."""
