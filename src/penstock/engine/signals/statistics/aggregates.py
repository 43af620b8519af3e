"""What a window keeps of its values, so that a statistic can be read from it at any time.

Each comes in two forms. A *sliding* one combines the answers for the end pieces
of an old part (see `suffixes.py`) with that for the part that grows. A *growing*
one, for windows that lose nothing, carries corrections for what rounding cut
off, as its sums may run for as long as the flow does.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.signals.statistics.kernel import Variable


@dataclass(frozen=True, slots=True)
class Sliding:
    """Code for the part that grows and for the end of the part that does not.

    part:    variables of the growing part, each with its value for no values.
    add:     lines that add `$x` (and `$y`) to it.
    fronts:  names of the lists with the answers for the end pieces; `$k` is the length of the one that
             is in the window.
    remake:  the function that makes the anchors, the fronts and, where there are anchors, their place
             from lists of values (see `suffixes.py`).
    anchors: names of the values that others are measured from.
    combine: lines from both parts to what statistics name: see `moments.py`, `ordering.py`.
    """

    part: tuple[Variable, ...] = ()
    add: tuple[str, ...] = ()
    fronts: tuple[str, ...] = ()
    remake: str = ""
    anchors: tuple[str, ...] = ()
    combine: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Growing:
    """Code for all values so far: as `Sliding`, with nothing to lose."""

    part: tuple[Variable, ...] = ()
    add: tuple[str, ...] = ()
    combine: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
    sliding: Sliding
    growing: Growing


NOTHING = Aggregate(Sliding(), Growing())
"""Nothing but `$n`, which every window keeps."""

SUM = Aggregate(
    Sliding(
        part=(Variable("p", "0"),),
        add=("$p += $x",),
        fronts=("f",),
        remake="sums",
        combine=("$sum = $f[$k] + $p",),
    ),
    Growing(
        # The digits that an addition cuts off are a float themselves (Knuth); they are added up beside.
        part=(Variable("p", "0"), Variable("cut", "0")),
        add=("$u = $p + $x", "$w = $u - $p", "$cut += ($p - ($u - $w)) + ($x - $w)", "$p = $u"),
        # Infinity cuts off NaN.
        combine=("$sum = $p + $cut if $cut == $cut else $p",),
    ),
)
"""`$sum`."""

DEVIATIONS = Aggregate(
    Sliding(
        part=(Variable("p1", "0"), Variable("p2", "0")),
        add=("$d = $x - $c0", "$p1 += $d", "$p2 += $d * $d"),
        fronts=("f1", "f2"),
        remake="deviations",
        anchors=("c0",),
        combine=("$s1 = $f1[$k] + $p1", "$v = $n * ($f2[$k] + $p2) - $s1 * $s1"),
    ),
    Growing(
        # Welford's update, with the mean as a sum of two floats.
        part=(Variable("m", "0.0"), Variable("cut", "0.0"), Variable("q", "0.0")),
        add=(
            "$d = ($x - $m) - $cut",
            "$w = $d / $n + $cut",
            "$u = $m + $w",
            "$cut = $w - ($u - $m)",
            "$m = $u",
            "$q += $d * (($x - $m) - $cut)",
        ),
        combine=("$v = $n * $q",),
    ),
)
"""`$v`: the count times the sum of the squares of the deviations from the mean."""

_PAIR_PARTS = tuple(Variable(name, "0") for name in ("px", "py", "pxx", "pxy", "pyy"))
_PAIR_ADD = (
    "$d = $x - $x0",
    "$g = $y - $y0",
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
        "$d = ($x - $mx) - $cx",
        "$g = ($y - $my) - $cy",
        "$w = $d / $n + $cx",
        "$u = $mx + $w",
        "$cx = $w - ($u - $mx)",
        "$mx = $u",
        "$w = $g / $n + $cy",
        "$u = $my + $w",
        "$cy = $w - ($u - $my)",
        "$my = $u",
        "$w = ($y - $my) - $cy",
        "$qx += $d * (($x - $mx) - $cx)",
        "$qxy += $d * $w",
        "$qy += $g * $w",
    ),
    combine=(
        "$vx, $vy, $vxy = $n * $qx, $n * $qy, $n * $qxy",
        "$x0, $sx, $y0, $sy = $mx, $n * $cx, $my, $n * $cy",
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
)
"""`$vx`, `$vy`, `$vxy`: as `$v`, of both and between them; the mean of `$x` is `$x0 + $sx / $n`."""

PAIRS_FROM_OLDEST = Aggregate(
    Sliding(
        part=(*_PAIR_PARTS, Variable("po", "None")),
        add=(*_PAIR_ADD, "if $po is None:", "    $po = $y"),
        fronts=("fx", "fy", "fxx", "fxy", "fyy", "fo"),
        remake="pair_deviations_and_oldest",
        anchors=("x0", "y0"),
        combine=(*_PAIR_COMBINE, "$origin = $fo[$k] if $fo[$k] is not None else $po"),
    ),
    Growing(
        part=(*_PAIR_GROWING.part, Variable("origin", "None")),
        add=(*_PAIR_GROWING.add, "if $origin is None:", "    $origin = $y"),
        combine=_PAIR_GROWING.combine,
    ),
)
"""As `PAIRS`, and `$origin`: the oldest `$y`."""

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
"""`$best`."""

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
"""`$best`."""

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
"""`$best`."""

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
"""`$best`."""
