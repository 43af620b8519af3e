"""Arithmetic rounded once, at the end, for numbers beyond float accuracy.

A float is *plain* if neither its square nor a sum of many overflows or loses digits to
underflow, a whole number if a float holds it. Everything else goes through here, as whole
numbers and fractions.

As long as a window has a number that is not plain, its sums are kept beside, in a *tally*: whole numbers of
`2**-1074`, of which every float is a multiple, so a value is taken out of them again when it leaves, and
nothing of it remains.

A tally is a list, empty where none is kept: how many values it counts, how many of them are not
plain, are no whole numbers, are infinite above and below; the scale; then the sums, of x and of its
squares, or of x, y, xx, xy and yy. As long as all values are whole the scale is 0.
"""

from __future__ import annotations

from fractions import Fraction
from math import copysign, frexp, inf, isqrt, ldexp, sqrt
from typing import Any, TypeAlias

from headrace.expr.code_runtime import NAN

List: TypeAlias = "list[Any]"

SMALLEST_SAFE, LARGEST_SAFE = 1e-129, 1e144
"""Bounds on the magnitude of plain floats other than 0: their differences are 0 or have squares of full
precision.
"""
WHOLE = 9007199254740992.0
"""Bound below which whole numbers are plain: 2**53, as a float, since floats compare faster with a float."""

NO_WEIGHT = 1e-250
"""Weight, relative to the newest value's, below which a value no longer counts."""


def is_plain(value: Any) -> bool:
    """Return whether floats can handle a number; classes other than `int` and `float` always qualify."""
    if isinstance(value, float):
        return SMALLEST_SAFE < value < LARGEST_SAFE or -LARGEST_SAFE < value < -SMALLEST_SAFE or not value
    return not isinstance(value, int) or -WHOLE < value < WHOLE


def is_infinite(value: Any) -> bool:
    return not isinstance(value, int) and value - value != 0


def zero_out_of_range(values: List) -> List:
    """Replace values that are not plain with 0."""
    return [v if v is None or is_plain(v) else 0 for v in values]


# -- whole numbers, rounded once -----------------------------------------------------------------------


def quotient(above: Any, below: Any) -> float:
    """Return the quotient rounded to the nearest float; infinity on overflow."""
    try:
        return above / below
    except OverflowError:
        return inf if (above > 0) == (below > 0) else -inf


def interpolate(low: Any, high: Any, part: float) -> Any:
    """Interpolate between a number and a greater one; NaN between infinities."""
    if not isinstance(low, int) and not isinstance(high, int):
        found = low + (high - low) * part
        if found - found == 0:
            return found
    if low != low or (low == -inf and high == inf):
        return NAN
    if low == -inf or high == inf:
        return low if low == -inf else high
    whole, of = part.as_integer_ratio()
    (low, low_of), (high, high_of) = low.as_integer_ratio(), high.as_integer_ratio()
    above = low * high_of * (of - whole) + high * low_of * whole
    return quotient(above, low_of * high_of * of)


def ratio(above: Any, below: Any) -> float:
    """Return the ratio `above / below`; division by zero follows IEEE 754."""
    if below:
        return quotient(above, below)
    if not above or above != above:
        return NAN
    return (inf if above > 0 else -inf) * copysign(1.0, below)


def change(now: Any, before: Any) -> float:
    """Return the relative change `(now - before) / before`, even if the difference is not a float."""
    if not before:
        return ratio(now, before)
    try:
        found = ratio(now - before, before)
    except OverflowError:
        found = NAN
    if found - found == 0:
        return found
    if is_infinite(before):
        return NAN
    if is_infinite(now):
        return ratio(now, before)
    (now, now_of), (before, before_of) = now.as_integer_ratio(), before.as_integer_ratio()
    return quotient(now * before_of - before * now_of, before * now_of)


