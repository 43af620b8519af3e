"""Exact sums of powers and products, and the statistics of them, each rounded once.

Floats are whole numbers times powers of two, and so are their products. State is a list of numbers:

    [rows, shift, not finite of each variable, sums]

Values count in units of `2**-shift`, so a sum of degree d counts units of `2**(-d * shift)`. The sums are
those of x, x**2 and so on, or of x, y, x*x, x*y, y*y. A value that is not finite counts as 0, and is
remembered: what depends on it is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf, isqrt
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.code_runtime import NAN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Moment(Enum):
    """Statistics, by their names in SQL. Those of two variables take the dependent one first."""

    VAR_SAMP = "var_samp"
    VAR_POP = "var_pop"
    STDDEV_SAMP = "stddev_samp"
    STDDEV_POP = "stddev_pop"
    SKEWNESS = "skewness"
    KURTOSIS = "kurtosis"
    SUM_OF_SQUARES = "sum_of_squares"
    COVAR_SAMP = "covar_samp"
    COVAR_POP = "covar_pop"
    CORR = "corr"
    REGR_SXY = "regr_sxy"
    REGR_SLOPE = "regr_slope"
    REGR_INTERCEPT = "regr_intercept"
    REGR_R2 = "regr_r2"

    @property
    def variables(self) -> int:
        """Number of expressions that the statistic is of."""
        return 2 if self.value.startswith(("covar", "corr", "regr")) else 1


Sums: TypeAlias = "list[Any]"


OF_ONE, OF_SHAPE, OF_TWO = (1, 2), (1, 2, 3, 4), (1, 1, 2, 2, 2)
"""Degrees of the sums: for variances, for skewness and kurtosis, for two variables."""


def degrees_of(moment: Moment) -> tuple[int, ...]:
    """Return the degrees of the sums that a statistic needs."""
    if moment in (Moment.SKEWNESS, Moment.KURTOSIS):
        return OF_SHAPE
    return OF_TWO if moment.variables == 2 else OF_ONE


def variables_of(degrees: tuple[int, ...]) -> int:
    return degrees.count(1)


def empty_sums(degrees: tuple[int, ...]) -> Sums:
    return [0] * (2 + variables_of(degrees) + len(degrees))


def add_powers(group: Sums, at: int, degrees: tuple[int, ...], values: tuple[Any, ...], weight: int) -> None:
    """Add `weight` copies of a row to the state at `group[at:]`."""
    group[at] += weight
    ratios: list[tuple[int, int]] = []
    for place, value in enumerate(values, at + 2):
        # A decimal counts as the nearest float; integers count as they are.
        number = value if isinstance(value, int) else float(value)
        if number - number != 0:
            group[place] += weight
            number = 0
        above, below = number.as_integer_ratio()
        ratios.append((above, below.bit_length() - 1))
    first = at + 2 + len(values)
    shift = max(shift for _, shift in ratios)
    if shift > group[at + 1]:
        _rescale(group, at, first, degrees, shift)
    common = group[at + 1]
    for place, product in enumerate(_products(degrees, [n << common - s for n, s in ratios]), first):
        group[place] += product * weight
    if not group[at] and not any(group[first : first + len(degrees)]):
        group[at + 1] = 0


def merge_powers(group: Sums, at: int, degrees: tuple[int, ...], other: Sequence[int]) -> None:
    """Add another state to the one at `group[at:]`."""
    first, added = at + 2 + variables_of(degrees), list(other)
    _rescale(added, 0, first - at, degrees, max(group[at + 1], added[1]))
    _rescale(group, at, first, degrees, added[1])
    for place, number in enumerate(added):
        if place != 1:
            group[at + place] += number


def _rescale(group: Sums, at: int, first: int, degrees: tuple[int, ...], shift: int) -> None:
    more = shift - group[at + 1]
    group[at + 1] = shift
    for place, degree in enumerate(degrees, first):
        group[place] <<= more * degree


def _products(degrees: tuple[int, ...], values: list[int]) -> list[int]:
    if len(values) == 1:
        return [values[0] ** degree for degree in degrees]
    x, y = values
    return [x, y, x * x, x * y, y * y]


@dataclass(frozen=True, slots=True)
class _Deviations:
    """Sums over n rows of products of deviations from the mean, in whole units of `2**-shift`.

    xx, xy, yy: n times the sums; None if a value is not finite. sums: the sums themselves.
    """

    n: int
    shift: int
    sums: list[int]
    xx: int | None
    xy: int | None = None
    yy: int | None = None

    def per(self, above: int | None, parts: int) -> float:
        """Divide a sum of products, given n times, by `parts`."""
        return NAN if above is None else _quotient(above, (self.n * parts) << (2 * self.shift))

    def root_per(self, above: int | None, parts: int) -> float:
        return NAN if above is None else _root(above, (self.n * parts) << (2 * self.shift))


def statistic(group: Sums, at: int, degrees: tuple[int, ...], moment: Moment) -> float | None:
    """Compute a statistic of the state at `group[at:]`; None if it has no value."""
    n, shift = group[at], group[at + 1]
    if n <= 0:
        return None
    first = at + 2 + variables_of(degrees)
    odd, sums = group[at + 2 : first], group[first : first + len(degrees)]
    if len(odd) == 1:
        x, xx = sums[:2]
        return _STATISTICS[moment](_Deviations(n, shift, sums, None if odd[0] else n * xx - x * x))
    x, y, xx, xy, yy = sums
    of_x = None if odd[0] else n * xx - x * x
    of_y = None if odd[1] else n * yy - y * y
    of_both = None if odd[0] or odd[1] else n * xy - x * y
    return _STATISTICS[moment](_Deviations(n, shift, sums, of_x, of_both, of_y))


def _sample(divide: Callable[[_Deviations], float]) -> Callable[[_Deviations], float | None]:
    return lambda of: divide(of) if of.n > 1 else None


def _skewness(of: _Deviations) -> float | None:
    if of.xx is None:
        return NAN
    s1, s2, s3, _ = of.sums
    cubes = of.n**2 * s3 - 3 * of.n * s1 * s2 + 2 * s1**3
    return _signed(cubes, _root(cubes**2, of.xx**3)) if of.xx else None


def _kurtosis(of: _Deviations) -> float | None:
    if of.xx is None:
        return NAN
    n, (s1, s2, s3, s4) = of.n, of.sums
    fourths = n**3 * s4 - 4 * n**2 * s1 * s3 + 6 * n * s1**2 * s2 - 3 * s1**4
    return _quotient(fourths - 3 * of.xx**2, of.xx**2) if of.xx else None


def _corr(of: _Deviations) -> float | None:
    if of.xx == 0 or of.yy == 0:
        return None
    if of.xx is None or of.xy is None or of.yy is None:
        return NAN
    return _signed(of.xy, _root(of.xy**2, of.xx * of.yy))


def _slope(of: _Deviations) -> float | None:
    if of.yy == 0:
        return None
    return NAN if of.xy is None or of.yy is None else _quotient(of.xy, of.yy)


def _intercept(of: _Deviations) -> float | None:
    if of.yy == 0:
        return None
    if of.xy is None or of.yy is None:
        return NAN
    x, y = of.sums[:2]
    return _quotient(x * of.yy - of.xy * y, (of.n * of.yy) << of.shift)


def _r2(of: _Deviations) -> float | None:
    if of.yy == 0:
        return None
    if of.xx == 0:
        return 1.0
    if of.xx is None or of.xy is None or of.yy is None:
        return NAN
    return _quotient(of.xy**2, of.xx * of.yy)


_STATISTICS: dict[Moment, Callable[[_Deviations], float | None]] = {
    Moment.VAR_SAMP: _sample(lambda of: of.per(of.xx, of.n - 1)),
    Moment.VAR_POP: lambda of: of.per(of.xx, of.n),
    Moment.STDDEV_SAMP: _sample(lambda of: of.root_per(of.xx, of.n - 1)),
    Moment.STDDEV_POP: lambda of: of.root_per(of.xx, of.n),
    Moment.SUM_OF_SQUARES: lambda of: of.per(of.xx, 1),
    Moment.SKEWNESS: _skewness,
    Moment.KURTOSIS: _kurtosis,
    Moment.COVAR_SAMP: _sample(lambda of: of.per(of.xy, of.n - 1)),
    Moment.COVAR_POP: lambda of: of.per(of.xy, of.n),
    Moment.CORR: _corr,
    Moment.REGR_SXY: lambda of: of.per(of.xy, 1),
    Moment.REGR_SLOPE: _slope,
    Moment.REGR_INTERCEPT: _intercept,
    Moment.REGR_R2: _r2,
}


def _quotient(above: int, below: int) -> float:
    try:
        return above / below or 0.0
    except OverflowError:
        return inf if above > 0 else -inf


def _root(above: int, below: int) -> float:
    """Return the root of `above / below` rounded once; 0 if it is negative."""
    if above <= 0 or below <= 0:
        return 0.0
    # More bits than a float has, and one that says whether there are further ones.
    half = max(0, 64 - (above.bit_length() - below.bit_length()) // 2)
    whole, rest = divmod(above << 2 * half, below)
    digits = isqrt(whole)
    further = rest or digits * digits != whole
    return _quotient(2 * digits + bool(further), 2 << half)


def _signed(sign: int, size: float) -> float:
    return (-size if sign < 0 else size) or 0.0


RUNTIME: dict[str, Any] = {
    "x_add_powers": add_powers,
    "x_merge_powers": merge_powers,
    "x_statistic": statistic,
}
