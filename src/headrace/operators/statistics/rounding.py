"""Arithmetic rounded once, at the end, for numbers beyond float accuracy.

A float is *plain* if neither its square nor a sum of many overflows or loses digits to
underflow, a whole number if a float holds it. Everything else goes through here, as whole
numbers and fractions.
"""

from __future__ import annotations

from fractions import Fraction
from math import copysign, frexp, inf, isqrt, ldexp, sqrt
from typing import Any, TypeAlias

from headrace.expr.code_runtime import NAN

List: TypeAlias = "list[Any]"

LEAST, GREATEST = 1e-129, 1e144
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
        return LEAST < value < GREATEST or -GREATEST < value < -LEAST or not value
    return not isinstance(value, int) or -WHOLE < value < WHOLE


def is_infinite(value: Any) -> bool:
    return not isinstance(value, int) and value - value != 0


def tamed(values: List) -> List:
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