def root(above: int, below: int) -> float:
    """Return the square root of a non-negative `above / below`, even if the quotient is not a float."""
    square = quotient(above, below)
    if 1e-290 < square < 1e290:
        return sqrt(square)
    # As many digits as two floats have are enough before the root is taken.
    shift = 128 - (above.bit_length() - below.bit_length())
    shift += shift % 2
    digits = (above << shift) // below if shift > 0 else above // (below << -shift)
    try:
        return ldexp(isqrt(digits), -shift // 2)
    except OverflowError:
        return inf


def correlation_of_whole(vx: int, vy: int, vxy: int) -> float:
    """Return Pearson's correlation from integer sums of squares; NaN if either variable is constant."""
    if not (vx and vy):
        return NAN
    found = root(vxy * vxy, vx * vy)
    return found if vxy > 0 else -found


def line_of_whole(
    n: int, sx: int, sy: int, vx: int, vy: int, vxy: int, origin: int | None, scale: int = 0
) -> tuple[float, float, float]:
    """Return the slope, intercept at `y == origin`, and r2 of x explained by y; NaN if y is constant.

    Slope and r2 are of one scale above and below, the intercept is of the given one.
    """
    if not vy or origin is None:
        return NAN, NAN, NAN
    intercept = quotient(sx * vy - vxy * (sy - n * origin), n * vy << scale)
    return quotient(vxy, vy), intercept, quotient(vxy * vxy, vx * vy) if vx else NAN


# -- weighted means ------------------------------------------------------------------------------------


def halves(x: Any) -> tuple[Any, float]:
    """Split a number into two floats with the nearest sum; infinity on overflow."""
    if not isinstance(x, int):
        return x, 0.0
    nearest = quotient(x, 1)
    return nearest, 0.0 if is_infinite(nearest) else float(x - int(nearest))


def leap(x: Any, m: float, cut: float, share: float) -> tuple[float, float]:
    """Update the mean, held as two floats, by an `x` whose difference from it is not a float."""
    nearest, rest = halves(x)
    if is_infinite(nearest) or m - m != 0:
        return m + nearest, 0.0
    before = Fraction(m) + Fraction(cut)
    return in_two(before + (Fraction(nearest) + Fraction(rest) - before) * Fraction(share))


def update_mean_and_squares(
    x: Any, m: float, cut: float, share: float, older: float, q: float, s: float
) -> tuple[float, float, float, float]:
    """Update the mean like `leap`, and the sum of squares with its unit. older: total weight before."""
    mean = leap(x, m, cut, share)
    if mean[0] - mean[0] != 0 or q != q:
        return *mean, NAN, 1.0
    away = Fraction(x) - Fraction(m) - Fraction(cut)
    squares = Fraction(q) / Fraction(s) ** 2 + Fraction(share) * Fraction(older) * away**2
    s = _unit((squares.numerator.bit_length() - squares.denominator.bit_length()) // 2)
    return *mean, float(squares * Fraction(s) ** 2), s


def in_two(number: Fraction) -> tuple[float, float]:
    """Split a number into the sum of two floats."""
    return float(number), float(number - Fraction(float(number)))


def rescaled(q: float, s: float, d: float) -> tuple[float, float]:
    """Rescale a sum of squares and its unit so that the square of `d` can be added."""
    if q != q or not (q or d):
        return q, s
    at = frexp(s)[1]
    exponents = [*([frexp(d)[1]] if d else []), *([frexp(q)[1] // 2 - at] if q else [])]
    unit = _unit(max(exponents))
    return ldexp(q, 2 * (frexp(unit)[1] - at)), unit


def _unit(exponent: int) -> float:
    """Return the unit that scales numbers of about `2**exponent` to about 1."""
    return ldexp(1.0, min(max(-exponent, -1022), 1023))


_FINEST = 1074
_COUNT, _ODD, _BROKEN, _ABOVE, _BELOW, _SCALE, _SUMS = range(7)


# -- tallies -------------------------------------------------------------------------------------------


def tally(sums: int) -> List:
    """Create an empty tally with one sum (x), two (x and its squares) or five (pairs)."""
    return [0] * (_SUMS + sums)


def enter(kept: List, *values: Any) -> None:
    """Add a value or pair."""
    _change(kept, values, 1)


def leave(kept: List, *values: Any) -> None:
    """Remove a value or pair, unless missing. The tally ends when all remaining values are plain."""
    if None not in values:
        _change(kept, values, -1)
    if not kept[_ODD]:
        kept.clear()


def leave_all(kept: List, *columns: List) -> None:
    """Remove values or pairs while there is a tally."""
    for values in zip(*columns, strict=True):
        if not kept:
            return
        leave(kept, *values)


def _change(kept: List, values: tuple[Any, ...], by: int) -> None:
    plain = whole = finite = True
    for value in values:
        plain = plain and is_plain(value)
        if not isinstance(value, int):
            whole = False
            finite = finite and value - value == 0
    kept[_COUNT] += by
    if not plain:
        kept[_ODD] += by
    if not finite:
        # Only whether there is one matters for pairs.
        kept[_ABOVE if values[0] == inf else _BELOW] += by
        return
    if not whole:
        kept[_BROKEN] += by
        if by > 0:  # one that leaves is still part of sums in the finer scale
            _rescale(kept)
    _add(kept, [_scaled(v, kept[_SCALE]) for v in values], by)
    if not whole:
        _rescale(kept)


def _add(kept: List, values: List, by: int) -> None:
    """Add scaled values to the sums."""
    if len(kept) == _SUMS + 5:
        x, y = values
        for at, part in enumerate((x, y, x * x, x * y, y * y), _SUMS):
            kept[at] += by * part
        return
    (x,) = values
    kept[_SUMS] += by * x
    if len(kept) > _SUMS + 1:
        kept[_SUMS + 1] += by * x * x


def _rescale(kept: List) -> None:
    """Switch between the integer and the finest scale if the values require it."""
    wanted = _FINEST if kept[_BROKEN] else 0
    by = wanted - kept[_SCALE]
    if by:
        kept[_SCALE] = wanted
        linear = _SUMS + (2 if len(kept) == _SUMS + 5 else 1)
        for at in range(_SUMS, len(kept)):
            shift = by if at < linear else 2 * by
            kept[at] = kept[at] << shift if shift > 0 else kept[at] >> -shift


def _scaled(value: Any, scale: int) -> int:
    if isinstance(value, int):
        return value << scale
    above, below = value.as_integer_ratio()
    return (above << scale) // below


# -- how windows take a value --------------------------------------------------------------------------
#
# These are called for a value that is not plain, perhaps missing, and for all as long as there is a tally.
# They give what floats are to take in its place, so that these go on for when the tally ends.


def add_by_count(kept: List, sums: int, x: Any, ring: List, k: int) -> Any:
    """Add a value to a ring, replacing the oldest at `k`; return its plain form, or None if missing."""
    if kept:
        leave(kept, ring[k])
    if x is None or x != x:
        return None
    return _add_to_tally(kept, sums, (x,), [ring[:k], ring[k + 1 :]])[0]


def add_pair_by_count(kept: List, x: Any, y: Any, xs: List, ys: List, k: int) -> Any:
    """Add a pair to a ring, like `add_by_count` for a value."""
    if kept:
        leave(kept, xs[k], ys[k])
    if x is None or y is None or x != x or y != y:
        return None, None
    return _add_to_tally(kept, 5, (x, y), [xs[:k], xs[k + 1 :]], [ys[:k], ys[k + 1 :]])


def add_by_time(kept: List, sums: int, x: Any, old: List, k: int, new: List) -> Any:
    """Add a value to a window of the last `k` of `old`, and `new`; return its plain form, or None."""
    if x is None or x != x:
        return None
    return _add_to_tally(kept, sums, (x,), [old[len(old) - k :], new])[0]


def add_pair_by_time(kept: List, x: Any, y: Any, xs: List, ys: List, k: int, new: List, new_y: List) -> Any:
    """Add a pair to a window, like `add_by_time` for a value."""
    if x is None or y is None or x != x or y != y:
        return None, None
    first = len(xs) - k
    return _add_to_tally(kept, 5, (x, y), [xs[first:], new], [ys[first:], new_y])


def _add_to_tally(kept: List, sums: int, values: tuple[Any, ...], *columns: list[List]) -> tuple[Any, ...]:
    """Add values to the tally, creating it for one that is not plain. columns: the window's other values."""
    if not kept:
        if all(map(is_plain, values)):
            return values
        kept[:] = tally(sums)
        for pieces in zip(*columns, strict=True):
            for others in zip(*pieces, strict=True):
                if None not in others:
                    enter(kept, *others)
    enter(kept, *values)
    return tuple(zero_out_of_range(list(values)))


# -- how all values so far take one more ---------------------------------------------------------------
#
# These take a value where floats cannot, and as long as all are whole; they give the floats that go on.


def grow_sum(kept: List, x: Any, n: int, p: Any, cut: Any) -> tuple[Any, Any]:
    """Add the `n`-th value to the sum, held as two floats."""
    if not kept:
        kept[:] = _as_if(n - 1, [_scaled(p, _FINEST) + _scaled(cut, _FINEST)])
    enter(kept, x)
    if _stays(kept):
        return p, cut
    found = in_two(Fraction(kept[_SUMS], 1 << kept[_SCALE]))
    kept.clear()
    return found


def grow_deviations(kept: List, x: Any, n: int, m: float, cut: float, q: float) -> tuple[float, ...]:
    """Add the `n`-th value to the mean, held as two floats, and to the squared deviations."""
    if not kept:
        total = _sum_of(n - 1, m, cut)
        kept[:] = _as_if(n - 1, [total, _square_of(n - 1, q, total, total)])
    enter(kept, x)
    if _stays(kept):
        return m, cut, q
    found = *_mean_of(kept, 0), _products(kept, 0, 0, 1)
    kept.clear()
    return found


def grow_pairs(kept: List, x: Any, y: Any, n: int, *floats: float) -> tuple[float, ...]:
    """Add the `n`-th pair to the means, and to the squares and products of deviations."""
    if not kept:
        mx, cx, my, cy, qx, qxy, qy = floats
        sx, sy = _sum_of(n - 1, mx, cx), _sum_of(n - 1, my, cy)
        squares = (qx, sx, sx), (qxy, sx, sy), (qy, sy, sy)
        kept[:] = _as_if(n - 1, [sx, sy, *(_square_of(n - 1, *square) for square in squares)])
    enter(kept, x, y)
    if _stays(kept):
        return floats
    squares = _products(kept, 0, 0, 2), _products(kept, 0, 1, 3), _products(kept, 1, 1, 4)
    found = *_mean_of(kept, 0), *_mean_of(kept, 1), *squares
    kept.clear()
    return found


def _stays(kept: List) -> bool:
    """Return whether the tally must be kept: floats cannot resume, or all values are integers."""
    return kept[_ODD] > 0 or not kept[_BROKEN]


def _as_if(count: int, sums: List) -> List:
    """Create a tally of `count` plain floats."""
    kept = tally(0)
    kept[_COUNT] = kept[_BROKEN] = count
    kept[_SCALE] = _FINEST if count else 0
    return [*kept, *sums]


def _sum_of(count: int, mean: float, cut: float) -> int:
    return count * (_scaled(mean, _FINEST) + _scaled(cut, _FINEST))


def _square_of(count: int, deviations: float, one: int, other: int) -> int:
    """Convert a sum of products of deviations to one of products of values."""
    return (count * _scaled(deviations, 2 * _FINEST) + one * other) // count if count else 0


def _mean_of(kept: List, at: int) -> tuple[float, float]:
    return in_two(Fraction(kept[_SUMS + at], kept[_COUNT] << kept[_SCALE]))


def _products(kept: List, one: int, other: int, at: int) -> float:
    return quotient(_spread(kept, one, other, at), kept[_COUNT] << 2 * kept[_SCALE])


# -- what is read from a tally -------------------------------------------------------------------------


def _infinite(kept: List) -> float | None:
    """Return the sum of the infinite values; None if there are none."""
    above, below = kept[_ABOVE], kept[_BELOW]
    if above:
        return NAN if below else inf
    return -inf if below else None


def _spread(kept: List, one: int, other: int, at: int) -> int:
    """Return the sum of products of deviations from the means, times the count."""
    return kept[_COUNT] * kept[_SUMS + at] - kept[_SUMS + one] * kept[_SUMS + other]


def total(kept: List) -> Any:
    """Return the sum of the values, an integer if all of them are."""
    infinite = _infinite(kept)
    if infinite is not None:
        return infinite
    return quotient(kept[_SUMS], 1 << kept[_SCALE]) if kept[_BROKEN] else kept[_SUMS]


def mean(kept: List) -> float:
    """Return the mean of the values."""
    infinite = _infinite(kept)
    return quotient(kept[_SUMS], kept[_COUNT] << kept[_SCALE]) if infinite is None else infinite


def variance(kept: List, ddof: int) -> float:
    """Return the variance of the values; NaN if any is infinite."""
    if _infinite(kept) is not None:
        return NAN
    return quotient(_spread(kept, 0, 0, 1), _divisor(kept, ddof))


def deviation(kept: List, ddof: int) -> float:
    """Return the standard deviation, even if the variance overflows a float."""
    return NAN if _infinite(kept) is not None else root(_spread(kept, 0, 0, 1), _divisor(kept, ddof))


def covariance(kept: List, ddof: int) -> float:
    """Return the covariance of the pairs."""
    if _infinite(kept) is not None:
        return NAN
    return quotient(_spread(kept, 0, 1, 3), _divisor(kept, ddof))


def _divisor(kept: List, ddof: int) -> int:
    n = kept[_COUNT]
    return n * (n - ddof) << 2 * kept[_SCALE]


def pair_correlation(kept: List) -> float:
    """Return Pearson's correlation of the pairs."""
    return NAN if _infinite(kept) is not None else correlation_of_whole(*_spreads(kept))


def pair_line(kept: List, origin: Any) -> tuple[float, float, float]:
    """Return the slope, intercept at `y == origin`, and r2 of the regression line."""
    if _infinite(kept) is not None:
        return NAN, NAN, NAN
    vx, vy, vxy = _spreads(kept)
    scale = kept[_SCALE]
    scaled = None if origin is None else _scaled(origin, scale)
    return line_of_whole(kept[_COUNT], kept[_SUMS], kept[_SUMS + 1], vx, vy, vxy, scaled, scale)


def _spreads(kept: List) -> tuple[int, int, int]:
    """Return the spreads of x, of y, and of their products."""
    return _spread(kept, 0, 0, 2), _spread(kept, 1, 1, 4), _spread(kept, 0, 1, 3)
