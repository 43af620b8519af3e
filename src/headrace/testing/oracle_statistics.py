"""Oracle for statistics by moments: sums of deviations from the mean, as fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from headrace.expr.code_runtime import NAN
from headrace.operators.moment_aggregates import Moment

_DIGITS = Context(prec=80, Emax=10**6, Emin=-(10**6))


def statistic_of(moment: Moment, rows: Sequence[tuple[Any, ...]]) -> float | None:
    """Compute a statistic of one or two variables; None if it has no value."""
    if not rows:
        return None
    n, columns = len(rows), [_exact(column) for column in zip(*rows, strict=True)]
    x, y = columns[0], columns[-1]
    xx, xy, yy = _products(x, x), _products(x, y), _products(y, y)
    match moment:
        case Moment.VAR_POP | Moment.COVAR_POP:
            return _float(xy, n)
        case Moment.VAR_SAMP | Moment.COVAR_SAMP:
            return _float(xy, n - 1) if n > 1 else None
        case Moment.SUM_OF_SQUARES | Moment.REGR_SXY:
            return _float(xy, 1)
        case Moment.STDDEV_POP:
            return _root(xx, n)
        case Moment.STDDEV_SAMP:
            return _root(xx, n - 1) if n > 1 else None
        case Moment.SKEWNESS if xx != 0:
            third = _power(x, 3)
            return NAN if xx is None or third is None else _signed(third, n * third**2 / xx**3)
        case Moment.KURTOSIS if xx != 0:
            fourth = _power(x, 4)
            return NAN if xx is None or fourth is None else _float(n * fourth / xx**2 - 3, 1)
        case Moment.CORR if xx != 0 and yy != 0:
            return NAN if xx is None or xy is None or yy is None else _signed(xy, xy**2 / (xx * yy))
        case Moment.REGR_SLOPE if yy != 0:
            return NAN if xy is None or yy is None else _float(xy, yy)
        case Moment.REGR_INTERCEPT if yy != 0:
            if x is None or y is None or xy is None or yy is None:
                return NAN
            return _float(sum(x, Fraction()) / n - xy / yy * sum(y, Fraction()) / n, 1)
        case Moment.REGR_R2 if xx == 0 and yy != 0:
            return 1.0
        case Moment.REGR_R2 if yy != 0:
            return NAN if xx is None or xy is None or yy is None else _float(xy**2, xx * yy)
        case _:
            return None


def _exact(values: Sequence[Any]) -> list[Fraction] | None:
    """Return numbers as fractions; None if one is not finite."""
    numbers = [float(v) if isinstance(v, Decimal) else v for v in values]
    return [Fraction(v) for v in numbers] if all(map(math.isfinite, numbers)) else None


def _products(x: list[Fraction] | None, y: list[Fraction] | None) -> Fraction | None:
    if x is None or y is None:
        return None
    of_x, of_y = sum(x, Fraction()) / len(x), sum(y, Fraction()) / len(y)
    return sum(((a - of_x) * (b - of_y) for a, b in zip(x, y, strict=True)), Fraction())


def _power(x: list[Fraction] | None, power: int) -> Fraction | None:
    return None if x is None else sum(((a - sum(x, Fraction()) / len(x)) ** power for a in x), Fraction())


def _float(above: Fraction | None, below: Fraction | int) -> float:
    if above is None:
        return NAN
    try:
        return float(above / below) or 0.0
    except OverflowError:
        return math.inf if above > 0 else -math.inf


def _root(square: Fraction | None, below: int = 1) -> float:
    if square is None:
        return NAN
    exact = square / below
    above, under = math.isqrt(exact.numerator), math.isqrt(exact.denominator)
    if Fraction(above, under) ** 2 == exact:
        # Half of the least float has more digits than are computed below.
        return float(Fraction(above, under))
    root = _DIGITS.sqrt(_DIGITS.divide(Decimal(exact.numerator), Decimal(exact.denominator)))
    return float(root)


def _signed(sign: Fraction, square: Fraction) -> float:
    return (_root(square) if sign > 0 else -_root(square)) or 0.0
